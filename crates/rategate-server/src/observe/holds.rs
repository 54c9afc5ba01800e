//! Figures of a rule's reservations: how they ended, what they hold, and how wrong estimates were.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use crate::engine::{HoldChange, HoldOutcome};

/// The outcomes, with the values of their label.
const OUTCOMES: [(HoldOutcome, &str); 6] = [
    (HoldOutcome::Held, "held"),
    (HoldOutcome::Denied, "denied"),
    (HoldOutcome::Committed, "committed"),
    (HoldOutcome::Cancelled, "cancelled"),
    (HoldOutcome::Late, "late"),
    (HoldOutcome::Expired, "expired"),
];

/// The upper ends of the buckets of estimates' errors, in permits.
const ENDS: [f64; 8] = [0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0];

/// The figures.
#[derive(Debug)]
pub(super) struct Holds {
    /// The numbers of operations, in the order of [`OUTCOMES`].
    operations: [Counter; OUTCOMES.len()],
    held: AtomicU64,
    /// The errors of estimates, in permits.
    pub(super) errors: Histogram,
}

impl Default for Holds {
    fn default() -> Self {
        Self {
            operations: Default::default(),
            held: AtomicU64::new(0),
            errors: Histogram::new(ENDS),
        }
    }
}

impl Holds {
    pub(super) fn note(&self, change: &HoldChange) {
        let counters = OUTCOMES.iter().zip(&self.operations);
        for (_, counter) in counters.filter(|((of, _), _)| *of == change.outcome) {
            counter.inc();
        }
        // Where a rule was gone for a while, the ends of what it held may be of its next record.
        let held =
            |held: u64| Some(held.saturating_add(change.taken).saturating_sub(change.released));
        let _ = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, held);
        if let Some(error) = change.error {
            #[expect(
                clippy::as_conversions,
                clippy::cast_precision_loss,
                reason = "as it is shown"
            )]
            self.errors.observe(error as f64);
        }
    }

    /// Returns the numbers of operations by outcome.
    pub(super) fn operations(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OUTCOMES.iter().zip(&self.operations).map(|((_, name), counter)| (*name, counter.get()))
    }

    /// Returns the permits of this process that are held now.
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of what a rule held before it was gone do not count against what it holds now.
    #[test]
    fn what_is_held_is_what_was_taken_and_not_released() {
        let holds = Holds::default();
        let note = |taken, released| {
            let outcome = HoldOutcome::Held;
            holds.note(&HoldChange { outcome, taken, released, error: None, forgiven: 0 });
            holds.held()
        };
        assert_eq!([note(9, 0), note(u64::MAX, 0)], [9, u64::MAX]);
        assert_eq!([note(0, u64::MAX - 8), note(0, 10), note(3, 0)], [8, 0, 3]);
    }
}
