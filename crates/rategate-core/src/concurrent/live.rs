//! Live limits with a lock-free form in front of them.

use core::fmt::{self, Debug};

use super::{HasLockFree, LockFree, OwnedLockFree, PermitBatch};
use crate::holds::Holding;
use crate::ledger::Ledger;
use crate::limit::Limit;
use crate::provisional::Provisional;

/// A live limit with a lock-free form.
///
/// A limiter shares one of these between threads behind a lock, with the lock-free form before
/// it.
pub trait Concurrent: Provisional + Holding {
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
