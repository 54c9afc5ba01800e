//! The figures of a rule, which only grow, with a copy for each thread.

use std::num::NonZeroU64;

use rategate::stats::Counters;

use super::MAX_LANES;
use crate::engine::{ItemResult, Verdict};

/// The divisor of the limit: a grant that leaves less than this part is near the limit.
const NEAR_FRACTION: u64 = 10;

/// The upper ends of the buckets of waits, in milliseconds. Two more buckets hold longer waits, and
/// items that never fit. From a thousandth of a second to a day, about three for each power of ten.
pub(super) const WAITS_MS: [u64; 16] = [
    1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
    21_600_000, 86_400_000,
];

/// The number of buckets: those with an end, longer waits, and never.
const BUCKETS: usize = WAITS_MS.len() + 2;

/// Denied items by the time to wait; those of shadow rules are not included.
pub(super) type Waits = [u64; BUCKETS];

/// The outcome of an item, or something else that is counted of it besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Kind {
    Granted,
    /// Over the limit.
    Denied,
    /// Over the limit of a rule that is not enforced for it.
    ShadowDenied,
    /// Admitted while the store was unavailable.
    UnreachableAdmitted,
    /// Denied while the store was unavailable.
    UnreachableDenied,
    /// Passed uncounted: unlimited, or under no rule.
    Uncounted,
    Charged,
    Refunded,
    /// Granted, leaving less than a tenth of the limit.
    Near,
    /// Charged, or taken under a rule that charges, and the limit is exceeded.
    ChargedOver,
    /// Permits of debts that were forgiven.
    Forgiven,
}

const KINDS: usize = 11;

/// The outcomes, with the values of their label.
pub(super) const OUTCOMES: [(Kind, &str); 8] = [
    (Kind::Granted, "granted"),
    (Kind::Denied, "denied"),
    (Kind::ShadowDenied, "shadow_denied"),
    (Kind::UnreachableAdmitted, "unreachable_admitted"),
    (Kind::UnreachableDenied, "unreachable_denied"),
    (Kind::Uncounted, "uncounted"),
    (Kind::Charged, "charged"),
    (Kind::Refunded, "refunded"),
];

/// The counters of a rule.
#[derive(Debug)]
pub(super) struct Tally {
    items: Counters<KINDS>,
    permits: Counters<KINDS>,
    /// The buckets, and the sum of the waits in milliseconds.
    waits: Counters<{ BUCKETS + 1 }>,
}

/// The counts of a rule since it was first seen. They are read one after another while items are
/// counted, so an item may be in one and not yet in another. Permits wrap at 2^64: a scraper takes
/// that for a restart, and increases stay exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    items: [u64; KINDS],
    permits: [u64; KINDS],
}

impl Kind {
    /// Returns the outcome of a decided item; `None` for a reset.
    #[inline]
    pub(super) const fn of(result: &ItemResult) -> Option<Self> {
        Some(match result.verdict {
            Verdict::Granted => Self::Granted,
            Verdict::Denied { enforced: true, .. } => Self::Denied,
            Verdict::Denied { enforced: false, .. } => Self::ShadowDenied,
            Verdict::Unavailable { admitted: true, .. } => Self::UnreachableAdmitted,
            Verdict::Unavailable { admitted: false, .. } => Self::UnreachableDenied,
            Verdict::Unmatched | Verdict::Unlimited | Verdict::Replaced => Self::Uncounted,
            Verdict::Charged(_) => Self::Charged,
            Verdict::Refunded(_) => Self::Refunded,
            // What comes back at the end of a reservation, and what is charged, is reported so.
            Verdict::Reset
            | Verdict::Committed(_)
            | Verdict::Cancelled(_)
            | Verdict::Late(_)
            | Verdict::Unknown => return None,
        })
    }

    #[expect(clippy::as_conversions, reason = "the variants are numbered from 0")]
    const fn at(self) -> usize {
        self as usize
    }
}

/// Returns `true` for a grant that left less than a tenth of the limit.
#[inline]
pub(super) fn is_near(result: &ItemResult) -> bool {
    let is_near = |left| left < result.limit.div_ceil(NEAR_FRACTION);
    result.verdict == Verdict::Granted && result.remaining.is_some_and(is_near)
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            items: Counters::new(MAX_LANES),
            permits: Counters::new(MAX_LANES),
            waits: Counters::new(MAX_LANES),
        }
    }

    /// Counts an item, and returns its number among those of its kind in this thread's copy.
    #[inline]
    pub(super) fn add(&self, kind: Kind, permits: u64) -> u64 {
        self.permits.add(kind.at(), permits);
        self.items.add(kind.at(), 1)
    }

    /// Records the wait of a denied item, in the first bucket that does not end before it.
    #[inline]
    pub(super) fn add_wait(&self, retry_after_ns: Option<NonZeroU64>) {
        let wait_ms = retry_after_ns.map(|wait| wait.get().div_ceil(1_000_000));
        let bucket = |wait_ms| WAITS_MS.partition_point(|&end| end < wait_ms);
        self.waits.add(wait_ms.map_or(BUCKETS - 1, bucket), 1);
        self.waits.add(BUCKETS, wait_ms.unwrap_or(0));
    }

    pub(super) fn sum(&self) -> Sum {
        Sum { items: self.items.sum(), permits: self.permits.sum() }
    }

    /// Returns the waits, and their sum in milliseconds.
    pub(super) fn waits(&self) -> (Waits, u64) {
        let mut waits = [0; BUCKETS];
        let sums = self.waits.sum();
        waits.iter_mut().zip(sums).for_each(|(wait, sum)| *wait = sum);
        (waits, sums.last().copied().unwrap_or(0))
    }
}

impl Sum {
    /// Returns the number of items of a kind.
    pub(super) fn items(&self, kind: Kind) -> u64 {
        self.items.get(kind.at()).copied().unwrap_or(0)
    }

    /// Returns the number of their permits.
    pub(super) fn permits(&self, kind: Kind) -> u64 {
        self.permits.get(kind.at()).copied().unwrap_or(0)
    }

    /// Returns the increase since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            items: increase(self.items, &earlier.items),
            permits: increase(self.permits, &earlier.permits),
        }
    }
}

/// Returns the increase of each counter.
pub(super) fn increase<const N: usize>(mut now: [u64; N], earlier: &[u64; N]) -> [u64; N] {
    for (now, earlier) in now.iter_mut().zip(earlier) {
        *now = now.wrapping_sub(*earlier);
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_first_bucket_that_does_not_end_before_it() {
        for (wait_ns, bucket) in [
            (1, 0),
            (1_000_000, 0),
            (1_000_001, 1),
            (86_400_000_000_000, 15),
            (86_400_000_000_001, 16),
            (u64::MAX, 16),
            // No wait at all: time cannot help.
            (0, 17),
        ] {
            let tally = Tally::new();
            tally.add_wait(NonZeroU64::new(wait_ns));
            let mut expected = [0; BUCKETS];
            expected[bucket] = 1;
            assert_eq!(tally.waits(), (expected, wait_ns.div_ceil(1_000_000)), "{wait_ns}");
        }
    }

    #[test]
    fn each_outcome_has_its_counters() {
        let tally = Tally::new();
        for (number, (kind, _)) in (1..).zip(OUTCOMES) {
            assert_eq!(tally.add(kind, number), 0);
        }
        let sum = tally.sum();
        for (number, (kind, name)) in (1..).zip(OUTCOMES) {
            assert_eq!((sum.items(kind), sum.permits(kind)), (1, number), "{name}");
        }
    }
}
