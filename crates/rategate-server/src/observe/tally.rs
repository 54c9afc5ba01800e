//! Counters of items and permits that only grow, with a copy for each thread.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use rategate::stats::{Lanes, OwnLane};

use super::MAX_LANES;
use super::waits::{BUCKETS, Buckets, bucket_of};
use super::wide::WideCounter;
use crate::engine::{ItemResult, Verdict};

/// The divisor of the limit: a grant that leaves less than this part is near the limit.
const NEAR_FRACTION: u64 = 10;

/// The outcome of an item, as far as the figures distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Kind {
    /// Granted, leaving a tenth of the limit or more.
    Far,
    /// Granted, leaving less than a tenth of the limit.
    Near,
    /// Over the limit.
    Denied,
    /// Over the limit of a rule that is not enforced for it.
    Shadow,
    /// Admitted while the store was unavailable.
    UnavailableAdmitted,
    /// Denied while the store was unavailable.
    UnavailableDenied,
    /// Passed uncounted: unlimited, or under no rule.
    Free,
    /// Charged, within the limit.
    Charged,
    /// Charged, and the limit is exceeded.
    ChargedOver,
    Refunded,
}

const KINDS: usize = 10;

/// The counts of a rule since it was first seen. Each only grows. They are read one after another
/// while items are counted, so an item may be in one and not yet in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    calls: [u64; KINDS],
    permits: [u128; KINDS],
    /// Denials by the time to wait; shadow denials are not included.
    pub(super) waits: Buckets,
    /// The sum of these waits, in milliseconds.
    pub(super) waits_ms: u128,
}

/// The counters of a rule.
#[derive(Debug)]
pub(super) struct Tally(Lanes<Lane>);

#[derive(Debug, Default)]
struct Lane {
    /// The items of one permit or more.
    calls: [AtomicU64; KINDS],
    /// The items of no permit, such as a refund that came too late.
    empty: [AtomicU64; KINDS],
    /// The permits beyond one of each item: an item of one permit, the most common case, adds
    /// nothing.
    extra: [WideCounter; KINDS],
    waits: [AtomicU64; BUCKETS],
    waits_ms: WideCounter,
}

impl Kind {
    /// Returns the kind of a decided item; `None` for a reset.
    #[inline]
    pub(super) const fn of(result: &ItemResult) -> Option<Self> {
        Some(match result.verdict {
            Verdict::Granted => match result.remaining {
                Some(left) if left < result.limit.div_ceil(NEAR_FRACTION) => Self::Near,
                _ => Self::Far,
            },
            Verdict::Denied { enforced: true, .. } => Self::Denied,
            Verdict::Denied { enforced: false, .. } => Self::Shadow,
            Verdict::Unavailable { admitted: true, .. } => Self::UnavailableAdmitted,
            Verdict::Unavailable { admitted: false, .. } => Self::UnavailableDenied,
            Verdict::Unmatched | Verdict::Unlimited | Verdict::Replaced => Self::Free,
            Verdict::Charged(_) if result.debt > 0 => Self::ChargedOver,
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

    const fn at(self) -> usize {
        // The variants are numbered from 0.
        match self {
            Self::Far => 0,
            Self::Near => 1,
            Self::Denied => 2,
            Self::Shadow => 3,
            Self::UnavailableAdmitted => 4,
            Self::UnavailableDenied => 5,
            Self::Free => 6,
            Self::Refunded => 7,
            Self::Charged => 8,
            Self::ChargedOver => 9,
        }
    }
}

impl Tally {
    pub(super) fn new() -> Self {
        Self(Lanes::new(MAX_LANES, Lane::default))
    }

    /// Counts an item, and returns its number among those of its kind in this thread's copy.
    #[inline]
    pub(super) fn add(&self, kind: Kind, permits: u64) -> u64 {
        let Some(OwnLane { lane, .. }) = self.0.own() else { return 0 };
        let Some(beyond_one) = permits.checked_sub(1) else {
            return add(&lane.empty, kind.at());
        };
        if let Some(extra) = lane.extra.get(kind.at()) {
            extra.add(beyond_one, Ordering::Relaxed);
        }
        add(&lane.calls, kind.at())
    }

    /// Records the wait of a denied item.
    #[inline]
    pub(super) fn add_wait(&self, retry_after_ns: Option<NonZeroU64>) {
        let Some(OwnLane { lane, .. }) = self.0.own() else { return };
        add(&lane.waits, bucket_of(retry_after_ns));
        let wait_ms = retry_after_ns.map_or(0, |wait| wait.get().div_ceil(1_000_000));
        lane.waits_ms.add(wait_ms, Ordering::Relaxed);
    }

    pub(super) fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        for lane in self.0.all() {
            gather(&mut sum.calls, &lane.calls);
            gather(&mut sum.calls, &lane.empty);
            let counters = lane.calls.iter().zip(&lane.extra);
            for (sum, (calls, extra)) in sum.permits.iter_mut().zip(counters) {
                let calls = u128::from(calls.load(Ordering::Relaxed));
                *sum = sum.saturating_add(calls).saturating_add(extra.read(Ordering::Relaxed));
            }
            gather(&mut sum.waits, &lane.waits);
            let waits_ms = lane.waits_ms.read(Ordering::Relaxed);
            sum.waits_ms = sum.waits_ms.saturating_add(waits_ms);
        }
        sum
    }
}

impl Sum {
    /// Returns the number of items of a kind.
    pub(super) fn calls(&self, kind: Kind) -> u64 {
        self.calls.get(kind.at()).copied().unwrap_or(0)
    }

    /// Returns the number of their permits.
    pub(super) fn permits(&self, kind: Kind) -> u128 {
        self.permits.get(kind.at()).copied().unwrap_or(0)
    }

    /// Returns the increase since an earlier reading.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut since = *self;
        subtract(&mut since.calls, &earlier.calls);
        for (permits, earlier) in since.permits.iter_mut().zip(earlier.permits) {
            *permits = permits.saturating_sub(earlier);
        }
        subtract(&mut since.waits, &earlier.waits);
        since.waits_ms = since.waits_ms.saturating_sub(earlier.waits_ms);
        since
    }
}

#[inline]
fn add(counters: &[AtomicU64], at: usize) -> u64 {
    counters.get(at).map_or(0, |counter| counter.fetch_add(1, Ordering::Relaxed))
}

fn gather(sums: &mut [u64], counters: &[AtomicU64]) {
    for (sum, counter) in sums.iter_mut().zip(counters) {
        *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
    }
}

fn subtract(values: &mut [u64], earlier: &[u64]) {
    for (value, earlier) in values.iter_mut().zip(earlier) {
        *value = value.wrapping_sub(*earlier);
    }
}
