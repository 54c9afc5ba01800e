//! Parsing of lines that are JSON objects, as far as needed: the fields at the top level, and one
//! at a dotted path.

use memchr::memchr2;

use super::time::{epoch, whole_number};
use super::{Dates, Entry, Parser, SkipReason};
use crate::key::CallerKey;

const TIMES: [&[u8]; 8] =
    [b"time", b"timestamp", b"@timestamp", b"ts", b"time_iso8601", b"time_local", b"msec", b"date"];
const ADDRESSES: [&[u8]; 8] =
    [b"remote_addr", b"remote_ip", b"client_ip", b"clientip", b"client", b"ip", b"addr", b"host"];
const USERS: [&[u8]; 3] = [b"remote_user", b"user", b"auth"];
const AGENTS: [&[u8]; 4] = [b"http_user_agent", b"user_agent", b"agent", b"userAgent"];
const PATHS: [&[u8]; 5] = [b"path", b"uri", b"request_uri", b"url", b"request"];
const STATUSES: [&[u8]; 3] = [b"status", b"status_code", b"response"];
const SIZES: [&[u8]; 4] = [b"body_bytes_sent", b"bytes_sent", b"bytes", b"size"];

/// Parses the needed parts of a line.
///
/// Of several names for one thing, the first of the list counts; of several fields of one name,
/// the last. A field whose name has dots takes precedence over one at the path they form. Strings
/// are taken as written, with their escapes.
pub(super) fn read<'a>(parser: &mut Parser, line: &'a [u8]) -> Result<Entry<'a>, SkipReason> {
    let own: [&[u8]; 1];
    let names: &[&[u8]] = match &parser.key {
        CallerKey::Addr => &ADDRESSES,
        CallerKey::User => &USERS,
        CallerKey::Agent => &AGENTS,
        CallerKey::Path(_) => &PATHS,
        CallerKey::Json(field) => {
            own = [field.as_bytes()];
            &own
        }
    };
    let (mut time, mut key) = (Best::default(), Best::default());
    let (mut status, mut bytes) = (Best::default(), Best::default());
    let mut fields = Fields::of(line).ok_or(SkipReason::Malformed)?;
    let path = match &parser.key {
        CallerKey::Json(field) => field.split_once('.'),
        _ => None,
    };
    let mut inner = None;
    while let Some((name, value)) = fields.next().ok_or(SkipReason::Malformed)? {
        time.see(&TIMES, name, value);
        key.see(names, name, value);
        if let Some((_, rest)) = path.filter(|(first, _)| first.as_bytes() == name) {
            inner = within(value, rest);
        }
        status.see(&STATUSES, name, value);
        bytes.see(&SIZES, name, value);
    }
    let at_ns = time.instant(&mut parser.dates)?;
    let key = key.value.or(inner).map(Value::written).ok_or(SkipReason::NoKey)?;
    let is_request = matches!(parser.key, CallerKey::Path(_)) && !key.starts_with(b"/");
    // The field may hold "GET /path HTTP/1.1".
    let path = key.split(|byte| *byte == b' ').nth(1).filter(|_| is_request);
    let key = path.unwrap_or(key);
    if key.is_empty() || key == b"null" {
        return Err(SkipReason::NoKey);
    }
    Ok(Entry {
        at_ns,
        key,
        status: status.value.and_then(|value| super::status(value.written())),
        bytes: bytes.value.and_then(|value| whole_number(value.written())).unwrap_or(0),
    })
}

/// Parses the instant of a line.
pub(super) fn instant(dates: &mut Dates, line: &[u8]) -> Result<u64, SkipReason> {
    let mut time = Best::default();
    let mut fields = Fields::of(line).ok_or(SkipReason::Malformed)?;
    while let Some((name, value)) = fields.next().ok_or(SkipReason::Malformed)? {
        time.see(&TIMES, name, value);
    }
    time.instant(dates)
}

/// Returns the field at a dotted path within an object. The stack does not grow with the path.
fn within<'a>(object: Value<'a>, path: &str) -> Option<Value<'a>> {
    let mut value = object;
    for segment in path.split('.') {
        let mut fields = Fields::of(value.object()?)?;
        let mut found = None;
        while let Some((name, value)) = fields.next()? {
            if name == segment.as_bytes() {
                found = Some(value);
            }
        }
        value = found?;
    }
    Some(value)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    /// A string, without its quotes.
    Text(&'a [u8]),
    /// Any other value.
    Plain(&'a [u8]),
}

impl<'a> Value<'a> {
    fn object(self) -> Option<&'a [u8]> {
        match self {
            Self::Plain(text) => text.starts_with(b"{").then_some(text),
            Self::Text(_) => None,
        }
    }

    const fn written(self) -> &'a [u8] {
        match self {
            Self::Text(text) | Self::Plain(text) => text,
        }
    }
}

/// The value under the name that comes first in a list.
#[derive(Default)]
struct Best<'a> {
    rank: Option<usize>,
    value: Option<Value<'a>>,
}

impl<'a> Best<'a> {
    fn see(&mut self, names: &[&[u8]], name: &[u8], value: Value<'a>) {
        let Some(rank) = names.iter().position(|known| *known == name) else { return };
        if self.rank.is_none_or(|best| rank <= best) {
            (self.rank, self.value) = (Some(rank), Some(value));
        }
    }

    /// Parses the value as an instant.
    fn instant(&self, dates: &mut Dates) -> Result<u64, SkipReason> {
        let at_ns = self.value.and_then(|value| match value {
            Value::Text(text) => dates.any(text),
            Value::Plain(text) => epoch(text),
        });
        at_ns.ok_or(SkipReason::NoTime)
    }
}

/// An iterator over the fields of an object. A step returns `None` if the text is not JSON.
struct Fields<'a> {
    rest: &'a [u8],
    is_first: bool,
}

impl<'a> Fields<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        Some(Self { rest: line.trim_ascii().strip_prefix(b"{")?, is_first: true })
    }

    #[expect(clippy::option_option, reason = "no JSON, the end, or a field")]
    fn next(&mut self) -> Option<Option<(&'a [u8], Value<'a>)>> {
        self.rest = self.rest.trim_ascii_start();
        if let Some(rest) = self.rest.strip_prefix(b"}") {
            return rest.is_empty().then_some(None);
        }
        if !std::mem::take(&mut self.is_first) {
            self.rest = self.rest.strip_prefix(b",")?.trim_ascii_start();
        }
        let name = self.text()?;
        self.rest = self.rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let value = match self.rest.first()? {
            b'"' => Value::Text(self.text()?),
            b'{' | b'[' => Value::Plain(self.nested()?),
            _ => Value::Plain(self.plain()?),
        };
        Some(Some((name, value)))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let inner = self.rest.strip_prefix(b"\"")?;
        let mut at = 0_usize;
        loop {
            let found = memchr2(b'"', b'\\', inner.get(at..)?)?.saturating_add(at);
            if inner.get(found) == Some(&b'"') {
                self.rest = inner.get(found.saturating_add(1)..)?;
                return inner.get(..found);
            }
            at = found.saturating_add(2);
        }
    }

    /// Skips an object or an array; the stack does not grow with its depth.
    fn nested(&mut self) -> Option<&'a [u8]> {
        let whole = self.rest;
        let mut depth = 0_usize;
        loop {
            match self.rest.first()? {
                b'"' => {
                    self.text()?;
                    continue;
                }
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.rest = self.rest.get(1..)?;
            if depth == 0 {
                return whole.get(..whole.len().saturating_sub(self.rest.len()));
            }
        }
    }

    fn plain(&mut self) -> Option<&'a [u8]> {
        let ends = |byte: &u8| matches!(byte, b',' | b'}') || byte.is_ascii_whitespace();
        let (word, rest) = self.rest.split_at(self.rest.iter().position(ends)?);
        let is_word =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        self.rest = rest;
        (!word.is_empty() && word.iter().all(is_word)).then_some(word)
    }
}
