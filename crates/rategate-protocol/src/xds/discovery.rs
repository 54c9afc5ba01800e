//! `DiscoveryRequest` and `DiscoveryResponse`, in which each response has all resources.

use bytes::BytesMut;

use crate::protobuf::{Malformed, Reader, put_bytes, put_integer};

/// The maximum number of resources of a response.
pub const MAX_RESOURCES: usize = 10_000;

/// The code of `google.rpc.Status` for a resource that is refused: an invalid argument.
const INVALID_ARGUMENT: u64 = 3;

/// A parsed `DiscoveryResponse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryResponse<'a> {
    /// The version of the resources.
    pub version: &'a str,
    /// All resources of the type. One more than [`MAX_RESOURCES`] shows that there are too many;
    /// further ones are not kept.
    pub resources: Vec<Resource<'a>>,
    /// The type of the resources.
    pub type_url: &'a str,
    /// The name of the response, which the next request repeats.
    pub nonce: &'a str,
}

/// A resource: a message of some type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resource<'a> {
    /// The type of the message.
    pub type_url: &'a str,
    /// The encoded message.
    pub value: &'a [u8],
}

/// A `DiscoveryRequest`: a subscription to all resources of a type, or the verdict on a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryRequest<'a> {
    /// The version that was accepted last, empty before the first.
    pub version: &'a str,
    /// The name by which the control plane knows this client.
    pub node: &'a str,
    /// The type of the resources.
    pub type_url: &'a str,
    /// The nonce of the response that is judged, empty in a stream's first request.
    pub nonce: &'a str,
    /// The reason why that response is refused, if it is.
    pub error: Option<&'a str>,
}

impl<'a> DiscoveryResponse<'a> {
    /// Parses the message.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for bytes that are not this message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut response = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => response.version = value.text()?,
                2 => {
                    let resource = Resource::read(value.bytes()?)?;
                    if response.resources.len() <= MAX_RESOURCES {
                        response.resources.push(resource);
                    }
                }
                4 => response.type_url = value.text()?,
                5 => response.nonce = value.text()?,
                _ => {}
            }
        }
        Ok(response)
    }
}

impl<'a> Resource<'a> {
    /// Parses a message `google.protobuf.Any`.
    fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut resource = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => resource.type_url = value.text()?,
                2 => resource.value = value.bytes()?,
                _ => {}
            }
        }
        Ok(resource)
    }
}

impl DiscoveryRequest<'_> {
    /// Writes the message.
    pub fn write(&self, out: &mut BytesMut) {
        put_text(out, 1, self.version);
        let mut node = BytesMut::new();
        put_text(&mut node, 1, self.node);
        put_bytes(out, 2, &node);
        put_text(out, 4, self.type_url);
        put_text(out, 5, self.nonce);
        if let Some(error) = self.error {
            let mut status = BytesMut::new();
            put_integer(&mut status, 1, INVALID_ARGUMENT);
            put_text(&mut status, 2, error);
            put_bytes(out, 6, &status);
        }
    }
}

fn put_text(out: &mut BytesMut, number: u8, text: &str) {
    if !text.is_empty() {
        put_bytes(out, number, text.as_bytes());
    }
}
