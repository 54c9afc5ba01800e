//! The JSON reply to `POST /v1/check`.

use std::num::NonZeroU64;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use rategate::charge::Settled;
use serde::Serialize;
use smallvec::SmallVec;

use super::decide::{Outcome, Reservation};
use crate::config;
use crate::engine::{ItemResult, Verdict};
use crate::units::whole_ms;

/// The whole reply.
#[derive(Debug, Serialize)]
struct Answered<'a> {
    allowed: bool,
    /// Absent if the request concerned no lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseField>,
    /// Absent if the request has no id.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<bool>,
    /// Absent if the request concerned no reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<AnsweredReservation>,
    items: &'a [AnsweredItem<'a>],
}

/// The lease of a reply; null if there is none.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct LeaseField(Option<AnsweredLease>);

/// A lease in force.
#[derive(Debug, Serialize)]
struct AnsweredLease {
    name: String,
    /// Rounded down, so that a client that follows it never holds a lease for too long.
    ends_after_ms: u64,
    ends_after_ns: u64,
}

/// The reservation of a reply.
#[derive(Debug, Serialize)]
struct AnsweredReservation {
    id: String,
    /// Rounded down, so that a client that follows it commits in time.
    ends_after_ms: Option<u64>,
    ends_after_ns: Option<u64>,
}

/// The result of one item.
#[derive(Debug, Serialize)]
struct AnsweredItem<'a> {
    rule: Option<&'a str>,
    verdict: &'static str,
    allowed: bool,
    limit: Option<u64>,
    remaining: Option<u64>,
    retry_after_ms: Option<u64>,
    retry_after_ns: Option<u64>,
    reset_after_ms: Option<u64>,
    reset_after_ns: Option<u64>,
    /// Only for a calendar.
    #[serde(skip_serializing_if = "Option::is_none")]
    resets_at: Option<String>,
    shadow: bool,
    /// Absent if the limit is not exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    debt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charged: Option<u64>,
    /// Absent unless the state of the limit could not count all that was used.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    saturated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    refunded: Option<u64>,
    /// The name of the limit, where its rule has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    dimension: Option<&'a str>,
    /// Only for an item with `usage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    /// Only in the reply to a reservation that lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<u64>,
    /// All limits that decided the item, if it was more than one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    limits: Vec<Self>,
}

/// Returns the reply, at `now_ns` since 1970.
pub(super) fn json(outcome: &Outcome, now_ns: u64) -> Response {
    let results = outcome.answer.results.iter();
    let items: SmallVec<[AnsweredItem<'_>; 1]> =
        results.map(|result| AnsweredItem::of(result, outcome.reservation, now_ns)).collect();
    let Outcome { answer, lease, repeated, reservation } = outcome;
    let lease = lease.map(|name| {
        LeaseField(answer.held_ns().map(|ns| AnsweredLease {
            name: name.to_string(),
            ends_after_ms: ns / 1_000_000,
            ends_after_ns: ns,
        }))
    });
    let reservation = reservation.map(|Reservation { id, ends_after_ns, .. }| {
        let ends_after_ns = ends_after_ns.map(NonZeroU64::get);
        AnsweredReservation {
            id: id.to_string(),
            ends_after_ms: ends_after_ns.map(|ns| ns / 1_000_000),
            ends_after_ns,
        }
    });
    let (allowed, repeated) = (answer.allowed, *repeated);
    Json(Answered { allowed, lease, repeated, reservation, items: &items }).into_response()
}

impl<'a> AnsweredItem<'a> {
    /// Returns the form of a result, of an operation on this reservation if it is one.
    fn of(result: &'a ItemResult, of: Option<Reservation>, now_ns: u64) -> Self {
        let retry_after_ns = retry_after_ns(result);
        let reset_after_ns = result.reset_after();
        let is_counted =
            !matches!(result.verdict, Verdict::Unmatched | Verdict::Unlimited | Verdict::Replaced);
        Self {
            rule: result.rule.as_ref().map(|rule| &*rule.name),
            verdict: result.word(),
            allowed: of.map_or(!result.verdict.is_over(), |reservation| {
                reservation.allows(result.verdict)
            }),
            limit: is_counted.then_some(result.limit),
            remaining: result.remaining.filter(|_| is_counted),
            retry_after_ms: retry_after_ns.map(whole_ms),
            retry_after_ns,
            reset_after_ms: reset_after_ns.map(whole_ms),
            reset_after_ns,
            resets_at: result
                .calendar(now_ns)
                .map(|(calendar, window)| config::local_time(&calendar, window.end_ns)),
            shadow: matches!(result.verdict, Verdict::Denied { enforced: false, .. })
                && !result.is_soft(),
            debt: Some(result.debt).filter(|&debt| debt > 0),
            charged: match result.verdict {
                Verdict::Charged(permits)
                | Verdict::Late(permits)
                | Verdict::Committed(Settled::Owed { permits, .. }) => Some(permits),
                _ => None,
            },
            saturated: result.is_saturated(),
            refunded: match result.verdict {
                Verdict::Refunded(permits)
                | Verdict::Cancelled(permits)
                | Verdict::Committed(Settled::Back { permits }) => Some(permits),
                _ => None,
            },
            dimension: result.rule.as_ref().and_then(|rule| Some(&*rule.dimension.as_ref()?.name)),
            cost: result.cost(),
            held: result.held(),
            limits: result.parts().iter().map(|part| Self::of(part, of, now_ns)).collect(),
        }
    }
}

/// Returns the time until the same call passes: 0 if it does now, `None` if waiting cannot help or
/// the time is unknown.
pub(super) const fn retry_after_ns(result: &ItemResult) -> Option<u64> {
    match result.verdict {
        Verdict::Denied { .. } | Verdict::Unavailable { admitted: false, .. } => {
            match result.verdict.retry_after_ns() {
                Some(wait_ns) => Some(wait_ns.get()),
                None => None,
            }
        }
        _ => Some(0),
    }
}
