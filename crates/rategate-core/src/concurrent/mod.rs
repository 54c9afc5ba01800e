//! Lock-free forms of policies, which threads share without a mutex.
//!
//! A lock-free state answers tries as its policy does. It is a word or a ring of words that
//! threads change by compare-and-swap. For several limits it is a cell that threads replace as a
//! whole. What words cannot hold, such as a promise that may be cancelled, needs the [`Ledger`].
//! The two never decide at the same time:
//!
//! ```text
//!             open                                      sealed
//!   tries: compare-and-swap on the words      everything: the ledger, under its owner's lock
//!                 \____ seal: the thread that holds the lock ____/
//!                  \___ open: once no promise is pending ___/
//! ```
//!
//! * **One owner at a time.** While the lock-free form is open, it has the state and the ledger's
//!   copy is stale. [Sealing](Concurrent::seal) takes the state out in one atomic step (one per
//!   slot for the log), after which no compare-and-swap can succeed.
//! * **A configuration is published with the word.** The word names one of two slots that hold
//!   the numbers. A slot is written only while the word names the other slot. A word's value
//!   belongs to one configuration for ever, so a swap that succeeds has read the numbers in
//!   force.
//! * **New numbers take effect at once** where a word can hold them. They are written into the
//!   slot that is not in use and put into force by a swap of the word, so no thread waits for a
//!   change.
//! * **A denial writes nothing**, and was true at one instant. The word is read again after the
//!   numbers; if it has changed, the decision is made again.
//! * **Clocks.** Each thread brings its own reading. A reading older than another thread's earns
//!   nothing, so bounds hold for any disorder of the readings. A denied caller has read the clock
//!   after the state, so a thread that stalled in between receives a wait that is no longer than
//!   the true one. A denial can be wrong only by the disorder of the clocks (tenths of a
//!   microsecond between the cores of one processor). Refunds, credits and new numbers are the
//!   exceptions: what they leave depends on what has been earned by now. They need a reading that
//!   is not before those of the grants so far.
//!
//! Orderings, in all lock-free forms: a swap is `AcqRel` and a load of a word `Acquire`, so a
//! thread that sees a state sees the numbers it was made with. The fields of a configuration are
//! read `Relaxed`. An `Acquire` fence and a second load of the word then confirm them, as in a
//! sequence lock.
//!
//! # States and costs
//!
//! * [`gcra`]: one word, the TAT. A try costs a clock reading and one swap.
//! * [`two_timeline`]: one word and a cached clock (average), or two words. A try costs one
//!   addition while behind schedule; otherwise a clock reading and one swap or two.
//! * [`sliding_log`]: one word for each permit, and a hint at the oldest. A try costs a clock
//!   reading, one swap, and one more swap at every eighth try.
//! * [`all_of`]: a few words for each limit, in a slot that one word names. A try costs a clock
//!   reading, one swap of the word and two of a bitmap.
//!
//! # Without 64-bit atomics
//!
//! A target without them, such as `thumbv7m-none-eabi`, has all policies, ledgers and queues, but
//! no lock-free forms. There [`Locked`], which is always sealed, stands for every one of them.
//! The same holds for every target under `--cfg rategate_without_atomics`, with which the checks
//! build this form.
//!
//! ```
//! use rategate_core::concurrent::{LockFreeVerdict, Concurrent, LockFree};
//! use rategate_core::gcra::Gcra;
//! use rategate_core::ledger::Ledger;
//!
//! let mut ledger = Ledger::new(Gcra::per_second(1), 0);
//! let lock_free = ledger.lock_free(0);
//! assert!(matches!(lock_free.try_acquire(|| 5, 1), LockFreeVerdict::Granted { start_ns: 5, .. }));
//! assert!(matches!(lock_free.try_acquire(|| 5, 1), LockFreeVerdict::Denied { .. }));
//!
//! // A change that needs the ledger takes the state back first.
//! ledger.seal(&lock_free);
//! assert_eq!(lock_free.try_acquire(|| 5, 1), LockFreeVerdict::Sealed);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::fmt::{self, Debug};
use core::num::NonZeroU64;

use crate::ledger::Ledger;
use crate::limit::Limit;
use crate::packed::Packed;
use crate::policy::Policy;
use crate::provisional::Provisional;
use crate::refund::{RefundBasis, RefundEpoch};
use crate::verdict::{STARTED, Ticket};

#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub mod all_of;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub mod gcra;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub mod sliding_log;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub mod two_timeline;

mod any_policy;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
mod cell;
mod limiter_policy;
#[cfg(not(all(target_has_atomic = "64", not(rategate_without_atomics))))]
mod locked;
mod policies;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
mod sync;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
mod word;

pub use self::any_policy::LockFreeAny;
pub use self::limiter_policy::LimiterPolicy;

/// A decision of a lock-free form, or its statement that the ledger has to decide.
#[must_use = "an unused grant is a lost permit"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockFreeVerdict {
    /// The permits were granted and start now.
    Granted {
        /// The clock reading from which the grant counts. This is the caller's own reading, an
        /// earlier one where the clock was not read, or, for several limits, the newest start if
        /// that is later.
        start_ns: u64,
        /// The scheduled time, as in [`Grant`](crate::verdict::Grant::scheduled_ns).
        scheduled_ns: u64,
        /// The permits that one more try could take at that reading.
        leftover: Leftover,
    },
    /// Nothing was taken.
    Denied {
        /// The exact time until the same try passes if no other caller comes first.
        retry_after_ns: NonZeroU64,
    },
    /// The lock-free form is sealed or cannot decide this; the ledger can.
    Sealed,
}

impl LockFreeVerdict {
    #[inline]
    fn denied(retry_after_ns: u64) -> Self {
        // A denial with a wait of zero is not valid.
        NonZeroU64::new(retry_after_ns)
            .map_or(Self::Sealed, |retry_after_ns| Self::Denied { retry_after_ns })
    }

    #[inline]
    const fn with_epoch(self, epoch: RefundEpoch) -> Self {
        match self {
            Self::Granted { start_ns, scheduled_ns, leftover } => {
                Self::Granted { start_ns, scheduled_ns, leftover: leftover.with_epoch(epoch) }
            }
            other => other,
        }
    }
}

/// Permits left behind by a grant, with the refund epoch at that time.
///
/// They are not counted until a caller needs them, because the division would cost as much as the
/// decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leftover {
    left: Amount,
    epoch: RefundEpoch,
}

/// The leftover permits in the form in which the lock-free state knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Parts { parts: u64, parts_per_permit: u64 },
    Permits { permits: u64, busy_until_ns: u64 },
}

impl Leftover {
    /// Returns a leftover of `permits` whole permits.
    #[must_use]
    pub const fn of(permits: u64) -> Self {
        Self::in_parts(permits, 1)
    }

    pub(crate) const fn in_parts(parts: u64, parts_per_permit: u64) -> Self {
        Self { left: Amount::Parts { parts, parts_per_permit }, epoch: RefundEpoch::UNKNOWN }
    }

    /// Returns a leftover of `permits` behind a grant that keeps its limit busy.
    ///
    /// Without that grant, the limit could not have been at rest before `busy_until_ns`.
    #[must_use]
    pub const fn booked(permits: u64, busy_until_ns: u64) -> Self {
        Self { left: Amount::Permits { permits, busy_until_ns }, epoch: RefundEpoch::UNKNOWN }
    }

    /// Returns this leftover with the refund epoch `epoch`.
    #[must_use]
    pub const fn with_epoch(self, epoch: RefundEpoch) -> Self {
        Self { epoch, ..self }
    }

    /// Returns the refund epoch at the time of the grant.
    #[must_use]
    pub const fn epoch(self) -> RefundEpoch {
        self.epoch
    }

    /// Returns the ticket of a grant that started at `start_ns` and left these permits.
    #[must_use]
    pub const fn ticket(self, start_ns: u64) -> Ticket {
        let rest = match self.left {
            Amount::Parts { parts, parts_per_permit } => {
                RefundBasis::Leftover { parts, parts_per_permit }
            }
            Amount::Permits { busy_until_ns, .. } => RefundBasis::BusyUntil(busy_until_ns),
        };
        Ticket { start_ns, serial: STARTED, rest, epoch: self.epoch }
    }

    /// Returns `true` if fewer than `permits` whole permits are left. Costs no division.
    #[must_use]
    pub const fn is_below(self, permits: u64) -> bool {
        match self.left {
            Amount::Permits { permits: left, .. } => left < permits,
            Amount::Parts { parts_per_permit: 0, .. } => 0 < permits,
            Amount::Parts { parts, parts_per_permit } => {
                match permits.checked_mul(parts_per_permit) {
                    Some(needed) => parts < needed,
                    None => true,
                }
            }
        }
    }

    /// Returns the number of whole permits left.
    #[must_use]
    pub const fn permits(self) -> u64 {
        match self.left {
            Amount::Permits { permits, .. } => permits,
            Amount::Parts { parts, parts_per_permit } => {
                match parts.checked_div(parts_per_permit) {
                    Some(permits) => permits,
                    None => 0,
                }
            }
        }
    }
}

/// A batch of permits that a thread has taken in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitBatch {
    /// The number of permits in the batch.
    pub permits: u64,
    /// The clock reading from which the permits count.
    pub start_ns: u64,
    /// The state that the batch left behind, which a refund of some of its permits needs.
    mark: Mark,
}

/// The result of a request for a batch from a lock-free form.
#[must_use = "an unused batch is lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchVerdict {
    /// At least the requested minimum was taken.
    Taken(PermitBatch),
    /// Nothing was taken.
    Denied {
        /// The exact time until a try for the minimum passes if no other caller comes first.
        retry_after_ns: NonZeroU64,
    },
    /// The lock-free form cannot decide, or has no batches. A try can decide.
    Unknown,
}

/// The state that a batch has left behind, and the configuration to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    value: u64,
    base: u64,
    /// The refund epoch at that time.
    epoch: RefundEpoch,
}

/// The lock-free form of a policy.
pub trait LockFree: Debug + Send + Sync {
    /// `true` if a limit can outgrow its lock-free form and then needs a larger one.
    const GROWS: bool = false;

    /// Takes `permits` at once or not at all.
    ///
    /// `read_ns` reads the clock: as a rule once, again if other threads were faster, and not at
    /// all where the decision does not depend on it.
    fn try_acquire(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict;

    /// Decides a try in the usual case: the state is open, and no other thread interferes.
    ///
    /// Returns `None` where only [`try_acquire`](Self::try_acquire) can decide. This is the part
    /// worth inlining: its verdict stays in registers as long as no called function may return it
    /// instead.
    #[inline]
    fn try_briefly(
        &self,
        _read_ns: impl Fn() -> u64 + Copy,
        _permits: u64,
    ) -> Option<LockFreeVerdict> {
        None
    }

    /// Takes between `min` and `max` permits in one step, for a thread to use one by one.
    fn take_batch(&self, _read_ns: impl Fn() -> u64 + Copy, _min: u64, _max: u64) -> BatchVerdict {
        BatchVerdict::Unknown
    }

    /// Returns the wait until a try would pass, zero if it would now, or `None` if sealed. Takes
    /// nothing.
    fn peek(&self, now_ns: u64, permits: u64) -> Option<u64>;

    /// Returns the maximum number of permits that a try could take, or `None` if sealed.
    fn remaining(&self, now_ns: u64) -> Option<u64>;
}

/// A policy with a lock-free form.
///
/// A custom policy without one declares `type LockFree = Locked`.
pub trait HasLockFree: Policy + Send {
    /// The lock-free form.
    type LockFree: OwnedLockFree<Self>;

    /// Returns the number of permits that a thread should take at a time, to use them one by one.
    fn batch(&self) -> u64 {
        1
    }

    /// Returns the numbers by which a table packs states of this policy into a part of a word, if
    /// it can.
    fn packed(&self) -> Option<Packed> {
        None
    }

    /// Returns a state packed into a part of a word, if it fits.
    fn pack(&self, _state: &Self::State, _now_ns: u64) -> Option<u64> {
        None
    }

    /// Returns the state that a packed value stands for.
    fn unpack(&self, _value: u64, _now_ns: u64) -> Option<Self::State> {
        None
    }
}

/// The side of a lock-free form that only the thread with the ledger's lock uses.
///
/// Only this crate provides implementations: the values that they return can be made nowhere
/// else.
pub trait OwnedLockFree<P: Policy>: LockFree + Sized {
    /// Returns a sealed lock-free form that is large enough for `policy`.
    fn new(policy: &P) -> Self;

    /// Takes the state out. Returns `None` if the form is sealed already.
    fn seal(&self, policy: &P) -> Option<P::State>;

    /// Puts a state in. Returns `true` if the form can hold it and is open now.
    ///
    /// Only for a sealed form, and only by the thread that holds the ledger's lock.
    fn open(&self, policy: &P, state: &P::State, now_ns: u64) -> bool;

    /// Switches to the numbers of `new` at a reading of `read_ns`, atomically and without
    /// sealing.
    ///
    /// Returns that reading, or `None` if the switch was not possible; then nothing has changed.
    /// Only by the thread that holds the ledger's lock.
    ///
    /// The clock is read after the state that is replaced, so never before a grant contained in
    /// it. By an earlier reading permits would count as used longer than they have been, and
    /// shrink with the new numbers.
    fn change(&self, _old: &P, _new: &P, _read_ns: impl Fn() -> u64 + Copy) -> Option<u64> {
        None
    }

    /// Returns the newest clock reading that a state out of this form shows.
    ///
    /// Returns zero where a decision by an earlier reading could not pass the limit.
    fn newest_ns(&self, _policy: &P, _state: &P::State) -> u64 {
        0
    }

    /// Returns how many of the last `left` permits of a batch can be credited at `now_ns`.
    ///
    /// With that many credited, the state is as if they had never been taken. `epoch` is the
    /// refund epoch now. The other permits have been earned again and are lost. Call this only
    /// once for each batch.
    fn take_back(
        &self,
        _policy: &P,
        _batch: PermitBatch,
        _left: u64,
        _now_ns: u64,
        _epoch: RefundEpoch,
    ) -> u64 {
        0
    }

    /// Stores the refund epoch for grants from now on.
    ///
    /// Only by the thread that holds the ledger's lock, and only after the refunds or changes
    /// that it counts.
    fn note_epoch(&self, _epoch: RefundEpoch) {}

    /// Returns `true` if `policy` is too large for this form and a larger one could hold it.
    fn is_outgrown_by(&self, _policy: &P) -> bool {
        false
    }

    /// Returns the number of decisions under the lock that should pay for the next opening.
    fn price(&self) -> u64 {
        0
    }
}

/// A live limit with a lock-free form.
///
/// A limiter shares one of these between threads behind a lock, with the lock-free form before
/// it.
pub trait Concurrent: Provisional {
    /// The lock-free form.
    type LockFree: LockFree;

    /// The part of an unused limit that is kept while its lock-free form decides.
    ///
    /// Its debug form is that of the numbers in force.
    type Seed: Debug + Send;

    /// Returns all that must be kept of a limit whose state is in `lock_free`.
    ///
    /// Returns `None`, which keeps the limit as it is, if anything has happened to it that a
    /// fresh limit would not know of.
    fn seed(&self, lock_free: &Self::LockFree) -> Option<Self::Seed>;

    /// Returns the limit made from a seed. The lock-free form must then be [sealed](Self::seal)
    /// into it.
    fn grown(seed: &Self::Seed) -> Self;

    /// Writes the debug form of the numbers in force.
    ///
    /// # Errors
    ///
    /// Those of the formatter.
    fn fmt_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Returns a lock-free form of this limit, open where possible.
    fn lock_free(&mut self, now_ns: u64) -> Self::LockFree;

    /// Takes the state back from the lock-free form, if it is there. From then on the limit
    /// decides everything.
    fn seal(&mut self, lock_free: &Self::LockFree);

    /// Moves the state into the lock-free form at `now_ns`, if the form can hold it.
    ///
    /// Only after a [`seal`](Self::seal) under the same lock.
    fn open(&mut self, lock_free: &Self::LockFree, now_ns: u64);

    /// Returns `true` if the limit is too large for its lock-free form and
    /// [another](Self::lock_free) could hold it.
    fn has_outgrown(&self, _lock_free: &Self::LockFree) -> bool {
        false
    }

    /// Returns the number of permits that a thread should [take in a batch](LockFree::take_batch).
    ///
    /// It is 1 where batches do not pay, or would break a promise.
    fn batch(&self) -> u64 {
        1
    }

    /// Credits what is left of a batch, as far as the limit is then as if it had never been
    /// taken.
    ///
    /// Only after a [`seal`](Self::seal) under the same lock.
    fn return_batch(
        &mut self,
        _lock_free: &Self::LockFree,
        _now_ns: u64,
        _batch: PermitBatch,
        _left: u64,
    ) {
    }
}

impl<P: HasLockFree> Ledger<P> {
    /// Puts `policy` into force, also in the lock-free form if it is open.
    ///
    /// Concurrent tries see the old numbers or the new ones. Where those fit into the word, no
    /// thread waits for the change.
    pub fn change(&mut self, lock_free: &P::LockFree, read_ns: impl Fn() -> u64 + Copy, policy: P) {
        let latest_ns = self.clamp(0);
        if let Some(now_ns) = lock_free.change(self.policy(), &policy, || read_ns().max(latest_ns))
        {
            // The state here is stale; only the numbers count.
            self.reconfigure(now_ns, policy);
            lock_free.note_epoch(self.epoch());
        } else {
            self.seal(lock_free);
            let now_ns = self.clamp(read_ns());
            self.reconfigure(now_ns, policy);
            self.open(lock_free, now_ns);
        }
    }
}

/// An unused ledger: its numbers, and its clock reading when it was made.
#[derive(Clone)]
pub struct Seed<P> {
    policy: P,
    made_ns: u64,
}

impl<P: Debug> Debug for Seed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy.fmt(f)
    }
}

impl<P: HasLockFree> Concurrent for Ledger<P> {
    type LockFree = P::LockFree;
    type Seed = Seed<P>;

    fn seed(&self, lock_free: &P::LockFree) -> Option<Seed<P>> {
        let made_ns = self.pristine_at_ns()?;
        // The ledger must keep a state that the lock-free form does not hold.
        lock_free.remaining(made_ns)?;
        Some(Seed { policy: self.policy().clone(), made_ns })
    }

    fn grown(seed: &Seed<P>) -> Self {
        Self::new(seed.policy.clone(), seed.made_ns)
    }

    fn fmt_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy().fmt(f)
    }

    fn lock_free(&mut self, now_ns: u64) -> P::LockFree {
        let lock_free = P::LockFree::new(self.policy());
        self.open(&lock_free, now_ns);
        lock_free
    }

    fn seal(&mut self, lock_free: &P::LockFree) {
        if let Some(state) = lock_free.seal(self.policy()) {
            // A later reading may have dropped permits that an earlier one would still need to
            // see.
            let newest_ns = lock_free.newest_ns(self.policy(), &state);
            self.resume(state, newest_ns);
        }
    }

    fn open(&mut self, lock_free: &P::LockFree, now_ns: u64) {
        if let Some(now_ns) = self.at_rest(now_ns, lock_free.price()) {
            lock_free.note_epoch(self.epoch());
            let _ = lock_free.open(self.policy(), self.state(), now_ns);
        }
    }

    fn has_outgrown(&self, lock_free: &P::LockFree) -> bool {
        lock_free.is_outgrown_by(self.policy())
    }

    fn batch(&self) -> u64 {
        self.policy().batch()
    }

    fn return_batch(
        &mut self,
        lock_free: &P::LockFree,
        now_ns: u64,
        batch: PermitBatch,
        left: u64,
    ) {
        let left = left.min(batch.permits);
        let (at_ns, epoch) = (self.clamp(now_ns), self.epoch());
        let permits = lock_free.take_back(self.policy(), batch, left, at_ns, epoch);
        self.restore(now_ns, permits);
    }
}

/// The lock-free form of a limit that has none: always sealed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Locked;

impl LockFree for Locked {
    fn try_acquire(&self, _read_ns: impl Fn() -> u64 + Copy, _permits: u64) -> LockFreeVerdict {
        LockFreeVerdict::Sealed
    }

    fn peek(&self, _now_ns: u64, _permits: u64) -> Option<u64> {
        None
    }

    fn remaining(&self, _now_ns: u64) -> Option<u64> {
        None
    }
}

impl<P: Policy> OwnedLockFree<P> for Locked {
    fn new(_policy: &P) -> Self {
        Self
    }

    fn seal(&self, _policy: &P) -> Option<P::State> {
        None
    }

    fn open(&self, _policy: &P, _state: &P::State, _now_ns: u64) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `is_below` agrees with the division without performing it.
    #[test]
    fn below_is_what_the_division_says() {
        let numbers = [0, 1, 2, 3, 6, 7, 8, 1 << 32, u64::MAX / 3, u64::MAX - 1, u64::MAX];
        for parts in numbers {
            for parts_per_permit in numbers {
                let leftover = Leftover::in_parts(parts, parts_per_permit);
                for permits in numbers {
                    let below = leftover.permits() < permits;
                    assert_eq!(leftover.is_below(permits), below, "{leftover:?} {permits}");
                    let booked = Leftover::booked(parts, parts_per_permit);
                    assert_eq!(booked.is_below(permits), parts < permits);
                }
            }
        }
    }
}
