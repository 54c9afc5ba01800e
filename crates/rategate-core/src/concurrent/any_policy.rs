//! The lock-free form of a policy that is chosen at run time: the form of the policy inside.
//!
//! Each call matches once on the kind. Policies without a lock-free form stay behind the lock.

use alloc::boxed::Box;

use super::policies::{LockFreeGcra, LockFreeLog, LockFreeWindow, Timelines};
use super::{BatchVerdict, LockFree, LockFreeVerdict, Locked, OwnedLockFree, PermitBatch};
use crate::any_policy::{AnyPolicy, AnyState};
use crate::calendar::Calendar;
use crate::debt::{Charged, Debt};
use crate::fixed_window::FixedWindow;
use crate::gcra::Gcra;
use crate::refund::RefundEpoch;
use crate::sliding_log::SlidingLog;
use crate::two_timeline::TwoTimeline;

/// The lock-free form of any of the policies.
#[derive(Debug)]
pub struct LockFreeAny(Kind);

macro_rules! lock_free_forms {
    ($($name:ident($kept:ty): $form:ty;)*) => {
        #[derive(Debug)]
        enum Kind {
            $($name($kept),)*
            Locked(Locked),
        }

        macro_rules! on_each {
            ($any:expr, $own:ident => $call:expr) => {
                match &$any.0 {
                    $(Kind::$name($own) => $call,)*
                    Kind::Locked($own) => $call,
                }
            };
        }

        impl OwnedLockFree<AnyPolicy> for LockFreeAny {
            fn new(policy: &AnyPolicy) -> Self {
                Self(match policy {
                    $(AnyPolicy::$name(policy) => {
                        Kind::$name(<$form as OwnedLockFree<$name>>::new(policy).into())
                    })*
                    _ => Kind::Locked(Locked),
                })
            }

            fn seal(&self, policy: &AnyPolicy) -> Option<AnyState> {
                match (&self.0, policy) {
                    $((Kind::$name(form), AnyPolicy::$name(policy)) => {
                        form.seal(policy).map(AnyState::$name)
                    })*
                    _ => None,
                }
            }

            fn open(&self, policy: &AnyPolicy, state: &AnyState, now_ns: u64) -> bool {
                match (&self.0, policy, state) {
                    $((Kind::$name(form), AnyPolicy::$name(policy), AnyState::$name(state)) => {
                        form.open(policy, state, now_ns)
                    })*
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
                    $((Kind::$name(form), AnyPolicy::$name(old), AnyPolicy::$name(new)) => {
                        form.change(old, new, read_ns)
                    })*
                    _ => None,
                }
            }

            fn newest_ns(&self, policy: &AnyPolicy, state: &AnyState) -> u64 {
                match (&self.0, policy, state) {
                    $((Kind::$name(form), AnyPolicy::$name(policy), AnyState::$name(state)) => {
                        form.newest_ns(policy, state)
                    })*
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
                match (&self.0, policy) {
                    $((Kind::$name(form), AnyPolicy::$name(policy)) => {
                        form.take_back(policy, batch, left, now_ns, epoch)
                    })*
                    _ => 0,
                }
            }

            fn note_epoch(&self, epoch: RefundEpoch) {
                match &self.0 {
                    $(Kind::$name(form) => {
                        <$form as OwnedLockFree<$name>>::note_epoch(form, epoch);
                    })*
                    Kind::Locked(_) => {}
                }
            }

            /// Returns `true` for a policy of another kind with a lock-free form, too: its form is
            /// a new one.
            fn is_outgrown_by(&self, policy: &AnyPolicy) -> bool {
                match (&self.0, policy) {
                    $((Kind::$name(form), AnyPolicy::$name(policy)) => {
                        form.is_outgrown_by(policy)
                    })*
                    (_, $(AnyPolicy::$name(_))|*) => true,
                    _ => false,
                }
            }

            fn price(&self) -> u64 {
                match &self.0 {
                    $(Kind::$name(form) => <$form as OwnedLockFree<$name>>::price(form),)*
                    Kind::Locked(_) => 0,
                }
            }
        }
    };
}

lock_free_forms! {
    Gcra(LockFreeGcra): LockFreeGcra;
    SlidingLog(Box<LockFreeLog>): LockFreeLog;
    TwoTimeline(Box<Timelines>): Timelines;
    FixedWindow(LockFreeWindow): LockFreeWindow;
    Calendar(LockFreeWindow): LockFreeWindow;
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
