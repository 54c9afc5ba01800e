//! The lock-free form of a policy that is chosen at run time: the form of the policy inside.
//!
//! Each call matches once on the kind. Policies without a lock-free form stay behind the lock.

use alloc::boxed::Box;

use super::policies::{LockFreeGcra, LockFreeLog, Timelines};
use super::{BatchVerdict, LockFree, LockFreeVerdict, Locked, OwnedLockFree, PermitBatch};
use crate::any_policy::{AnyPolicy, AnyState};
use crate::debt::{Charged, Debt};
use crate::gcra::Gcra;
use crate::refund::RefundEpoch;
use crate::sliding_log::SlidingLog;
use crate::two_timeline::TwoTimeline;

/// The lock-free form of any of the policies.
#[derive(Debug)]
pub struct LockFreeAny(Kind);

#[derive(Debug)]
enum Kind {
    Gcra(LockFreeGcra),
    SlidingLog(Box<LockFreeLog>),
    TwoTimeline(Box<Timelines>),
    Locked(Locked),
}

macro_rules! on_each {
    ($any:expr, $form:ident => $call:expr) => {
        match &$any.0 {
            Kind::Gcra($form) => $call,
            Kind::SlidingLog($form) => $call,
            Kind::TwoTimeline($form) => $call,
            Kind::Locked($form) => $call,
        }
    };
}

impl LockFree for LockFreeAny {
    const GROWS: bool = LockFreeGcra::GROWS || LockFreeLog::GROWS || Timelines::GROWS;

    #[inline]
    fn try_acquire(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict {
        on_each!(self, form => form.try_acquire(read_ns, permits))
    }

    #[inline]
    fn try_briefly(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict {
        on_each!(self, form => form.try_briefly(read_ns, permits))
    }

    fn take_batch(&self, read_ns: impl Fn() -> u64 + Copy, min: u64, max: u64) -> BatchVerdict {
        on_each!(self, form => form.take_batch(read_ns, min, max))
    }

    fn charge(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
        debt: Debt,
    ) -> Option<Charged> {
        on_each!(self, form => form.charge(read_ns, permits, debt))
    }

    fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        on_each!(self, form => form.peek(now_ns, permits))
    }

    fn remaining(&self, now_ns: u64) -> Option<u64> {
        on_each!(self, form => form.remaining(now_ns))
    }
}

/// Matches the form with the policy of its kind, and evaluates to the last arm for any other.
macro_rules! on_kind {
    ($any:expr, $policy:expr, ($form:ident, $own:ident) => $call:expr, else $other:expr) => {
        match (&$any.0, $policy) {
            (Kind::Gcra($form), AnyPolicy::Gcra($own)) => $call,
            (Kind::SlidingLog($form), AnyPolicy::SlidingLog($own)) => $call,
            (Kind::TwoTimeline($form), AnyPolicy::TwoTimeline($own)) => $call,
            _ => $other,
        }
    };
}

/// Returns `true` if the policy inside has a lock-free form.
const fn has_form(policy: &AnyPolicy) -> bool {
    matches!(policy, AnyPolicy::Gcra(_) | AnyPolicy::SlidingLog(_) | AnyPolicy::TwoTimeline(_))
}

impl OwnedLockFree<AnyPolicy> for LockFreeAny {
    fn new(policy: &AnyPolicy) -> Self {
        Self(match policy {
            AnyPolicy::Gcra(policy) => Kind::Gcra(OwnedLockFree::new(policy)),
            AnyPolicy::SlidingLog(policy) => Kind::SlidingLog(Box::new(OwnedLockFree::new(policy))),
            AnyPolicy::TwoTimeline(policy) => {
                Kind::TwoTimeline(Box::new(OwnedLockFree::new(policy)))
            }
            _ => Kind::Locked(Locked),
        })
    }

    fn seal(&self, policy: &AnyPolicy) -> Option<AnyState> {
        match (&self.0, policy) {
            (Kind::Gcra(form), AnyPolicy::Gcra(policy)) => form.seal(policy).map(AnyState::Gcra),
            (Kind::SlidingLog(form), AnyPolicy::SlidingLog(policy)) => {
                form.seal(policy).map(AnyState::SlidingLog)
            }
            (Kind::TwoTimeline(form), AnyPolicy::TwoTimeline(policy)) => {
                form.seal(policy).map(AnyState::TwoTimeline)
            }
            _ => None,
        }
    }

    fn open(&self, policy: &AnyPolicy, state: &AnyState, now_ns: u64) -> bool {
        match (&self.0, policy, state) {
            (Kind::Gcra(form), AnyPolicy::Gcra(policy), AnyState::Gcra(state)) => {
                form.open(policy, state, now_ns)
            }
            (
                Kind::SlidingLog(form),
                AnyPolicy::SlidingLog(policy),
                AnyState::SlidingLog(state),
            ) => form.open(policy, state, now_ns),
            (
                Kind::TwoTimeline(form),
                AnyPolicy::TwoTimeline(policy),
                AnyState::TwoTimeline(state),
            ) => form.open(policy, state, now_ns),
            _ => false,
        }
    }

    fn change(
        &self,
        old: &AnyPolicy,
        new: &AnyPolicy,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Option<u64> {
        match (&self.0, old, new) {
            (Kind::Gcra(form), AnyPolicy::Gcra(old), AnyPolicy::Gcra(new)) => {
                form.change(old, new, read_ns)
            }
            (Kind::SlidingLog(form), AnyPolicy::SlidingLog(old), AnyPolicy::SlidingLog(new)) => {
                form.change(old, new, read_ns)
            }
            (Kind::TwoTimeline(form), AnyPolicy::TwoTimeline(old), AnyPolicy::TwoTimeline(new)) => {
                form.change(old, new, read_ns)
            }
            _ => None,
        }
    }

    fn newest_ns(&self, policy: &AnyPolicy, state: &AnyState) -> u64 {
        match (&self.0, policy, state) {
            (Kind::Gcra(form), AnyPolicy::Gcra(policy), AnyState::Gcra(state)) => {
                form.newest_ns(policy, state)
            }
            (
                Kind::SlidingLog(form),
                AnyPolicy::SlidingLog(policy),
                AnyState::SlidingLog(state),
            ) => form.newest_ns(policy, state),
            (
                Kind::TwoTimeline(form),
                AnyPolicy::TwoTimeline(policy),
                AnyState::TwoTimeline(state),
            ) => form.newest_ns(policy, state),
            _ => 0,
        }
    }

    fn take_back(
        &self,
        policy: &AnyPolicy,
        batch: PermitBatch,
        left: u64,
        now_ns: u64,
        epoch: RefundEpoch,
    ) -> u64 {
        on_kind!(
            self, policy,
            (form, own) => form.take_back(own, batch, left, now_ns, epoch),
            else 0
        )
    }

    fn note_epoch(&self, epoch: RefundEpoch) {
        match &self.0 {
            Kind::Gcra(form) => OwnedLockFree::<Gcra>::note_epoch(form, epoch),
            Kind::SlidingLog(form) => {
                OwnedLockFree::<SlidingLog>::note_epoch(&**form, epoch);
            }
            Kind::TwoTimeline(form) => {
                OwnedLockFree::<TwoTimeline>::note_epoch(&**form, epoch);
            }
            Kind::Locked(_) => {}
        }
    }

    /// Returns `true` for a policy of another kind with a lock-free form, too: its form is a new
    /// one.
    fn is_outgrown_by(&self, policy: &AnyPolicy) -> bool {
        on_kind!(
            self, policy,
            (form, own) => form.is_outgrown_by(own),
            else has_form(policy)
        )
    }

    fn price(&self) -> u64 {
        match &self.0 {
            Kind::Gcra(form) => OwnedLockFree::<Gcra>::price(form),
            Kind::SlidingLog(form) => OwnedLockFree::<SlidingLog>::price(&**form),
            Kind::TwoTimeline(form) => OwnedLockFree::<TwoTimeline>::price(&**form),
            Kind::Locked(_) => 0,
        }
    }
}
