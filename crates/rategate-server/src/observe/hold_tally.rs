//! Counters of a rule's reservations: how they ended, what they hold, and how wrong estimates were.

use std::sync::atomic::{AtomicU64, Ordering};

use super::wide::WideCounter;
use crate::engine::{HoldChange, HoldOutcome};

/// The outcomes, and the values of their label.
pub(super) const OUTCOMES: [(HoldOutcome, &str); 6] = [
    (HoldOutcome::Held, "held"),
    (HoldOutcome::Denied, "denied"),
    (HoldOutcome::Committed, "committed"),
    (HoldOutcome::Cancelled, "cancelled"),
    (HoldOutcome::Late, "late"),
    (HoldOutcome::Expired, "expired"),
];

/// The upper ends of the buckets of estimates' errors, in permits. One more holds larger errors.
pub(super) const ENDS: [u64; 8] = [0, 1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// The number of buckets.
const BUCKETS: usize = ENDS.len() + 1;

/// The counters.
#[derive(Debug, Default)]
pub(super) struct HoldTally {
    outcomes: [AtomicU64; OUTCOMES.len()],
    taken: WideCounter,
    released: WideCounter,
    errors: [AtomicU64; BUCKETS],
    errors_sum: WideCounter,
}

/// The figures of a rule's reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HoldFigures {
    /// The numbers of operations, in the order of [`OUTCOMES`].
    pub(super) outcomes: [u64; OUTCOMES.len()],
    /// The permits of this process that are held now.
    pub(super) held: u128,
    /// The errors of estimates by bucket.
    pub(super) errors: [u64; BUCKETS],
    /// The sum of the errors.
    pub(super) errors_sum: u128,
}

impl HoldTally {
    pub(super) fn note(&self, change: &HoldChange) {
        let HoldChange { outcome, taken, released, error, .. } = *change;
        let place = OUTCOMES.iter().position(|(of, _)| *of == outcome);
        add(place.and_then(|place| self.outcomes.get(place)));
        self.taken.add(taken, Ordering::Release);
        self.released.add(released, Ordering::Release);
        if let Some(error) = error {
            add(self.errors.get(ENDS.partition_point(|&end| end < error)));
            self.errors_sum.add(error, Ordering::Release);
        }
    }

    pub(super) fn read(&self) -> HoldFigures {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // An end that is read is one of a hold that is read. Where a rule was gone for a while, the
        // ends of what it held may be of its next record.
        let released = self.released.read(Ordering::Acquire);
        HoldFigures {
            outcomes: std::array::from_fn(|at| self.outcomes.get(at).map_or(0, of)),
            held: self.taken.read(Ordering::Relaxed).saturating_sub(released),
            errors: std::array::from_fn(|at| self.errors.get(at).map_or(0, of)),
            errors_sum: self.errors_sum.read(Ordering::Relaxed),
        }
    }
}

fn add(counter: Option<&AtomicU64>) {
    if let Some(counter) = counter {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_and_errors_are_counted() {
        let tally = HoldTally::default();
        let change = |outcome, taken, released, error| HoldChange {
            outcome,
            taken,
            released,
            error,
            forgiven: 0,
        };
        for error in [0, 1, 2, 10, 1_000_000, 1_000_001, u64::MAX] {
            tally.note(&change(HoldOutcome::Held, 9, 0, None));
            tally.note(&change(HoldOutcome::Committed, 0, 8, Some(error)));
        }
        tally.note(&change(HoldOutcome::Expired, 0, 1, None));
        let HoldFigures { outcomes, held, errors, errors_sum } = tally.read();
        assert_eq!((outcomes, held), ([7, 0, 7, 0, 0, 1], 6));
        assert_eq!(errors, [1, 1, 2, 0, 0, 0, 0, 1, 2]);
        assert_eq!(errors_sum, 2_000_014 + u128::from(u64::MAX));
    }
}
