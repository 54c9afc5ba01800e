//! The lock-free form of each policy, and how a table packs its states.
//!
//! This is the only module that knows whether the target has lock-free forms.

use crate::any_policy::{AnyPolicy, AnyState};
use crate::backfill_pool::BackfillPool;
use crate::commit_log::CommitLog;
use crate::compact_log::CompactLog;
use crate::concurrency::Concurrency;
use crate::exact::Exact;
use crate::fixed_window::FixedWindow;
use crate::gcra::Gcra;
use crate::narrow::{self, Cells, Narrow};
use crate::pacer::Pacer;
use crate::rate::Kind;
use crate::sliding_log::SlidingLog;
use crate::two_timeline::TwoTimeline;

use super::{NoTwin, Twinned};

#[cfg(not(all(target_has_atomic = "64", not(rategate_without_atomics))))]
use super::{NoTwin as GcraTwin, NoTwin as LogTwin, NoTwin as Timelines};
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
use super::{gcra::Bucket as GcraTwin, sliding_log::Ring as LogTwin, two_timeline::Timelines};

/// The time whose permits make a batch, if the burst allows.
const BATCH_NS: u64 = 50_000;
const MOST_IN_BATCH: u64 = 1_024;

impl Twinned for Gcra {
    type Twin = GcraTwin;

    /// Returns the permits of 50 us at the rate, but no more than a 64th of the burst.
    ///
    /// A few threads with full batches therefore leave the burst nearly whole.
    fn batch(&self) -> u64 {
        let Kind::Paced(pace) = self.rate().0 else { return 1 };
        let brought = pace.permits_in(Exact::at(BATCH_NS.into()));
        let brought = u64::try_from(brought).unwrap_or(u64::MAX);
        brought.min(self.burst().get() >> 6).clamp(1, MOST_IN_BATCH)
    }

    fn narrow(&self) -> Option<Narrow> {
        narrow::Bucket::of(self).map(Narrow::of_bucket)
    }

    fn narrowed(&self, state: &Self::State, now_ns: u64) -> Option<u64> {
        narrow::Bucket::of(self)?.narrowed(state, now_ns)
    }

    fn widened(&self, value: u64, now_ns: u64) -> Option<Self::State> {
        Some(narrow::Bucket::of(self)?.widened(value, now_ns, self))
    }
}

impl Twinned for SlidingLog {
    type Twin = LogTwin;
}

impl Twinned for TwoTimeline {
    type Twin = Timelines;
}

impl Twinned for FixedWindow {
    type Twin = NoTwin;

    fn narrow(&self) -> Option<Narrow> {
        Cells::of_window(self).map(Narrow::of_cells)
    }

    fn narrowed(&self, state: &Self::State, now_ns: u64) -> Option<u64> {
        Cells::of_window(self)?.narrowed_window(state, now_ns)
    }

    fn widened(&self, value: u64, now_ns: u64) -> Option<Self::State> {
        Some(Cells::of_window(self)?.widened_window(value, now_ns, self))
    }
}

impl Twinned for Pacer {
    type Twin = NoTwin;
}

impl Twinned for BackfillPool {
    type Twin = NoTwin;
}

impl Twinned for Concurrency {
    type Twin = NoTwin;
}

impl Twinned for CommitLog {
    type Twin = NoTwin;
}

impl Twinned for CompactLog {
    type Twin = NoTwin;

    fn narrow(&self) -> Option<Narrow> {
        Cells::of_log(self).map(Narrow::of_cells)
    }

    fn narrowed(&self, state: &Self::State, now_ns: u64) -> Option<u64> {
        Cells::of_log(self)?.narrowed_log(state, now_ns, self)
    }

    fn widened(&self, value: u64, now_ns: u64) -> Option<Self::State> {
        Some(Cells::of_log(self)?.widened_log(value, now_ns, self))
    }
}

/// Packs states as the wrapped policies do.
impl Twinned for AnyPolicy {
    type Twin = NoTwin;

    fn narrow(&self) -> Option<Narrow> {
        match self {
            Self::Gcra(policy) => policy.narrow(),
            Self::FixedWindow(policy) => policy.narrow(),
            Self::CompactLog(policy) => policy.narrow(),
            _ => None,
        }
    }

    fn narrowed(&self, state: &AnyState, now_ns: u64) -> Option<u64> {
        match (self, state) {
            (Self::Gcra(policy), AnyState::Gcra(state)) => policy.narrowed(state, now_ns),
            (Self::FixedWindow(policy), AnyState::FixedWindow(state)) => {
                policy.narrowed(state, now_ns)
            }
            (Self::CompactLog(policy), AnyState::CompactLog(state)) => {
                policy.narrowed(state, now_ns)
            }
            _ => None,
        }
    }

    fn widened(&self, value: u64, now_ns: u64) -> Option<AnyState> {
        match self {
            Self::Gcra(policy) => policy.widened(value, now_ns).map(AnyState::Gcra),
            Self::FixedWindow(policy) => policy.widened(value, now_ns).map(AnyState::FixedWindow),
            Self::CompactLog(policy) => policy.widened(value, now_ns).map(AnyState::CompactLog),
            _ => None,
        }
    }
}
