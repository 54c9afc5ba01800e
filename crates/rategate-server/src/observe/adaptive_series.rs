//! The limit of an adaptive rule over a quarter of an hour, second by second.

use std::collections::VecDeque;

use super::series::SECONDS;
use crate::engine::{AdaptiveStatus, AdaptiveTally};

/// An adaptive limit at the end of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdaptiveSecond {
    /// The Unix second.
    pub(super) second: u64,
    pub(super) limit: u64,
    pub(super) in_flight: u64,
    /// The mean latency of what was served in it, in microseconds.
    pub(super) latency_us: Option<u64>,
    /// The reason of the last change in it.
    pub(super) reason: Option<&'static str>,
}

/// The newest seconds of an adaptive limit.
#[derive(Debug, Default)]
pub(super) struct AdaptiveSeries {
    seconds: VecDeque<AdaptiveSecond>,
    before: AdaptiveTally,
}

impl AdaptiveSeries {
    /// Records a second. A repeated call within it changes nothing.
    pub(super) fn tick(&mut self, second: u64, tally: AdaptiveTally, now: &AdaptiveStatus) {
        if self.seconds.back().is_some_and(|last| last.second >= second) {
            return;
        }
        if self.seconds.len() >= SECONDS {
            self.seconds.pop_front();
        }
        let has_changed = tally.changes().ne(self.before.changes());
        let reason = now.last.filter(|_| has_changed).map(|(change, _)| change.reason.name());
        let latency_us = tally.mean_latency_ns(&self.before).map(|ns| ns / 1_000);
        let (limit, in_flight) = (now.limit, now.in_flight);
        self.seconds.push_back(AdaptiveSecond { second, limit, in_flight, latency_us, reason });
        self.before = tally;
    }

    /// Returns the newest `max` seconds, the oldest first.
    pub(super) fn newest_of(&self, max: usize) -> impl Iterator<Item = &AdaptiveSecond> {
        self.seconds.iter().skip(self.seconds.len().saturating_sub(max))
    }
}
