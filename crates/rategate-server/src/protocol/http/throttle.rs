//! `POST /throttle`, compatible with throttlecrab.

use bytes::Bytes;
use rategate::Clock;
use serde::{Deserialize, Serialize};

use super::answered::written;
use super::invalid::Invalid;
use super::json::{Value, Whole};
use super::problem::Refused;
use super::surrogates;
use crate::engine::{Engine, Inline, ItemResult, Verb, Verdict};
use crate::net::RefusalReason;
use crate::protocol::object;
use crate::units::seconds;

/// The request. An unknown member is refused: a mistyped quantity would count as one permit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Throttle<'a> {
    #[serde(borrow)]
    key: Value<'a>,
    max_burst: Whole,
    count_per_period: Whole,
    period: Whole,
    quantity: Option<Whole>,
}

/// The reply. Times are in seconds.
#[derive(Debug, Serialize)]
struct Reply {
    allowed: bool,
    limit: u64,
    remaining: u64,
    reset_after: u64,
    /// -1 if waiting cannot help.
    retry_after: i64,
}

/// Decides a request and returns the JSON reply, with the reason for which the call counts as
/// refused, if it does.
pub(super) fn throttle(
    engine: &Engine<impl Clock + Clone + 'static>,
    body: &[u8],
) -> Result<(Bytes, Option<RefusalReason>), Refused> {
    let mut mended = Vec::new();
    let request = surrogates::read(body, &mut mended, |body| {
        object::read::<Throttle<'_>>(body)
            .map_err(|fault| Invalid::json::<Throttle<'_>>(body, &fault))
    })?;
    let numbers = [
        ("/max_burst", request.max_burst),
        ("/count_per_period", request.count_per_period),
        ("/period", request.period),
    ];
    if let Some((pointer, _)) = numbers.into_iter().find(|(_, number)| number.0 == 0) {
        return Err(Invalid::at(pointer, "0; it has to be at least 1").into());
    }
    let period_ns = request.period.0.checked_mul(1_000_000_000);
    let period_ns = period_ns
        .ok_or_else(|| Invalid::at("/period", "a period can have at most 18446744073 seconds"))?;
    let limit =
        Inline { capacity: request.max_burst.0, count: request.count_per_period.0, period_ns };
    let quantity = request.quantity.map_or(1, |quantity| quantity.0);
    match engine.inline(limit, &request.key.0, Verb::Take, quantity) {
        Ok(result) => Ok((json(&result), None)),
        Err(fault) if fault.is_out_of_capacity() => {
            let result = ItemResult { limit: limit.capacity, ..ItemResult::WITHOUT_CAPACITY };
            Ok((json(&result), Some(RefusalReason::NoCapacity)))
        }
        Err(fault) => Err(Refused::EngineError(fault, String::new())),
    }
}

fn json(result: &ItemResult) -> Bytes {
    let (allowed, retry_after) = match result.verdict {
        Verdict::Denied { retry_after_ns, .. } => {
            (false, retry_after_ns.map(|ns| seconds(ns.get())))
        }
        _ => (true, Some(0)),
    };
    written(&Reply {
        allowed,
        limit: result.limit,
        remaining: result.remaining.unwrap_or(0),
        reset_after: seconds(result.reset_after_ns),
        retry_after: retry_after.and_then(|seconds| i64::try_from(seconds).ok()).unwrap_or(-1),
    })
}
