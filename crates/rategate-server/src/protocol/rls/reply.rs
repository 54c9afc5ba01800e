//! Replies of the engine in Envoy's form.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::BytesMut;
use rategate_protocol::rls::{self, Code, DescriptorStatus, Metadata, RlsRequest};
use rategate_protocol::{grpc, kuadrant};

use super::answer::RlsAnswer;
use super::metadata;
use crate::engine::{Answer, ItemResult, UniqueId, Verdict};
use crate::rule::Limit;

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

/// The form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Envoy's `RateLimitResponse`.
    RateLimit,
    /// Kuadrant's `ReserveResponse`, with the id of what is reserved.
    Reserved(Option<UniqueId>),
    /// Kuadrant's `CommitResponse`.
    Committed {
        /// `true` if the reservation was open.
        released: bool,
    },
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
pub(crate) fn write_framed(answer: &RlsAnswer, options: &Options, out: &mut BytesMut) {
    let RlsAnswer { answer, metadata, form, .. } = answer;
    let code = options.code(answer);
    grpc::prefixed(out, |out| match form {
        Form::RateLimit => {
            let statuses = answer.results.iter().map(descriptor_status);
            rls::write(out, code, statuses, headers(answer, options), metadata.as_ref());
        }
        Form::Reserved(id) => {
            let id = id.map(|id| id.to_string()).unwrap_or_default();
            kuadrant::write_reserved(out, code, &id);
        }
        Form::Committed { released } => kuadrant::write_committed(out, *released),
    });
}

/// Returns the names and values of headers that describe one limit to the client.
pub(super) fn headers<'a>(
    answer: &'a Answer,
    options: &'a Options,
) -> impl Iterator<Item = (&'a str, u64)> {
    let named = options.headers.as_deref();
    let nearest = named.and_then(|names| Some((names, nearest(answer, options.quota)?)));
    let fields = nearest.map(|(names, status)| {
        let permits = status.limit.map_or(0, |(_, permits, _)| permits);
        [
            Some((&*names.limit, u64::from(permits))),
            Some((&*names.remaining, u64::from(status.remaining))),
            status.reset_s.map(|reset_s| (&*names.reset, reset_s)),
        ]
    });
    fields.into_iter().flatten().flatten()
}

/// Returns the limit that clients are shown, by the rule of envoyproxy/ratelimit: the last one
/// that is over and no quota, or else the first of those with the fewest permits left. One with
/// 2^32 - 1 left or more is never shown.
fn nearest(answer: &Answer, is_quota_mode: bool) -> Option<DescriptorStatus<'_>> {
    let is_hard =
        |result: &ItemResult| !is_quota_mode && result.rule.as_ref().is_none_or(|rule| !rule.quota);
    let shown = answer.results.iter().filter(|result| is_shown(result)).filter_map(|result| {
        let status = descriptor_status(result);
        status.limit?;
        Some((status, is_hard(result)))
    });
    let is_over = |status: &DescriptorStatus<'_>| status.code == Code::OverLimit;
    let over = shown.clone().rfind(|(status, is_hard)| *is_hard && is_over(status));
    let least = || {
        let left = shown.filter(|(status, _)| status.remaining < u32::MAX);
        left.min_by_key(|(status, _)| status.remaining)
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
