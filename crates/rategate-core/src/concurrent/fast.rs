//! The lock-free form of a limit, whichever it has: each call matches once. Limits without one stay
//! behind the lock.

use alloc::boxed::Box;

use super::gate::Gate;
use super::gcra::Bucket;
use super::sliding_log::Ring;
use super::two_timeline::Timelines;
use super::window::Window;
use super::{BatchVerdict, LockFreeVerdict, PermitBatch};
use crate::all_of::AllOf;
use crate::any_policy::{AnyPolicy, Member};
use crate::debt::{Charged, Debt};
use crate::fixed_window;
use crate::members::Members;
use crate::refund::RefundEpoch;

/// The lock-free form of a limit.
#[derive(Debug)]
pub struct Fast(Form);

#[derive(Debug)]
enum Form {
    Bucket(Bucket),
    Log(Box<Ring>),
    Schedule(Box<Timelines>),
    Window(Window),
    /// The lock decides, but for what the gate denies.
    Locked(Gate),
}

macro_rules! of_form {
    ($fast:expr, $form:ident => $call:expr, else $locked:expr) => {
        match &$fast.0 {
            Form::Bucket($form) => $call,
            Form::Log($form) => $call,
            Form::Schedule($form) => $call,
            Form::Window($form) => $call,
            Form::Locked(_) => $locked,
        }
    };
}

/// What any thread may do.
impl Fast {
    /// Takes `permits` at once or not at all.
    ///
    /// `read_ns` reads the clock: as a rule once, again if other threads were faster, and not at
    /// all where the decision does not depend on it.
    #[inline]
    pub fn try_acquire(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict {
        match &self.0 {
            Form::Bucket(form) => form.try_acquire(read_ns, permits),
            Form::Log(form) => form.try_acquire(read_ns, permits),
            Form::Schedule(form) => form.try_acquire(read_ns, permits),
            Form::Window(form) => form.try_acquire(read_ns, permits),
            Form::Locked(gate) => gate.try_acquire(read_ns, permits),
        }
    }

    /// Decides a try in the usual case, or returns [`LockFreeVerdict::Sealed`] where only
    /// [`try_acquire`](Self::try_acquire) can.
    ///
    /// A form that is small in the usual case (its state is open, and no other thread interferes)
    /// decides that case here. It is worth inlining: its verdict stays in registers as long as no
    /// called function may return it instead.
    #[inline]
    pub fn try_briefly(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict {
        match &self.0 {
            Form::Bucket(form) => form.try_briefly(read_ns, permits),
            Form::Schedule(form) => form.try_briefly(read_ns, permits),
            Form::Window(form) => form.try_briefly(read_ns, permits),
            Form::Log(form) => form.try_acquire(read_ns, permits),
            Form::Locked(gate) => gate.try_acquire(read_ns, permits),
        }
    }

    /// Takes between `min` and `max` permits in one step, for a thread to use one by one.
    pub fn take_batch(&self, read_ns: impl Fn() -> u64 + Copy, min: u64, max: u64) -> BatchVerdict {
        match &self.0 {
            Form::Bucket(form) => form.take_batch(read_ns, min, max),
            _ => BatchVerdict::Unknown,
        }
    }

    /// Books permits that have been used already, whether they fit or not. Returns `None` if only
    /// the ledger can.
    #[inline]
    pub fn charge(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
        debt: Debt,
    ) -> Option<Charged> {
        match &self.0 {
            Form::Bucket(form) => form.charge(read_ns, permits, debt),
            _ => None,
        }
    }

    /// Returns the wait until a try would pass, zero if it would now, or `None` if sealed. Takes
    /// nothing.
    #[must_use]
    pub fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        of_form!(self, form => form.peek(now_ns, permits), else None)
    }

    /// Returns the maximum number of permits that a try could take, or `None` if sealed.
    #[must_use]
    pub fn remaining(&self, now_ns: u64) -> Option<u64> {
        of_form!(self, form => form.remaining(now_ns), else None)
    }
}

/// What only the thread with the ledger's lock does.
impl Fast {
    /// Returns a sealed form that is large enough for these limits.
    pub(super) fn sealed(limits: &Members) -> Self {
        Self(match limits.only().map(Member::policy) {
            Some(AnyPolicy::Gcra(_)) => Form::Bucket(Bucket::sealed()),
            Some(AnyPolicy::SlidingLog(policy)) => Form::Log(Box::new(Ring::sealed(&policy))),
            Some(AnyPolicy::TwoTimeline(policy)) if !policy.is_batched() => {
                Form::Schedule(Box::new(Timelines::sealed()))
            }
            Some(AnyPolicy::FixedWindow(_)) => Form::Window(Window::sealed()),
            _ => Form::Locked(Gate::open()),
        })
    }

    /// Takes the states out, with the newest clock reading that they show: zero where a decision by
    /// an earlier one could not pass the limit. Returns `None` if the form is sealed already.
    pub(super) fn seal(&self, limits: &Members) -> Option<(Members, u64)> {
        if let Form::Locked(gate) = &self.0 {
            gate.unlock();
            return None;
        }
        let (member, newest_ns) = match (&self.0, limits.only()?) {
            (Form::Bucket(form), Member::Gcra(policy, _)) => {
                (Member::Gcra(*policy, form.seal(policy)?), 0)
            }
            (Form::Log(form), Member::SlidingLog(policy, _)) => {
                let (state, newest_ns) = form.seal(policy)?;
                (Member::SlidingLog(*policy, state), newest_ns)
            }
            (Form::Schedule(form), Member::TwoTimeline(policy, _)) => {
                (Member::TwoTimeline(policy.clone(), form.seal(policy)?.into()), 0)
            }
            (Form::Window(form), Member::FixedWindow(policy, _)) => {
                let state = fixed_window::State::of_count(form.seal()?);
                let newest_ns = state.start_ns();
                (Member::FixedWindow(*policy, state), newest_ns)
            }
            _ => return None,
        };
        Some((member.into(), newest_ns))
    }

    /// Puts the states in, if the form can hold them, and opens it.
    ///
    /// Only for a sealed form, and only by the thread that holds the ledger's lock.
    pub(super) fn open(&self, limits: &Members, epoch: RefundEpoch, now_ns: u64) {
        self.note_epoch(epoch);
        let Some(only) = limits.only() else { return };
        match (&self.0, only) {
            (Form::Bucket(form), Member::Gcra(policy, state)) => {
                form.open(policy, state, now_ns);
            }
            (Form::Log(form), Member::SlidingLog(policy, state)) => {
                form.open(policy, state, now_ns);
            }
            (Form::Schedule(form), Member::TwoTimeline(policy, state)) => {
                form.open(policy, state, now_ns);
            }
            (Form::Window(form), Member::FixedWindow(policy, state)) => {
                form.open(policy.permits(), policy.count_at(state, now_ns));
            }
            _ => {}
        }
    }

    /// Denies one permit until an instant, `None` for one that time alone does not bring, if the
    /// lock decides everything. Until the next [seal](crate::ledger::Ledger::seal) no permit may come
    /// back and no caller wait.
    ///
    /// Only by the thread that holds the ledger's lock.
    pub fn shut_gate(&self, until_ns: Option<u64>) {
        if let Form::Locked(gate) = &self.0 {
            gate.shut(until_ns);
        }
    }

    /// Switches to the numbers of `new` at a reading of `read_ns`, atomically and without
    /// sealing.
    ///
    /// Returns that reading, or `None` if the switch was not possible; then nothing has changed.
    /// Only by the thread that holds the ledger's lock.
    ///
    /// The clock is read after the state that is replaced, so never before a grant contained in
    /// it. By an earlier reading permits would count as used longer than they have been, and
    /// shrink with the new numbers.
    pub(super) fn change(
        &self,
        old: &Members,
        new: &AllOf,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Option<u64> {
        match (&self.0, old.only()?, new.policies()) {
            (Form::Bucket(form), Member::Gcra(old, _), [AnyPolicy::Gcra(new)]) => {
                form.change(old, new, read_ns)
            }
            (Form::Schedule(form), Member::TwoTimeline(old, _), [AnyPolicy::TwoTimeline(new)]) => {
                form.change(old, new, read_ns)
            }
            _ => None,
        }
    }

    /// Returns how many of the last `left` permits of a batch can be credited at `now_ns`.
    ///
    /// With that many credited, the state is as if they had never been taken. `epoch` is the
    /// refund epoch now. The other permits have been earned again and are lost. Call this only
    /// once for each batch.
    pub(super) fn take_back(
        &self,
        limits: &Members,
        batch: PermitBatch,
        left: u64,
        now_ns: u64,
        epoch: RefundEpoch,
    ) -> u64 {
        match (&self.0, limits.only()) {
            (Form::Bucket(form), Some(Member::Gcra(policy, _))) => {
                form.take_back(policy, batch, left, now_ns, epoch)
            }
            _ => 0,
        }
    }

    /// Stores the refund epoch for batches from now on.
    ///
    /// Only by the thread that holds the ledger's lock, and only after the returns or changes
    /// that it counts.
    pub(super) fn note_epoch(&self, epoch: RefundEpoch) {
        if let Form::Bucket(form) = &self.0 {
            form.note_epoch(epoch);
        }
    }

    /// Returns `true` if these limits are too large for this form, or of other policies, and
    /// another form could hold them.
    pub(super) fn is_outgrown_by(&self, limits: &Members) -> bool {
        match (&self.0, limits.only().map(Member::policy)) {
            (Form::Bucket(_), Some(AnyPolicy::Gcra(_)))
            | (Form::Window(_), Some(AnyPolicy::FixedWindow(_))) => false,
            (Form::Schedule(_), Some(AnyPolicy::TwoTimeline(policy))) => policy.is_batched(),
            (Form::Log(form), Some(AnyPolicy::SlidingLog(policy))) => form.is_outgrown_by(&policy),
            (Form::Locked(_), _) => !matches!(Self::sealed(limits).0, Form::Locked(_)),
            _ => true,
        }
    }

    /// Returns the number of decisions under the lock that should pay for the next opening, or
    /// `None` if it never opens.
    pub(super) fn price(&self) -> Option<u64> {
        match &self.0 {
            Form::Log(form) => Some(form.price()),
            Form::Locked(_) => None,
            _ => Some(0),
        }
    }
}
