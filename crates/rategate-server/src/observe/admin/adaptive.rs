//! Adaptive limits in the answers of the admin API.

use serde::Serialize;

use super::super::adaptive_series::AdaptiveSeries;
use super::super::summary;
use crate::engine::AdaptiveStatus;

/// An adaptive limit now.
#[derive(Debug, Serialize)]
pub(super) struct Adaptive {
    floor: u32,
    ceiling: u32,
    limit: u64,
    in_flight: u64,
    /// The latency without a queue, if the method knows one.
    base_ns: Option<u64>,
    last_change: Option<LastChange>,
}

#[derive(Debug, Serialize)]
struct LastChange {
    reason: &'static str,
    from: u32,
    to: u32,
    ago_ms: u64,
    sentence: String,
}

impl Adaptive {
    pub(super) fn of(now: &AdaptiveStatus) -> Self {
        let bounds = now.adaptation.bounds();
        let last_change = now.last.map(|(change, ago_ns)| LastChange {
            reason: change.reason.name(),
            from: change.from,
            to: change.to,
            ago_ms: ago_ns.div_ceil(1_000_000),
            sentence: summary::of_change((change, ago_ns)),
        });
        Self {
            floor: bounds.floor(),
            ceiling: bounds.ceiling(),
            limit: now.limit,
            in_flight: now.in_flight,
            base_ns: now.base_ns,
            last_change,
        }
    }
}

/// An adaptive limit over a quarter of an hour, second by second, the oldest first.
#[derive(Debug, Default, Serialize)]
pub(super) struct AdaptiveCurve {
    at_s: Vec<u64>,
    limit_permits: Vec<u64>,
    in_flight_permits: Vec<u64>,
    /// The mean latencies of what was served in each second.
    latency_us: Vec<Option<u64>>,
    /// The reasons of the last change in each second.
    reasons: Vec<Option<&'static str>>,
}

impl AdaptiveCurve {
    /// Returns the curve of the newest `max` seconds.
    pub(super) fn of(series: &AdaptiveSeries, max: usize) -> Self {
        let mut curve = Self::default();
        for second in series.newest_of(max) {
            curve.at_s.push(second.second);
            curve.limit_permits.push(second.limit);
            curve.in_flight_permits.push(second.in_flight);
            curve.latency_us.push(second.latency_us);
            curve.reasons.push(second.reason);
        }
        curve
    }
}
