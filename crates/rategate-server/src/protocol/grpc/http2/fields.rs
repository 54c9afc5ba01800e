//! The fields of a head, and their validation as a request (RFC 9113, sections 8.1 to 8.3).

use rategate_protocol::grpc::{Timeout, is_compressed, is_grpc};
use rategate_protocol::http2::{self, Decoder, Unpacking, is_name};

use crate::net::{Access, TokenShown};
use crate::protocol::grpc::head::{Head, Method};
use crate::units::whole;

/// The decoded fields of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unpacked {
    pub(super) head: Head,
    pub(super) kind: Kind,
    /// `true` if the fields exceed the maximum size of a head.
    pub(super) is_too_long: bool,
    /// The length of the call's data by its `content-length`, if stated.
    pub(super) length: Option<u64>,
}

/// The kind of a head (RFC 9113, sections 8.1 to 8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The head of a request.
    Request,
    /// The trailers of a request.
    Trailers,
    /// Neither: fields are missing, invalid, or misplaced.
    Malformed,
}

/// The fields of a head that matter, with the token that those of calls are compared with.
#[derive(Debug)]
pub(super) struct CallFields(pub(super) Access);

/// The name of a field, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Method,
    Path,
    Scheme,
    Authority,
    ContentType,
    Encoding,
    Timeout,
    Authorization,
    Te,
    Length,
    #[cfg(feature = "otlp")]
    Span,
    Other,
    Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Post(bool),
    Path(Option<Method>),
    Scheme,
    Authority,
    Grpc(bool),
    Compressed(bool),
    Timeout(Timeout),
    Token(TokenShown),
    Length(u64),
    #[cfg(feature = "otlp")]
    Span(Option<crate::engine::CallerSpan>),
    Nothing,
    /// A name or a value that no field of a request may have.
    Invalid,
}

/// The state of decoding a head.
#[derive(Debug, Default)]
struct Seen {
    head: Head,
    /// `true` for each of `:method`, `:path`, `:scheme` and `:authority` that has occurred.
    pseudo: [bool; 4],
    length: Option<u64>,
    is_past_pseudo: bool,
    is_invalid: bool,
}

impl Seen {
    /// Adds one field.
    fn take(&mut self, meaning: Meaning) {
        let pseudo = match meaning {
            Meaning::Post(is_post) => {
                self.head.is_post = is_post;
                0
            }
            Meaning::Path(method) => {
                self.head.method = method;
                1
            }
            Meaning::Scheme => 2,
            Meaning::Authority => 3,
            other => {
                self.is_past_pseudo = true;
                match other {
                    Meaning::Grpc(is_grpc) => self.head.is_grpc = is_grpc,
                    Meaning::Compressed(is_compressed) => self.head.is_compressed = is_compressed,
                    Meaning::Timeout(timeout) => self.head.timeout = timeout,
                    Meaning::Token(token) => self.head.token = token,
                    #[cfg(feature = "otlp")]
                    Meaning::Span(span) => self.head.span = span,
                    Meaning::Length(length) => {
                        // Repeated lengths have to be equal.
                        let before = self.length.replace(length);
                        self.is_invalid |= before.is_some_and(|before| before != length);
                    }
                    Meaning::Invalid => self.is_invalid = true,
                    _ => {}
                }
                return;
            }
        };
        // Pseudo fields occur once each, and before all others.
        let seen = self.pseudo.get_mut(pseudo).is_none_or(|seen| std::mem::replace(seen, true));
        self.is_invalid |= seen || self.is_past_pseudo;
    }

    /// Ends the head.
    const fn end(self) -> Unpacked {
        let kind = match self.pseudo {
            [true, true, true, _] if !self.is_invalid => Kind::Request,
            [false, false, false, false] if !self.is_invalid => Kind::Trailers,
            _ => Kind::Malformed,
        };
        Unpacked { head: self.head, kind, is_too_long: false, length: self.length }
    }
}

/// Decodes a head, whose fields have the maximum size `max`.
pub(super) fn unpack(
    decoder: &mut Decoder<CallFields>,
    block: &[u8],
    max: usize,
) -> Result<Unpacked, Unpacking> {
    let mut seen = Seen::default();
    let is_too_long = decoder.decode(block, max, |meaning| seen.take(meaning))?;
    Ok(Unpacked { is_too_long, ..seen.end() })
}

impl http2::Fields for CallFields {
    type Name = Name;
    type Meaning = Meaning;

    const INVALID: Meaning = Meaning::Invalid;

    fn name(&self, name: &[u8]) -> Name {
        match name {
            b":method" => Name::Method,
            b":path" => Name::Path,
            b":scheme" => Name::Scheme,
            b":authority" => Name::Authority,
            b"content-type" => Name::ContentType,
            b"grpc-encoding" => Name::Encoding,
            b"grpc-timeout" => Name::Timeout,
            b"authorization" => Name::Authorization,
            b"te" => Name::Te,
            b"content-length" => Name::Length,
            #[cfg(feature = "otlp")]
            b"traceparent" => Name::Span,
            // Fields of HTTP/1.1 connections, unknown pseudo fields, and invalid names.
            b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive"
            | b"proxy-connection" => Name::Invalid,
            _ if is_name(name) => Name::Other,
            _ => Name::Invalid,
        }
    }

    fn meaning(&self, name: Name, value: &[u8]) -> Meaning {
        match name {
            Name::Method => Meaning::Post(value == b"POST"),
            Name::Path if value.is_empty() => Meaning::Invalid,
            Name::Path => Meaning::Path(Method::of(value)),
            Name::Scheme => Meaning::Scheme,
            Name::Authority => Meaning::Authority,
            Name::ContentType => Meaning::Grpc(is_grpc(value)),
            Name::Encoding => Meaning::Compressed(is_compressed(value)),
            Name::Timeout => Meaning::Timeout(Timeout::of(value)),
            Name::Authorization => Meaning::Token(self.0.shown_by(value)),
            Name::Te if value == b"trailers" => Meaning::Nothing,
            Name::Length => whole(value).map_or(Meaning::Invalid, Meaning::Length),
            #[cfg(feature = "otlp")]
            Name::Span => Meaning::Span(crate::engine::CallerSpan::read(value)),
            Name::Other => Meaning::Nothing,
            Name::Te | Name::Invalid => Meaning::Invalid,
        }
    }
}
