//! Replies of the engine in Envoy's form.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::answer::RlsAnswer;
use super::metadata;
use super::request::RlsRequest;
use crate::engine::{Answer, ItemResult, Verdict};
use crate::messages::core::HeaderValue;
use crate::messages::rls::RateLimitResponse;
use crate::messages::rls::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::rule::{Limit, Metadata};

const NS_PER_S: u64 = 1_000_000_000;

/// Options of the replies.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Options {
    /// The names of the header fields in `response_headers_to_add` that show the limit closest to
    /// exhaustion. `None`, the default, for no such fields: Envoy itself can add its own.
    pub headers: Option<Arc<HeaderNames>>,
    /// `true` if every reply lets the call pass, and only the descriptors state which are over.
    /// Off by default.
    pub shadow: bool,
    /// `true` if every limit counts as a quota: a call is over only if all of its descriptors
    /// are. Off by default.
    pub quota: bool,
    /// `true` if replies carry dynamic metadata: the request, and the metadata of the rules that
    /// it passed. Off by default.
    pub dynamic_metadata: bool,
    /// `true` if the entries `rategate.id`, `rategate.verb` and `rategate.ttl` of descriptors state
    /// an operation. Off by default: they are entries like others.
    pub verbs: bool,
    /// The number of calls with such entries while `verbs` is off. The first one is logged.
    pub ignored_verbs: Arc<AtomicU64>,
}

/// The names of the header fields with a limit, its remaining permits, and the seconds until its
/// reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// `RateLimit-Limit` by default.
    pub limit: Box<str>,
    /// `RateLimit-Remaining` by default.
    pub remaining: Box<str>,
    /// `RateLimit-Reset` by default.
    pub reset: Box<str>,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".into(),
            remaining: "RateLimit-Remaining".into(),
            reset: "RateLimit-Reset".into(),
        }
    }
}

impl Options {
    /// Returns the metadata that states the request, if replies carry metadata.
    pub(crate) fn requested(&self, ask: &RlsRequest<'_>) -> Option<Metadata> {
        self.dynamic_metadata.then(|| metadata::of_request(ask))
    }

    /// Returns the code of a whole reply.
    #[must_use]
    pub const fn code(&self, answer: &Answer) -> Code {
        if self.shadow || answer.allowed { Code::Ok } else { Code::OverLimit }
    }
}

/// Returns the status of one descriptor's result.
///
/// Its reset is rounded up: Envoy passes whole seconds on to clients, and none should return too
/// early.
#[must_use]
pub fn descriptor_status(result: &ItemResult) -> DescriptorStatus {
    let code = if result.verdict.is_over() { Code::OverLimit } else { Code::Ok };
    let uncounted = |remaining| DescriptorStatus {
        code: code.into(),
        limit_remaining: remaining,
        ..DescriptorStatus::default()
    };
    let remaining = match (result.verdict, result.remaining) {
        (Verdict::Unlimited, _) => return uncounted(u32::MAX),
        // The reset is the time after which the store may be tried again.
        (Verdict::Unavailable { admitted: false, retry_after_ns: Some(wait_ns) }, _) => {
            let reset = Some(whole_seconds(wait_ns.get()));
            return DescriptorStatus { duration_until_reset: reset, ..uncounted(0) };
        }
        // The number left is unknown: Envoy would report 0 to clients.
        (Verdict::Unmatched | Verdict::Replaced, _) | (_, None) => return uncounted(0),
        (_, Some(remaining)) => remaining,
    };
    // The name is empty for a limit that the caller supplies, and for a limit without a name.
    let name = result.rule.as_ref().map_or("", |rule| &*rule.envoy_name);
    DescriptorStatus {
        current_limit: result.display_limit.map(|shown| RateLimit {
            name: name.to_owned(),
            requests_per_unit: saturating_u32(shown.permits),
            unit: shown.unit.number().into(),
        }),
        duration_until_reset: result.reset_after().map(whole_seconds),
        ..uncounted(saturating_u32(remaining))
    }
}

fn whole_seconds(ns: u64) -> prost_types::Duration {
    let seconds = i64::try_from(ns.div_ceil(NS_PER_S)).unwrap_or(i64::MAX);
    prost_types::Duration { seconds, nanos: 0 }
}

/// Returns the message of a reply.
pub(crate) fn response(answer: &RlsAnswer, options: &Options) -> RateLimitResponse {
    let RlsAnswer { answer, metadata, .. } = answer;
    let headers = headers(answer, options)
        .map(|(name, value)| HeaderValue { key: name.to_owned(), value: value.to_string() });
    RateLimitResponse {
        overall_code: options.code(answer).into(),
        statuses: answer.results.iter().map(descriptor_status).collect(),
        response_headers_to_add: headers.collect(),
        dynamic_metadata: metadata.as_ref().map(Into::into),
    }
}

/// Returns the names and values of headers that describe one limit to the client.
pub(super) fn headers<'a>(
    answer: &'a Answer,
    options: &'a Options,
) -> impl Iterator<Item = (&'a str, u64)> {
    let named = options.headers.as_deref();
    let nearest = named.and_then(|names| Some((names, nearest(answer, options.quota)?)));
    let fields = nearest.map(|(names, status)| {
        let permits = status.current_limit.map_or(0, |limit| limit.requests_per_unit);
        let reset = status.duration_until_reset.map(|reset| reset.seconds.unsigned_abs());
        [
            Some((&*names.limit, u64::from(permits))),
            Some((&*names.remaining, u64::from(status.limit_remaining))),
            reset.map(|reset_s| (&*names.reset, reset_s)),
        ]
    });
    fields.into_iter().flatten().flatten()
}

/// Returns the limit that clients are shown, by the rule of envoyproxy/ratelimit: the last one
/// that is over and no quota, or else the first of those with the fewest permits left. One with
/// 2^32 - 1 left or more is never shown.
fn nearest(answer: &Answer, is_quota_mode: bool) -> Option<DescriptorStatus> {
    let is_hard =
        |result: &ItemResult| !is_quota_mode && result.rule.as_ref().is_none_or(|rule| !rule.quota);
    let shown = answer.results.iter().filter(|result| is_shown(result)).filter_map(|result| {
        let status = descriptor_status(result);
        status.current_limit.as_ref()?;
        Some((status, is_hard(result)))
    });
    let is_over = |status: &DescriptorStatus| status.code() == Code::OverLimit;
    let over = shown.clone().rfind(|(status, is_hard)| *is_hard && is_over(status));
    let least = || {
        let left = shown.filter(|(status, _)| status.limit_remaining < u32::MAX);
        left.min_by_key(|(status, _)| status.limit_remaining)
    };
    over.or_else(least).map(|(status, _)| status)
}

/// Returns `true` if clients may be shown a limit. A limit in shadow is shown only if it counts
/// every hit, as in envoyproxy/ratelimit.
fn is_shown(result: &ItemResult) -> bool {
    let rule = result.rule.as_ref();
    !result.is_shadow() || rule.is_some_and(|rule| matches!(rule.limit, Limit::Counted(_)))
}

fn saturating_u32(many: u64) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}
