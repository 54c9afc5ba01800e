//! `RateLimitRequest`, parsed without copies.

use smallvec::SmallVec;

use super::unit::Unit;
use crate::protobuf::{Malformed, Reader};

/// The maximum number of descriptors of a request, and of entries of a descriptor.
pub const MAX_ITEMS: usize = 64;

/// A parsed `RateLimitRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RlsRequest<'a> {
    /// The domain of the rules.
    pub domain: &'a str,
    /// The descriptors. Each of them has to be within its limit.
    pub descriptors: SmallVec<[Descriptor<'a>; 2]>,
    /// The permits of each descriptor that states no number of its own; 0 means 1.
    pub hits: u32,
}

/// A descriptor of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// The keys and values, in order.
    pub entries: SmallVec<[(&'a [u8], &'a [u8]); 4]>,
    /// The limit that the caller supplies.
    pub limit: Option<Override>,
    /// The number of permits. 0 reads the status and takes nothing.
    pub hits: Option<u64>,
    /// `true` if the permits are credited instead of taken.
    pub refund: bool,
}

/// A limit that comes with a descriptor, counted in windows of the wall clock that count denied
/// permits too. Limits of one unit share the count of a descriptor, a rule's among them, as they
/// do in envoyproxy/ratelimit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Override {
    /// The maximum in each window, up to 4 294 967 295. 0 denies all.
    pub permits: u64,
    /// The length of a window.
    pub unit: Unit,
}

/// The reason why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedRequest {
    /// The bytes are not a message.
    #[error("the request is malformed: {0}")]
    Malformed(&'static str),
    /// The text is not this message in JSON.
    #[error("the request is malformed: {0}")]
    Json(String),
    /// The domain is empty.
    #[error("rate limit domain must not be empty")]
    NoDomain,
    /// There are no descriptors.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// The request has more items than allowed.
    #[error("there are more than {max} {what}")]
    TooMany {
        /// The kind of item.
        what: &'static str,
        /// The maximum number of items.
        max: usize,
    },
    /// A descriptor cannot be used as it is.
    #[error("descriptor {descriptor}: `{part}`: {problem}")]
    Descriptor {
        /// The index of the descriptor, from 0.
        descriptor: usize,
        /// The key of the entry, or the name of the field.
        part: String,
        /// The problem, and what would be accepted.
        problem: String,
    },
    /// A field of the request that is not a descriptor cannot be used as it is.
    #[error("`{field}`: {problem}")]
    Field {
        /// The name of the field.
        field: &'static str,
        /// The problem, and what would be accepted.
        problem: String,
    },
    /// The limit that the caller supplies has an unknown unit.
    #[error("the limit of descriptor {descriptor} has no unit")]
    NoUnit {
        /// The index of the descriptor, from 0.
        descriptor: usize,
    },
}

impl From<Malformed> for MalformedRequest {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Malformed(why)
    }
}

impl<'a> RlsRequest<'a> {
    /// Parses the message.
    ///
    /// # Errors
    ///
    /// [`MalformedRequest::Malformed`], [`MalformedRequest::TooMany`],
    /// [`MalformedRequest::NoUnit`].
    pub fn read(message: &'a [u8]) -> Result<Self, MalformedRequest> {
        let mut ask = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => ask.domain = value.text()?,
                2 => Descriptor::push(&mut ask.descriptors, value.bytes()?)?,
                3 => ask.hits = value.small()?,
                _ => {}
            }
        }
        Ok(ask)
    }

    /// Returns `true` if the request credits permits.
    #[must_use]
    pub fn credits(&self) -> bool {
        self.descriptors.iter().any(|descriptor| descriptor.refund)
    }
}

impl<'a> Descriptor<'a> {
    /// Parses one more descriptor of a request.
    pub(crate) fn push(
        all: &mut SmallVec<[Self; 2]>,
        message: &'a [u8],
    ) -> Result<(), MalformedRequest> {
        few(all.len(), "descriptors")?;
        all.push(Self::read(message, all.len())?);
        Ok(())
    }

    fn read(message: &'a [u8], index: usize) -> Result<Self, MalformedRequest> {
        let mut descriptor = Self::default();
        let mut limit = None;
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => {
                    few(descriptor.entries.len(), "entries")?;
                    descriptor.entries.push(entry(value.bytes()?)?);
                }
                // Repeated fields are merged.
                2 => {
                    let (permits, unit) = limit.get_or_insert((0, 0));
                    let mut fields = Reader::new(value.bytes()?);
                    while let Some((number, value)) = fields.field()? {
                        match number {
                            1 => *permits = value.small()?,
                            2 => *unit = value.small()?,
                            _ => {}
                        }
                    }
                }
                3 => {
                    let hits = descriptor.hits.get_or_insert(0);
                    let mut fields = Reader::new(value.bytes()?);
                    while let Some((number, value)) = fields.field()? {
                        if number == 1 {
                            *hits = value.integer()?;
                        }
                    }
                }
                4 => descriptor.refund = value.integer()? != 0,
                _ => {}
            }
        }
        if let Some((permits, number)) = limit {
            let unit =
                Unit::of_number(number).ok_or(MalformedRequest::NoUnit { descriptor: index })?;
            descriptor.limit = Some(Override { permits: u64::from(permits), unit });
        }
        Ok(descriptor)
    }
}

/// Checks that there may be one more item. An empty item takes two bytes of a message, and a
/// hundred times that in memory.
const fn few(so_far: usize, what: &'static str) -> Result<(), MalformedRequest> {
    if so_far < MAX_ITEMS {
        Ok(())
    } else {
        Err(MalformedRequest::TooMany { what, max: MAX_ITEMS })
    }
}

/// Reads a key and its value as bytes.
///
/// The format defines them as text, but proxies copy header fields of their clients there
/// unchecked. If one byte caused an error, a client could choose that no limit applies to it.
fn entry(message: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut entry: (&[u8], &[u8]) = (b"", b"");
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => entry.0 = value.bytes()?,
            2 => entry.1 = value.bytes()?,
            _ => {}
        }
    }
    Ok(entry)
}
