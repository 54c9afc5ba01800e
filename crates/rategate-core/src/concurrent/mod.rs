//! Lock-free forms of policies, which threads share without a mutex.
//!
//! A lock-free state answers tries as its policy does. It is a word or a ring of words that
//! threads change by compare-and-swap. For several limits it is a cell that threads replace as a
//! whole. What words cannot hold, such as a promise that may be cancelled, needs the
//! [`Ledger`](crate::ledger::Ledger).
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
//! * [`window`]: one word, the count of a window. A try costs a clock reading and one swap, and one
//!   in each window takes the lock.
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

use core::fmt::Debug;

use crate::debt::{Charged, Debt};
use crate::packed::Packed;
use crate::policy::Policy;
use crate::refund::RefundEpoch;

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
mod live;
#[cfg(not(all(target_has_atomic = "64", not(rategate_without_atomics))))]
mod locked;
mod policies;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
mod sync;
mod verdict;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub mod window;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
mod word;

pub use self::any_policy::LockFreeAny;
pub use self::limiter_policy::LimiterPolicy;
pub use self::live::{Concurrent, Seed};
pub use self::verdict::{BatchVerdict, LockFreeVerdict, PermitBatch};
pub use crate::leftover::Leftover;

/// The lock-free form of a policy.
pub trait LockFree: Debug + Send + Sync {
    /// `true` if a limit can outgrow its lock-free form and then needs a larger one.
    const GROWS: bool = false;

    /// Takes `permits` at once or not at all.
    ///
    /// `read_ns` reads the clock: as a rule once, again if other threads were faster, and not at
    /// all where the decision does not depend on it.
    fn try_acquire(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict;

    /// Decides a try in the usual case, or returns [`LockFreeVerdict::Sealed`] where only
    /// [`try_acquire`](Self::try_acquire) can.
    ///
    /// A form that is small in the usual case (its state is open, and no other thread interferes)
    /// decides that case here. It is worth inlining: its verdict stays in registers as long as no
    /// called function may return it instead.
    #[inline]
    fn try_briefly(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict {
        self.try_acquire(read_ns, permits)
    }

    /// Takes between `min` and `max` permits in one step, for a thread to use one by one.
    fn take_batch(&self, _read_ns: impl Fn() -> u64 + Copy, _min: u64, _max: u64) -> BatchVerdict {
        BatchVerdict::Unknown
    }

    /// Books permits that have been used already, whether they fit or not. Returns `None` if only
    /// the ledger can.
    fn charge(&self, _read_ns: impl Fn() -> u64 + Copy, _permits: u64, _: Debt) -> Option<Charged> {
        None
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
