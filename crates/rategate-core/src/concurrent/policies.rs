//! The lock-free form of each policy, and how a table packs its states.
//!
//! This is the only module that knows whether the target has lock-free forms.

use crate::adaptive::{AdaptiveConcurrency, AdaptiveRate};
use crate::any_policy::{AnyPolicy, AnyState};
use crate::backfill_pool::BackfillPool;
use crate::calendar::Calendar;
use crate::commit_log::CommitLog;
use crate::concurrency::Concurrency;
use crate::exact::Exact;
use crate::fixed_window::FixedWindow;
use crate::gcra::Gcra;
use crate::pacer::Pacer;
use crate::packed::{self, Borders, Cells, Packed};
use crate::rate::Kind;
use crate::sliding_log::SlidingLog;
use crate::slow_start::{SlowStart, Timed};
use crate::two_timeline::TwoTimeline;
use crate::warm_up::WarmUp;

use super::{HasLockFree, LockFreeAny, Locked};

#[cfg(not(all(target_has_atomic = "64", not(rategate_without_atomics))))]
pub(super) use super::{
    Locked as LockFreeGcra, Locked as LockFreeLog, Locked as LockFreeWindow, Locked as Timelines,
};
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub(super) use super::{
    gcra::Bucket as LockFreeGcra, sliding_log::Ring as LockFreeLog, two_timeline::Timelines,
    window::Window as LockFreeWindow,
};

/// The time whose permits make a batch, if the burst allows.
const BATCH_NS: u64 = 50_000;
const MAX_BATCH: u64 = 1_024;

impl HasLockFree for Gcra {
    type LockFree = LockFreeGcra;

    /// Returns the permits of 50 us at the rate, at most a 64th of the burst and `MAX_BATCH`, and
    /// at least one.
    ///
    /// A few threads with full batches therefore leave the burst nearly whole.
    fn batch(&self) -> u64 {
        let Kind::Paced(pace) = self.rate().kind() else { return 1 };
        let brought = pace.permits_in(Exact::at(BATCH_NS.into()));
        let brought = u64::try_from(brought).unwrap_or(u64::MAX);
        brought.min(self.burst_size().get() >> 6).clamp(1, MAX_BATCH)
    }

    fn packed(&self) -> Option<Packed> {
        packed::Bucket::of(self).map(Packed::of_bucket)
    }

    fn pack(&self, state: &Self::State, now_ns: u64) -> Option<u64> {
        packed::Bucket::of(self)?.pack(state, now_ns)
    }

    fn unpack(&self, value: u64, now_ns: u64) -> Option<Self::State> {
        Some(packed::Bucket::of(self)?.unpack(value, now_ns, self))
    }
}

impl HasLockFree for SlidingLog {
    type LockFree = LockFreeLog;

    fn packed(&self) -> Option<Packed> {
        Cells::of_log(self).map(Packed::of_cells)
    }

    fn pack(&self, state: &Self::State, now_ns: u64) -> Option<u64> {
        Cells::of_log(self)?.pack_log(state, now_ns, self)
    }

    fn unpack(&self, value: u64, now_ns: u64) -> Option<Self::State> {
        Some(Cells::of_log(self)?.unpack_log(value, now_ns))
    }
}

impl HasLockFree for TwoTimeline {
    type LockFree = Timelines;
}

impl HasLockFree for FixedWindow {
    type LockFree = LockFreeWindow;

    fn packed(&self) -> Option<Packed> {
        Cells::of_window(self).map(Packed::of_cells)
    }

    fn pack(&self, state: &Self::State, now_ns: u64) -> Option<u64> {
        Cells::of_window(self)?.pack_window(state, now_ns, self)
    }

    fn unpack(&self, value: u64, now_ns: u64) -> Option<Self::State> {
        Some(Cells::of_window(self)?.unpack_window(value, now_ns, self))
    }
}

impl HasLockFree for Pacer {
    type LockFree = Locked;
}

impl HasLockFree for WarmUp {
    type LockFree = Locked;
}

impl<P: Timed + Send> HasLockFree for SlowStart<P> {
    type LockFree = Locked;
}

impl HasLockFree for BackfillPool {
    type LockFree = Locked;
}

impl HasLockFree for AdaptiveConcurrency {
    type LockFree = Locked;
}

impl HasLockFree for AdaptiveRate {
    type LockFree = Locked;
}

impl HasLockFree for Concurrency {
    type LockFree = Locked;
}

impl HasLockFree for CommitLog {
    type LockFree = Locked;
}

impl HasLockFree for Calendar {
    type LockFree = LockFreeWindow;

    fn packed(&self) -> Option<Packed> {
        Borders::of(self).map(Packed::of_borders)
    }

    fn pack(&self, state: &Self::State, now_ns: u64) -> Option<u64> {
        Borders::of(self)?.pack(state, now_ns, self)
    }

    fn unpack(&self, value: u64, now_ns: u64) -> Option<Self::State> {
        Some(Borders::of(self)?.unpack(value, now_ns, self))
    }
}

/// Decides without a lock, takes batches and packs states as the policy inside does.
impl HasLockFree for AnyPolicy {
    type LockFree = LockFreeAny;

    fn batch(&self) -> u64 {
        match self {
            Self::Gcra(policy) => policy.batch(),
            _ => 1,
        }
    }

    fn packed(&self) -> Option<Packed> {
        match self {
            Self::Gcra(policy) => policy.packed(),
            Self::FixedWindow(policy) => policy.packed(),
            Self::SlidingLog(policy) => policy.packed(),
            Self::Calendar(policy) => policy.packed(),
            _ => None,
        }
    }

    fn pack(&self, state: &AnyState, now_ns: u64) -> Option<u64> {
        match (self, state) {
            (Self::Gcra(policy), AnyState::Gcra(state)) => policy.pack(state, now_ns),
            (Self::FixedWindow(policy), AnyState::FixedWindow(state)) => policy.pack(state, now_ns),
            (Self::SlidingLog(policy), AnyState::SlidingLog(state)) => policy.pack(state, now_ns),
            (Self::Calendar(policy), AnyState::Calendar(state)) => policy.pack(state, now_ns),
            _ => None,
        }
    }

    fn unpack(&self, value: u64, now_ns: u64) -> Option<AnyState> {
        match self {
            Self::Gcra(policy) => policy.unpack(value, now_ns).map(AnyState::Gcra),
            Self::FixedWindow(policy) => policy.unpack(value, now_ns).map(AnyState::FixedWindow),
            Self::SlidingLog(policy) => policy.unpack(value, now_ns).map(AnyState::SlidingLog),
            Self::Calendar(policy) => policy.unpack(value, now_ns).map(AnyState::Calendar),
            _ => None,
        }
    }
}
