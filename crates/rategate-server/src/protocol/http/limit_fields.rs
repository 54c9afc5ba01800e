//! Header fields with a client's status, and the reply to a denied request.

use std::time::Duration;

use axum::response::Response;
use http::{HeaderMap, StatusCode};
use rategate_tower::headers::{Dialect, Headers, QuotaPolicy, QuotaStatus, write_retry_after};
use rategate_tower::problem::{Problem, QUOTA_EXCEEDED};
use smallvec::SmallVec;

use super::answered::retry_after_ns;
use super::refused::{plain, response};
use crate::engine::{Answer, Inline, ItemResult, Verdict};
use crate::units::whole_ms;

/// The name of limits without a name of their own, or with a name that a field cannot hold.
const NAMELESS: &str = "limit";

/// Writes the fields of all limits of a result, at `now_ns` since 1970. Shadow rules are not
/// disclosed to clients. Of an item of several limits they show the one that the item names.
pub(super) fn write(
    now_ns: u64,
    dialects: &[Dialect],
    answer: &Answer,
    inline: impl Fn(usize) -> Option<Inline>,
    headers: &mut HeaderMap,
) {
    if dialects.is_empty() {
        return;
    }
    for (index, result) in answer.results.iter().enumerate() {
        if !is_reported(result) {
            continue;
        }
        let quota = quota(result, inline(index), now_ns);
        let Some((quota, remaining)) = quota.zip(result.remaining) else { continue };
        let Some(policy) = policy(result, quota) else { continue };
        let more_after_ns = match retry_after_ns(result) {
            // After a grant, all of it can be taken at the reset, as after a request for more than
            // there can ever be.
            Some(0) | None => result.reset_after(),
            retry_after_ns => retry_after_ns,
        };
        let more_after = more_after_ns.map(Duration::from_nanos);
        let quota_status = QuotaStatus { remaining, more_after };
        for &dialect in dialects {
            Headers::only(policy.clone(), dialect).write(quota_status, headers);
        }
    }
}

/// Builds the reply to a denied request, with the given status.
pub(super) fn denied(answer: &Answer, status: StatusCode) -> Response {
    let over = || answer.results.iter().filter(|result| result.verdict.is_over());
    let waits = over().map(retry_after_ns);
    let wait_ns = waits.reduce(|first, second| Some(first?.max(second?))).flatten();
    let names = over().filter_map(|result| result.rule.as_ref().map(|rule| &*rule.name));
    let names: SmallVec<[&str; 2]> = names.collect();
    let is_unavailable = over().any(|result| matches!(result.verdict, Verdict::Unavailable { .. }));
    let detail = match wait_ns {
        _ if is_unavailable => "The store is unavailable.",
        Some(_) => "The limit is reached.",
        None if answer.results.is_empty() => {
            "The key table is full: one more key cannot be counted."
        }
        None => "The request exceeds what can ever be allowed at once.",
    };
    let numbers = wait_ns
        .map(|wait_ns| [("retry-after-ms", whole_ms(wait_ns).max(1)), ("retry-after-ns", wait_ns)]);
    let unavailable = Problem {
        code: Some(if is_unavailable { "store_unavailable" } else { "over_limit" }),
        numbers: numbers.as_ref().map_or(&[], <[_; 2]>::as_slice),
        violated: &names,
        ..plain(status, detail)
    };
    let over = Problem { kind: QUOTA_EXCEEDED, title: "Quota Exceeded", ..unavailable };
    let mut response = response(if is_unavailable { &unavailable } else { &over });
    if let Some(wait_ns) = wait_ns {
        write_retry_after(Duration::from_nanos(wait_ns), response.headers_mut());
    }
    response
}

fn is_reported(result: &ItemResult) -> bool {
    let is_counted = matches!(result.verdict, Verdict::Granted | Verdict::Denied { .. });
    is_counted && !result.is_shadow()
}

/// Returns the permits and the window in nanoseconds that a client sees of a limit; no window for
/// permits in flight.
///
/// They are the limit as written; for a calendar in the true length of its window. If a bucket has
/// a larger burst, they are that burst in the time after which the whole burst is available again.
fn quota(result: &ItemResult, inline: Option<Inline>, now_ns: u64) -> Option<(u64, Option<u64>)> {
    let rule = result.rule.as_ref();
    if rule.is_some_and(|rule| rule.limit.counts_in_flight()) {
        return Some((result.limit, None));
    }
    let (permits, window_ns) = match (result.display_limit, inline) {
        (Some(display_limit), _) => {
            let seconds = display_limit.multiplier.saturating_mul(display_limit.unit.seconds());
            let window_ns = match result.calendar(now_ns) {
                Some((_, window)) => window.length_ns(),
                None => seconds.saturating_mul(1_000_000_000),
            };
            (display_limit.permits, window_ns)
        }
        (None, Some(inline)) => (inline.count, inline.period_ns),
        (None, None) => return None,
    };
    if result.limit > permits {
        let scaled = u128::from(window_ns).saturating_mul(result.limit.into());
        let scaled = scaled.div_ceil(u128::from(permits).max(1));
        return Some((result.limit, Some(u64::try_from(scaled).unwrap_or(u64::MAX))));
    }
    Some((permits, Some(window_ns)))
}

fn policy(result: &ItemResult, (quota, window_ns): (u64, Option<u64>)) -> Option<QuotaPolicy> {
    let name = result.rule.as_ref().map_or(NAMELESS, |rule| &*rule.name);
    let of = |name: &str| match window_ns {
        Some(ns) => QuotaPolicy::new(name, quota, Duration::from_nanos(ns.max(1))),
        None => QuotaPolicy::in_flight(name, quota),
    };
    of(name).or_else(|_| of(NAMELESS)).ok()
}
