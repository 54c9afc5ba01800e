//! A ledger with its lock-free form in front of it.

use alloc::boxed::Box;
use core::fmt;

use super::{Fast, PermitBatch};
use crate::all_of::AllOf;
use crate::any_policy::{AnyPolicy, Member};
use crate::error::LimitError;
use crate::fixed_window::FixedWindow;
use crate::gcra::Gcra;
use crate::ledger::Ledger;
use crate::sliding_log::SlidingLog;
use crate::two_timeline::TwoTimeline;

/// The numbers of an unused limit. They are all that has to be kept while the lock-free form
/// decides, in few bytes.
#[derive(Clone)]
pub struct Seed(Numbers);

#[derive(Clone)]
enum Numbers {
    Bucket(Gcra),
    Log(SlidingLog),
    Window(FixedWindow),
    Schedule(Box<TwoTimeline>),
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy().fmt(f)
    }
}

impl Seed {
    fn new(policy: AnyPolicy) -> Option<Self> {
        Some(Self(match policy {
            AnyPolicy::Gcra(policy) => Numbers::Bucket(policy),
            AnyPolicy::SlidingLog(policy) => Numbers::Log(policy),
            AnyPolicy::FixedWindow(policy) => Numbers::Window(policy),
            AnyPolicy::TwoTimeline(policy) => Numbers::Schedule(policy.into()),
            _ => return None,
        }))
    }

    fn policy(&self) -> AnyPolicy {
        match &self.0 {
            Numbers::Bucket(policy) => (*policy).into(),
            Numbers::Log(policy) => (*policy).into(),
            Numbers::Window(policy) => (*policy).into(),
            Numbers::Schedule(policy) => (**policy).into(),
        }
    }

    /// Returns the limit made from the seed, whose clock is at zero. The lock-free form must then be
    /// [sealed](Ledger::seal) into it, or changed.
    #[must_use]
    pub fn grown(&self) -> Ledger {
        Ledger::new(self.policy(), 0)
    }
}

/// A limiter shares a ledger between threads behind a lock, with its lock-free form before it.
impl Ledger {
    /// Returns all that must be kept of a limit whose state is in `lock_free`.
    ///
    /// Returns `None`, which keeps the limit as it is, for several limits, and if anything has
    /// happened that a fresh limit would not know of.
    #[must_use]
    pub fn seed(&self, lock_free: &Fast) -> Option<Seed> {
        // The ledger must keep a state that the lock-free form does not hold.
        lock_free.remaining(self.pristine_at_ns()?)?;
        Seed::new(self.limits().only()?.policy())
    }

    /// Returns a lock-free form of this limit, open where possible.
    pub fn lock_free(&mut self, now_ns: u64) -> Fast {
        let lock_free = self.sealed_form();
        self.open(&lock_free, now_ns);
        lock_free
    }

    /// Returns a sealed lock-free form that could hold this limit.
    #[must_use]
    pub fn sealed_form(&self) -> Fast {
        Fast::sealed(self.limits())
    }

    /// Takes the states back from the lock-free form, if they are there. From then on the ledger
    /// decides everything.
    pub fn seal(&mut self, lock_free: &Fast) {
        if let Some((started, newest_ns)) = lock_free.seal(self.limits()) {
            // A later reading may have dropped permits that an earlier one would still need to
            // see.
            self.resume(started, newest_ns);
        }
    }

    /// Moves the states into the lock-free form at `now_ns`, if the form can hold them.
    ///
    /// Only after a [`seal`](Self::seal) under the same lock.
    pub fn open(&mut self, lock_free: &Fast, now_ns: u64) {
        if let Some(price) = lock_free.price()
            && let Some(now_ns) = self.at_rest(now_ns, price)
        {
            lock_free.open(self.limits(), self.epoch(), now_ns);
        }
    }

    /// Returns `true` if the limit is too large for its lock-free form, or of other policies, and
    /// [another](Self::lock_free) could hold it.
    #[must_use]
    pub fn has_outgrown(&self, lock_free: &Fast) -> bool {
        lock_free.is_outgrown_by(self.limits())
    }

    /// Puts other numbers into force, also in the lock-free form if it is open.
    ///
    /// Concurrent tries see the old numbers or the new ones. Where those fit into the word, no
    /// thread waits for the change.
    ///
    /// # Errors
    ///
    /// Those of [`reconfigure`](Self::reconfigure); nothing changes then.
    pub fn change(
        &mut self,
        lock_free: &Fast,
        read_ns: impl Fn() -> u64 + Copy,
        limits: impl Into<AllOf>,
    ) -> Result<(), LimitError> {
        let limits = limits.into();
        let latest_ns = self.clamp(0);
        if let Some(now_ns) = lock_free.change(self.limits(), &limits, || read_ns().max(latest_ns))
        {
            // The state here is stale; only the numbers count.
            let changed = self.reconfigure(now_ns, limits);
            lock_free.note_epoch(self.epoch());
            return changed;
        }
        self.seal(lock_free);
        let now_ns = self.clamp(read_ns());
        let changed = self.reconfigure(now_ns, limits);
        self.open(lock_free, now_ns);
        changed
    }

    /// Returns the number of permits that a thread should [take in a batch](Fast::take_batch).
    ///
    /// It is 1 where batches do not pay, or would break a promise.
    #[must_use]
    pub fn batch(&self) -> u64 {
        match self.limits().only() {
            Some(Member::Gcra(policy, _)) => policy.batch(),
            _ => 1,
        }
    }

    /// Credits what is left of a batch, as far as the limit is then as if it had never been
    /// taken.
    ///
    /// Only after a [`seal`](Self::seal) under the same lock.
    pub fn return_batch(&mut self, lock_free: &Fast, now_ns: u64, batch: PermitBatch, left: u64) {
        let left = left.min(batch.permits);
        let (at_ns, epoch) = (self.clamp(now_ns), self.epoch());
        let permits = lock_free.take_back(self.limits(), batch, left, at_ns, epoch);
        self.restore(now_ns, permits);
    }
}
