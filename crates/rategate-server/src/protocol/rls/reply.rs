//! Replies of the engine in Envoy's form.

use bytes::BytesMut;
use rategate_protocol::grpc;
use rategate_protocol::rls::{self, Code, DescriptorStatus};

use crate::engine::{Answer, ItemResult, Verdict};

const NS_PER_S: u64 = 1_000_000_000;

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
        if self.shadow || answer.allowed { Code::Ok } else { Code::OverLimit }
    }
}

/// Returns the status of one descriptor's result.
#[must_use]
pub fn descriptor_status(result: &ItemResult) -> DescriptorStatus<'_> {
    let code = if result.verdict.is_over() { Code::OverLimit } else { Code::Ok };
    let uncounted = |remaining| DescriptorStatus { code, limit: None, remaining, reset_s: None };
    let remaining = match (result.verdict, result.remaining) {
        (Verdict::Unlimited, _) => return uncounted(u32::MAX),
        // The reset is the time after which the store may be tried again.
        (Verdict::Unavailable { admitted: false, retry_after_ns: Some(wait_ns) }, _) => {
            return DescriptorStatus {
                reset_s: Some(wait_ns.get().div_ceil(NS_PER_S)),
                ..uncounted(0)
            };
        }
        // The number left is unknown: Envoy would report 0 to clients.
        (Verdict::Unmatched | Verdict::Replaced, _) | (_, None) => return uncounted(0),
        (_, Some(remaining)) => remaining,
    };
    let name = result.rule.as_ref().map_or("", |rule| &*rule.envoy_name);
    DescriptorStatus {
        code,
        limit: result
            .display_limit
            .map(|display_limit| (name, saturating_u32(display_limit.permits), display_limit.unit)),
        remaining: saturating_u32(remaining),
        reset_s: result.reset_after().map(|ns| ns.div_ceil(NS_PER_S)),
    }
}

/// Writes the message with its gRPC prefix.
pub(crate) fn write_framed(answer: &Answer, options: Options, out: &mut BytesMut) {
    let statuses = answer.results.iter().map(descriptor_status);
    let headers = options.headers.then(|| headers(answer)).into_iter().flatten();
    let code = options.code(answer);
    grpc::prefixed(out, |out| rls::write(out, code, statuses, headers, None));
}

/// Returns the names and values of headers that describe one limit to the client.
///
/// It is the last limit that is over, or else the one with the fewest permits left. Shadow rules
/// are left out.
pub(super) fn headers(answer: &Answer) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    let results = answer.results.iter().filter(|result| !result.is_shadow());
    let counted = results.filter_map(|result| {
        let status = descriptor_status(result);
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

fn saturating_u32(many: u64) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}
