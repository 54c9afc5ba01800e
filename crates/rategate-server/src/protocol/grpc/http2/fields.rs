//! The fields of a head, and their validation as a request (RFC 9113, sections 8.1 to 8.3).

use crate::net::{Access, TokenShown};
use crate::protocol::grpc::head::{Head, Method, Timeout, is_compressed, is_grpc};

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
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) head: Head,
    /// `true` for each of `:method`, `:path`, `:scheme` and `:authority` that has occurred.
    pseudo: [bool; 4],
    length: Option<u64>,
    is_past_pseudo: bool,
    is_invalid: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            head: Head::EMPTY,
            pseudo: [false; 4],
            length: None,
            is_past_pseudo: false,
            is_invalid: false,
        }
    }
}

impl Seen {
    /// Adds one field.
    pub(super) fn take(&mut self, meaning: Meaning) {
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
    pub(super) const fn end(self) -> Unpacked {
        let kind = match self.pseudo {
            [true, true, true, _] if !self.is_invalid => Kind::Request,
            [false, false, false, false] if !self.is_invalid => Kind::Trailers,
            _ => Kind::Malformed,
        };
        Unpacked { head: self.head, kind, is_too_long: false, length: self.length }
    }
}

impl Name {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":scheme" => Self::Scheme,
            b":authority" => Self::Authority,
            b"content-type" => Self::ContentType,
            b"grpc-encoding" => Self::Encoding,
            b"grpc-timeout" => Self::Timeout,
            b"authorization" => Self::Authorization,
            b"te" => Self::Te,
            b"content-length" => Self::Length,
            #[cfg(feature = "otlp")]
            b"traceparent" => Self::Span,
            // Fields of HTTP/1.1 connections, unknown pseudo fields, and invalid names.
            b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive"
            | b"proxy-connection" => Self::Invalid,
            _ if is_name(name) => Self::Other,
            _ => Self::Invalid,
        }
    }

    /// Returns the meaning of a field of this name with a value.
    pub(super) fn meaning(self, value: &[u8], access: &Access) -> Meaning {
        match self {
            Self::Method => Meaning::Post(value == b"POST"),
            Self::Path if value.is_empty() => Meaning::Invalid,
            Self::Path => Meaning::Path(Method::of(value)),
            Self::Scheme => Meaning::Scheme,
            Self::Authority => Meaning::Authority,
            Self::ContentType => Meaning::Grpc(is_grpc(value)),
            Self::Encoding => Meaning::Compressed(is_compressed(value)),
            Self::Timeout => Meaning::Timeout(Timeout::of(value)),
            Self::Authorization => Meaning::Token(access.shown_by(value)),
            Self::Te if value == b"trailers" => Meaning::Nothing,
            Self::Length => number(value).map_or(Meaning::Invalid, Meaning::Length),
            #[cfg(feature = "otlp")]
            Self::Span => Meaning::Span(crate::engine::CallerSpan::read(value)),
            Self::Other => Meaning::Nothing,
            Self::Te | Self::Invalid => Meaning::Invalid,
        }
    }
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte)
        })
}

/// Returns `true` for a valid value (RFC 9113, section 8.2.1): no bytes that end a line elsewhere,
/// and no surrounding blanks.
pub(super) fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first())
        && !is_blank(value.last())
        && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}
