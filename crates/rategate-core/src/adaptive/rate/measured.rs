//! The rate at which calls end.

use super::MILLION;

/// The length of the intervals that are counted.
const INTERVAL_NS: u64 = 500_000_000;

/// An average of the rate at which permits' calls end, over the last second or so: of each half
/// second four fifths, and one fifth of what was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    /// The number of the newest half second that has been averaged.
    interval: u64,
    permits: u64,
    /// In millionths of a permit per second.
    rate: u64,
}

impl Measured {
    pub(super) const fn since(now_ns: u64) -> Self {
        Self { interval: now_ns / INTERVAL_NS, permits: 0, rate: 0 }
    }

    /// Counts permits whose call has ended at `now_ns`, and returns the rate in millionths of a
    /// permit per second.
    pub(super) fn count(&mut self, now_ns: u64, permits: u64) -> u64 {
        self.permits = self.permits.saturating_add(permits);
        let interval = now_ns / INTERVAL_NS;
        let passed = u128::from(interval.saturating_sub(self.interval));
        let per_interval = u128::from(self.permits).saturating_mul(2 * MILLION);
        if let Some(newest) = per_interval.checked_div(passed) {
            let average = newest.saturating_mul(4).saturating_add(self.rate.into()) / 5;
            self.rate = u64::try_from(average).unwrap_or(u64::MAX);
            (self.interval, self.permits) = (interval, 0);
        }
        self.rate
    }

    #[cfg(test)]
    pub(super) const fn rate(&self) -> u64 {
        self.rate
    }
}
