//! The statistics of one limit.

use super::counts::{Counts, Tallies};
use super::events;
use super::outcome::Outcome;
use crate::decision::{Decision, Grant};
use crate::error::{AcquireError, TryAcquireError};
use crate::sync::{AtomicU64, Ordering};

/// The longest name of a limit or a key, in bytes. A longer one is cut, between two characters.
pub const MAX_NAME_BYTES: usize = 64;

/// The statistics of one limit, under the name that its owner gave it.
///
/// They come from [`Limiter::with_stats`](crate::Limiter::with_stats).
///
/// # Cost
///
/// A call adds to one counter, or to two if it is for more than one permit, on a cache line
/// that its thread has for itself, or shares with few: some nanoseconds. All lines together are
/// 256 bytes for each thread that can run at a time, at most 8 KB.
#[derive(Debug)]
pub struct LimitStats {
    name: Box<str>,
    /// The most permits that the limit grants at once. A near call leaves less than a tenth.
    limit: AtomicU64,
    tallies: Tallies,
}

impl LimitStats {
    pub(crate) fn new(name: &str, limit: u64) -> Self {
        let name = cut(name).into();
        Self { name, limit: AtomicU64::new(limit), tallies: Tallies::new() }
    }

    /// Returns the name of the limit.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counts up to now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.tallies.sum()
    }

    /// Sends the counts to the recorder of the `metrics` facade: see [Metrics](super#metrics).
    #[cfg(feature = "metrics")]
    pub fn publish(&self) {
        super::publish::counts(&self.name, &self.counts());
    }

    /// Counts a call, and returns its number within its kind and its thread's lane.
    #[inline]
    pub(super) fn observe(&self, permits: u64, outcome: Outcome) -> u64 {
        if let Outcome::Denied { retry_after } = outcome {
            events::denied(&self.name, permits, retry_after);
        }
        self.tallies.add(permits, outcome)
    }

    /// Records the decision on a try. Errors, such as a closed limit, are not counted.
    pub(crate) fn record_try(
        &self,
        permits: u64,
        decided: &Result<Decision, TryAcquireError>,
        remaining: impl FnOnce() -> u64,
    ) {
        if let Ok(decision) = decided {
            self.observe(permits, Outcome::of(decision, remaining, self.limit()));
        }
    }

    /// Records the end of a wait.
    pub(crate) fn record_wait(
        &self,
        permits: u64,
        ended: &Result<Grant, AcquireError>,
        remaining: impl FnOnce() -> u64,
    ) {
        if let Some(outcome) = Outcome::of_wait(ended, remaining, self.limit()) {
            self.observe(permits, outcome);
        }
    }

    /// Records a batch that a handle has used.
    pub(crate) fn record_batch(&self, calls: u64, permits: u64) {
        self.tallies.add_granted(calls, permits);
    }

    /// Records a change of the limit, which now grants at most `limit` permits at once.
    pub(crate) fn record_reconfigure(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        events::reconfigured(&self.name);
    }

    pub(crate) fn record_close(&self) {
        events::closed(&self.name);
    }

    pub(super) fn record_overflow(&self) {
        self.tallies.add_overflow();
    }

    #[inline]
    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }
}

/// Returns the start of a name, cut to the longest name allowed.
pub(super) fn cut(name: &str) -> &str {
    let fits = (0..=MAX_NAME_BYTES.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    fits.and_then(|end| name.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_between_two_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(""), "");
        let long = ["a".repeat(MAX_NAME_BYTES - 1), "ää".to_owned()].concat();
        assert_eq!(cut(&long).len(), MAX_NAME_BYTES - 1);
        assert_eq!(cut(&"b".repeat(1_000)).len(), MAX_NAME_BYTES);
    }
}
