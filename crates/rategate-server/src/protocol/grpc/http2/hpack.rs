//! Fields of a head, unpacked (RFC 7541). Nobody needs their text: what a field means is found once, and kept in the table in its
//! place. So a head of many references to a long field takes no more room than a short one.

use std::collections::VecDeque;

use super::huffman;
use crate::net::Access;
use crate::protocol::grpc::head::{Head, Method, Timeout, is_compressed, is_grpc};

/// What goes wrong here concerns the whole connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unpacking {
    /// Both ends do not have the same table any more.
    Compression,
    /// There is more than we care for.
    TooMuch,
}

/// The fields of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unpacked {
    pub(super) head: Head,
    pub(super) kind: Kind,
    /// How many bytes the call has by its `content-length`, if it says so.
    pub(super) length: Option<u64>,
}

/// What fields can be (RFC 9113, sections 8.1 to 8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The head of a request.
    Request,
    /// The fields at its end.
    Trailers,
    /// Neither: some are missing, or wrong, or in the wrong place.
    Malformed,
}

#[derive(Debug)]
pub(super) struct Decoder {
    /// The newest first.
    entries: VecDeque<Entry>,
    size: usize,
    most: usize,
    /// What a token is compared with, if one is asked for.
    access: Option<Access>,
    name: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    name: Name,
    name_length: usize,
    value_length: usize,
    meaning: Meaning,
}

/// Fields that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
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
    Wrong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Post(bool),
    Path(Option<Method>),
    Scheme,
    Authority,
    Grpc(bool),
    Compressed(bool),
    Timeout(Timeout),
    Admitted(bool),
    Length(u64),
    #[cfg(feature = "otlp")]
    Span(Option<crate::engine::CallerSpan>),
    Nothing,
    /// A name or a value that no field of a request may have.
    Wrong,
}

/// The room of the table, which we never ask to be other than it is by default.
const TABLE: usize = 4096;
/// What each field counts besides its text.
const EXTRA: usize = 32;

impl Decoder {
    pub(super) fn new(access: Option<Access>) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            most: TABLE,
            access,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Unpacks the fields of a head, which together may count `most`.
    pub(super) fn decode(&mut self, block: &[u8], most: usize) -> Result<Unpacked, Unpacking> {
        let mut rest = block;
        let (mut seen, mut total, mut may_resize) = (Seen::default(), 0_usize, true);
        seen.head.is_admitted = self.access.is_none();
        while let Some(&first) = rest.first() {
            if first & 0xe0 == 0x20 {
                let size = integer(&mut rest, 5)?;
                if !may_resize || size > TABLE {
                    return Err(Unpacking::Compression);
                }
                self.most = size;
                self.fit();
                continue;
            }
            may_resize = false;
            let entry = if first & 0x80 > 0 {
                self.get(integer(&mut rest, 7)?)?
            } else if first & 0x40 > 0 {
                let entry = self.literal(&mut rest, 6)?;
                self.insert(entry);
                entry
            } else {
                self.literal(&mut rest, 4)?
            };
            total = total.saturating_add(entry.size());
            if total > most {
                return Err(Unpacking::TooMuch);
            }
            seen.take(entry.meaning);
        }
        Ok(seen.end())
    }

    fn literal(&mut self, rest: &mut &[u8], bits: u32) -> Result<Entry, Unpacking> {
        let index = integer(rest, bits)?;
        let (name, name_length) = if index == 0 {
            self.name.clear();
            let name = text(rest, &mut self.name)?;
            (Name::of(name), name.len())
        } else {
            let entry = self.get(index)?;
            (entry.name, entry.name_length)
        };
        self.value.clear();
        let value = text(rest, &mut self.value)?;
        Ok(Entry {
            name,
            name_length,
            value_length: value.len(),
            meaning: if is_value(value) {
                name.meaning(value, self.access.as_ref())
            } else {
                Meaning::Wrong
            },
        })
    }

    fn get(&self, index: usize) -> Result<Entry, Unpacking> {
        let index = index.checked_sub(1).ok_or(Unpacking::Compression)?;
        if let Some((name, value)) = STATIC.get(index) {
            let known = Name::of(name.as_bytes());
            return Ok(Entry {
                name: known,
                name_length: name.len(),
                value_length: value.len(),
                meaning: known.meaning(value.as_bytes(), self.access.as_ref()),
            });
        }
        let entry = self.entries.get(index.saturating_sub(STATIC.len()));
        entry.copied().ok_or(Unpacking::Compression)
    }

    fn insert(&mut self, entry: Entry) {
        self.size = self.size.saturating_add(entry.size());
        self.entries.push_front(entry);
        self.fit();
    }

    fn fit(&mut self) {
        while self.size > self.most {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size = self.size.saturating_sub(oldest.size());
        }
    }
}

impl Entry {
    const fn size(&self) -> usize {
        self.name_length.saturating_add(self.value_length).saturating_add(EXTRA)
    }
}

/// What has been seen of a head.
#[derive(Debug)]
struct Seen {
    head: Head,
    /// Of `:method`, `:path`, `:scheme` and `:authority`.
    pseudo: [bool; 4],
    length: Option<u64>,
    is_past_pseudo: bool,
    is_wrong: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            head: Head::EMPTY,
            pseudo: [false; 4],
            length: None,
            is_past_pseudo: false,
            is_wrong: false,
        }
    }
}

impl Seen {
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
                    Meaning::Admitted(is_admitted) => self.head.is_admitted = is_admitted,
                    #[cfg(feature = "otlp")]
                    Meaning::Span(span) => self.head.span = span,
                    Meaning::Length(length) => {
                        // Said twice, it is said twice the same.
                        let before = self.length.replace(length);
                        self.is_wrong |= before.is_some_and(|before| before != length);
                    }
                    Meaning::Wrong => self.is_wrong = true,
                    _ => {}
                }
                return;
            }
        };
        // Once each, and before all others.
        let seen = self.pseudo.get_mut(pseudo).is_none_or(|seen| std::mem::replace(seen, true));
        self.is_wrong |= seen || self.is_past_pseudo;
    }

    const fn end(self) -> Unpacked {
        let kind = match self.pseudo {
            [true, true, true, _] if !self.is_wrong => Kind::Request,
            [false, false, false, false] if !self.is_wrong => Kind::Trailers,
            _ => Kind::Malformed,
        };
        Unpacked { head: self.head, kind, length: self.length }
    }
}

impl Name {
    fn of(name: &[u8]) -> Self {
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
            // Fields of HTTP/1.1 connections, made-up pseudo fields, and names that are none.
            b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive"
            | b"proxy-connection" => Self::Wrong,
            _ if is_name(name) => Self::Other,
            _ => Self::Wrong,
        }
    }

    fn meaning(self, value: &[u8], access: Option<&Access>) -> Meaning {
        match self {
            Self::Method => Meaning::Post(value == b"POST"),
            Self::Path if value.is_empty() => Meaning::Wrong,
            Self::Path => Meaning::Path(Method::of(value)),
            Self::Scheme => Meaning::Scheme,
            Self::Authority => Meaning::Authority,
            Self::ContentType => Meaning::Grpc(is_grpc(value)),
            Self::Encoding => Meaning::Compressed(is_compressed(value)),
            Self::Timeout => Meaning::Timeout(Timeout::of(value)),
            Self::Authorization => {
                Meaning::Admitted(access.is_none_or(|access| access.admits_field(value)))
            }
            Self::Te if value == b"trailers" => Meaning::Nothing,
            Self::Length => number(value).map_or(Meaning::Wrong, Meaning::Length),
            #[cfg(feature = "otlp")]
            Self::Span => Meaning::Span(crate::engine::CallerSpan::read(value)),
            Self::Other => Meaning::Nothing,
            Self::Te | Self::Wrong => Meaning::Wrong,
        }
    }
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.iter().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte)
        })
}

/// Whether a value is one (RFC 9113, section 8.2.1): none that would end a line elsewhere, nor one with blanks around it.
fn is_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_blank(value.first())
        && !is_blank(value.last())
        && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, Unpacking> {
    let (first, mut tail) = rest.split_first().ok_or(Unpacking::Compression)?;
    let mask = (1_usize << bits).saturating_sub(1);
    let mut value = usize::from(*first) & mask;
    if value == mask {
        // No number here needs more than three bytes.
        for shift in [0_u32, 7, 14, 21] {
            let (byte, after) = tail.split_first().ok_or(Unpacking::Compression)?;
            tail = after;
            if shift == 21 {
                return Err(Unpacking::Compression);
            }
            value = value.saturating_add((usize::from(*byte) & 0x7f) << shift);
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = tail;
    Ok(value)
}

fn text<'a, 'b: 'a>(rest: &mut &'b [u8], room: &'a mut Vec<u8>) -> Result<&'a [u8], Unpacking> {
    let is_packed = rest.first().is_some_and(|first| first & 0x80 > 0);
    let length = integer(rest, 7)?;
    let (text, after) = rest.split_at_checked(length).ok_or(Unpacking::Compression)?;
    *rest = after;
    if !is_packed {
        return Ok(text);
    }
    huffman::decode(text, room).ok_or(Unpacking::Compression)?;
    Ok(room)
}

/// The table that both ends have from the start.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];
