//! `RateLimitResponse`: what an answer of the engine looks like to Envoy.

use bytes::{BufMut, BytesMut};

use super::ask::number_of;
use super::proto::{bytes_length, integer_length, put_bytes, put_head, put_integer};
use crate::engine::{Answer, Part, Verdict};
use crate::rule::Unit;

/// Whether a call may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It may.
    Ok,
    /// It is over a limit.
    OverLimit,
}

/// What became of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Whether it is over its limit.
    pub code: Code,
    /// The limit: what it is called (empty for the caller's own limit, and for one that was given no name), so many permits in
    /// each unit.
    pub limit: Option<(&'a str, u32, Unit)>,
    /// How many permits are left.
    pub remaining: u32,
    /// In how many seconds nothing of the limit is in use any more; none if that never comes by itself. Rounded up: Envoy passes whole
    /// seconds on to clients, and none shall come too early.
    pub reset_s: Option<u64>,
}

/// What answers tell besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether `response_headers_to_add` names the limit that is nearest to its end, as `RateLimit-Limit`, `RateLimit-Remaining`
    /// and `RateLimit-Reset`. Off by default: Envoy itself can add its own.
    pub headers: bool,
    /// Whether every answer lets the call pass, and only the descriptors say which are over. Off by default.
    pub shadow: bool,
}

impl Options {
    /// The code of a whole answer.
    #[must_use]
    pub const fn code(self, answer: &Answer) -> Code {
        if self.shadow { Code::Ok } else { Code::of(answer) }
    }
}

const NS_PER_S: u64 = 1_000_000_000;

impl Code {
    /// Its number in the protocol.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Ok => 1,
            Self::OverLimit => 2,
        }
    }

    /// Its name in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }

    /// Of a whole answer.
    #[must_use]
    pub const fn of(answer: &Answer) -> Self {
        if answer.allowed { Self::Ok } else { Self::OverLimit }
    }
}

impl<'a> Line<'a> {
    /// Of an item.
    #[must_use]
    pub fn of(part: &'a Part) -> Self {
        let code = if part.verdict.is_over() { Code::OverLimit } else { Code::Ok };
        let uncounted = |remaining| Self { code, limit: None, remaining, reset_s: None };
        let remaining = match (part.verdict, part.remaining) {
            (Verdict::Unlimited, _) => return uncounted(u32::MAX),
            // The store is to be asked first: what resets is when that is.
            (Verdict::Gone { admitted: false, retry_after_ns: Some(wait_ns) }, _) => {
                return Self { reset_s: Some(wait_ns.get().div_ceil(NS_PER_S)), ..uncounted(0) };
            }
            // Nobody knows how many are left: Envoy would tell clients that none are.
            (Verdict::Unmatched | Verdict::Replaced, _) | (_, None) => return uncounted(0),
            (_, Some(remaining)) => remaining,
        };
        let name = part.rule.as_ref().map_or("", |rule| &*rule.envoy_name);
        Self {
            code,
            limit: part.shown.map(|shown| (name, narrow(shown.permits), shown.unit)),
            remaining: narrow(remaining),
            reset_s: part.reset_after().map(|ns| ns.div_ceil(NS_PER_S)),
        }
    }

    fn length(&self) -> usize {
        let mut length = integer_length(u64::from(self.code.number()))
            .saturating_add(integer_length(u64::from(self.remaining)));
        if self.limit.is_some() {
            length = length.saturating_add(bytes_length(self.limit_length()));
        }
        if let Some(reset_s) = self.reset_s {
            length = length.saturating_add(bytes_length(integer_length(reset_s)));
        }
        length
    }

    fn limit_length(&self) -> usize {
        let Some((name, permits, _)) = self.limit else { return 0 };
        let name = if name.is_empty() { 0 } else { bytes_length(name.len()) };
        // Each unit's number takes one byte.
        name.saturating_add(integer_length(u64::from(permits))).saturating_add(2)
    }

    fn write(&self, out: &mut BytesMut) {
        put_integer(out, 1, u64::from(self.code.number()));
        if let Some((name, permits, unit)) = self.limit {
            put_head(out, 2, self.limit_length());
            put_integer(out, 1, u64::from(permits));
            put_integer(out, 2, u64::from(number_of(unit)));
            if !name.is_empty() {
                put_bytes(out, 3, name.as_bytes());
            }
        }
        put_integer(out, 3, u64::from(self.remaining));
        if let Some(reset_s) = self.reset_s {
            put_head(out, 4, integer_length(reset_s));
            put_integer(out, 1, reset_s);
        }
    }
}

/// Writes the message.
pub(crate) fn write(answer: &Answer, options: Options, out: &mut BytesMut) {
    put_integer(out, 1, u64::from(options.code(answer).number()));
    for part in &answer.parts {
        let line = Line::of(part);
        put_head(out, 2, line.length());
        line.write(out);
    }
    if options.headers {
        for (name, value) in headers(answer) {
            let value = value.to_string();
            put_head(out, 3, bytes_length(name.len()).saturating_add(bytes_length(value.len())));
            put_bytes(out, 1, name.as_bytes());
            put_bytes(out, 2, value.as_bytes());
        }
    }
}

/// Returns the names and values that tell a client of the limit that is over, of several the last, or else of the one that is nearest to its
/// end. Shadow rules are left out.
pub(super) fn headers(answer: &Answer) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let parts = answer.parts.iter().filter(|part| !part.is_shadow());
    let counted = parts.filter_map(|part| {
        let line = Line::of(part);
        let is_quota = part.rule.as_ref().is_some_and(|rule| rule.quota);
        let permits = line.limit?.1;
        Some((line, permits, line.code == Code::OverLimit && !is_quota))
    });
    let over = counted.clone().rfind(|(.., is_over)| *is_over);
    let nearest = over.or_else(|| counted.min_by_key(|(line, ..)| line.remaining));
    let fields = nearest.map(|(line, permits, _)| {
        let limit = ("RateLimit-Limit", u64::from(permits));
        let remaining = ("RateLimit-Remaining", u64::from(line.remaining));
        [Some(limit), Some(remaining), line.reset_s.map(|reset_s| ("RateLimit-Reset", reset_s))]
    });
    fields.into_iter().flatten().flatten()
}

/// Writes a message with the prefix that it has in gRPC.
pub(crate) fn write_framed(answer: &Answer, options: Options, out: &mut BytesMut) {
    let start = out.len();
    out.put_slice(&[0; 5]);
    write(answer, options, out);
    let length = out.len().saturating_sub(start).saturating_sub(5);
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    if let Some(prefix) = out.get_mut(start.saturating_add(1)..start.saturating_add(5)) {
        prefix.copy_from_slice(&length);
    }
}

fn narrow(many: u64) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}
