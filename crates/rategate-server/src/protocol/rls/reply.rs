//! `RateLimitResponse`: a reply of the engine in Envoy's form.

use bytes::{BufMut, BytesMut};

use super::ask::number_of;
use super::proto::{bytes_length, integer_length, put_bytes, put_head, put_integer};
use crate::engine::{Answer, ItemResult, Verdict};
use crate::rule::Unit;

/// The code of a reply or of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The call may proceed.
    Ok,
    /// The call is over a limit.
    OverLimit,
}

/// The status of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorStatus<'a> {
    /// `OverLimit` if the descriptor is over its limit.
    pub code: Code,
    /// The limit: its name, its permits per unit, and the unit. The name is empty for a limit that
    /// the caller supplies, and for a limit without a name.
    pub limit: Option<(&'a str, u32, Unit)>,
    /// The number of permits left.
    pub remaining: u32,
    /// The seconds until none of the limit is in use, or `None` if that never happens by itself.
    ///
    /// Rounded up: Envoy passes whole seconds on to clients, and none should return too early.
    pub reset_s: Option<u64>,
}

/// Options of the replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `true` if `response_headers_to_add` names the limit that is closest to exhaustion, as
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`. Off by default: Envoy
    /// itself can add its own.
    pub headers: bool,
    /// `true` if every reply lets the call pass, and only the descriptors state which are over.
    /// Off by default.
    pub shadow: bool,
}

impl Options {
    /// Returns the code of a whole reply.
    #[must_use]
    pub const fn code(self, answer: &Answer) -> Code {
        if self.shadow { Code::Ok } else { Code::of(answer) }
    }
}

const NS_PER_S: u64 = 1_000_000_000;

impl Code {
    /// Returns the code's number in the protocol.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Ok => 1,
            Self::OverLimit => 2,
        }
    }

    /// Returns the code's name in the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }

    /// Returns the code of a whole reply, without options.
    #[must_use]
    pub const fn of(answer: &Answer) -> Self {
        if answer.allowed { Self::Ok } else { Self::OverLimit }
    }
}

impl<'a> DescriptorStatus<'a> {
    /// Returns the status of one descriptor's result.
    #[must_use]
    pub fn of(result: &'a ItemResult) -> Self {
        let code = if result.verdict.is_over() { Code::OverLimit } else { Code::Ok };
        let uncounted = |remaining| Self { code, limit: None, remaining, reset_s: None };
        let remaining = match (result.verdict, result.remaining) {
            (Verdict::Unlimited, _) => return uncounted(u32::MAX),
            // The reset is the time after which the store may be tried again.
            (Verdict::Unavailable { admitted: false, retry_after_ns: Some(wait_ns) }, _) => {
                return Self { reset_s: Some(wait_ns.get().div_ceil(NS_PER_S)), ..uncounted(0) };
            }
            // The number left is unknown: Envoy would report 0 to clients.
            (Verdict::Unmatched | Verdict::Replaced, _) | (_, None) => return uncounted(0),
            (_, Some(remaining)) => remaining,
        };
        let name = result.rule.as_ref().map_or("", |rule| &*rule.envoy_name);
        Self {
            code,
            limit: result.display_limit.map(|display_limit| {
                (name, saturating_u32(display_limit.permits), display_limit.unit)
            }),
            remaining: saturating_u32(remaining),
            reset_s: result.reset_after().map(|ns| ns.div_ceil(NS_PER_S)),
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
        // The number of each unit takes one byte.
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
    for result in &answer.results {
        let status = DescriptorStatus::of(result);
        put_head(out, 2, status.length());
        status.write(out);
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

/// Returns the names and values of headers that describe one limit to the client.
///
/// It is the last limit that is over, or else the one with the fewest permits left. Shadow rules
/// are left out.
pub(super) fn headers(answer: &Answer) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let results = answer.results.iter().filter(|result| !result.is_shadow());
    let counted = results.filter_map(|result| {
        let status = DescriptorStatus::of(result);
        let is_quota = result.rule.as_ref().is_some_and(|rule| rule.quota);
        let permits = status.limit?.1;
        Some((status, permits, status.code == Code::OverLimit && !is_quota))
    });
    let over = counted.clone().rfind(|(.., is_over)| *is_over);
    let nearest = over.or_else(|| counted.min_by_key(|(status, ..)| status.remaining));
    let fields = nearest.map(|(status, permits, _)| {
        let limit = ("RateLimit-Limit", u64::from(permits));
        let remaining = ("RateLimit-Remaining", u64::from(status.remaining));
        [Some(limit), Some(remaining), status.reset_s.map(|reset_s| ("RateLimit-Reset", reset_s))]
    });
    fields.into_iter().flatten().flatten()
}

/// Writes a message with its gRPC prefix.
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

fn saturating_u32(many: u64) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}
