//! Local handles: batches of permits that a thread takes ahead.

use std::fmt;
use std::sync::Arc;

use rategate_core::concurrent::{BatchVerdict, PermitBatch};
use rategate_core::fair::ClassId;
use rategate_core::line::Request;

use crate::clock::wait::Precision;
use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, Grant};
use crate::error::{AcquireError, Closed, TryAcquireError};
use crate::on_demand::Batches;
use crate::shared::Shared;

/// The longest time that a batch may be used.
///
/// It is judged by a time that other callers move when they take a batch, or wait.
const LASTS_NS: u64 = 1_000_000;

/// A local handle for one thread, which takes permits in batches and grants them one by one.
///
/// [`Limiter::local`](crate::Limiter::local) returns it. As a rule a grant reads no clock, and
/// writes nothing that other threads read.
///
/// ```
/// use rategate::{Gcra, Limiter, TryAcquireError};
///
/// let limiter = Limiter::new(Gcra::per_second(10_000_000).burst(100_000));
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             // Every thread has a handle of its own.
///             let mut local = limiter.local()?;
///             for _ in 0..1_000 {
///                 assert!(local.try_acquire(1)?.is_granted());
///             }
///             Ok::<(), TryAcquireError>(())
///         });
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Which limits
///
/// A batch is what a token bucket's rate brings in 50 us, at most a 64th of its burst and at most
/// 1024 permits. Slower or smaller buckets, and all other policies, have batches of one: there
/// the handle is no more and no less than the limiter. A log bounds every window, and a schedule
/// every operation; a batch would break that.
///
/// # Bound
///
/// With `h` handles and batches of `m`, any window of length `W` sees at most `C(W) + h m`
/// permits, where `C(W)` is the limit's own ceiling. The permits of a batch were granted when it
/// was taken (`docs/theory.md`, section 9). In the long run nothing is added to the rate.
///
/// # Expiry and credit
///
/// A batch lasts for a millisecond, by the newest time that any handle or waiting caller of the
/// limiter has seen. The rest of a batch is credited after that, or when the handle is dropped. The
/// limit takes back only what it still lacks: permits that the rate has brought again since are not
/// granted twice, and nothing comes back across a change of the limit. An idle handle keeps at
/// most `m` permits from the other callers, once.
pub struct Local<C: Clock = MonotonicClock> {
    shared: Arc<Shared<C>>,
    batches: Arc<Batches>,
    precision: Precision,
    class: ClassId,
    /// The number of permits to take at a time, by the limit in force at `epoch`.
    batch: u64,
    epoch: u64,
    left: u64,
    /// The number of calls that took permits of the batch.
    calls: u64,
    /// The start and the end of the batch: zero without one.
    start_ns: u64,
    until_ns: u64,
    permit_batch: Option<PermitBatch>,
}

impl<C: Clock> Local<C> {
    pub(crate) fn new(
        shared: Arc<Shared<C>>,
        precision: Precision,
        class: ClassId,
    ) -> Result<Self, Closed> {
        let batches = Arc::clone(shared.on_demand().batches_or_new());
        let (epoch, batch) = shared.batch()?;
        let (left, calls, start_ns, until_ns, permit_batch) = (0, 0, 0, 0, None);
        Ok(Self {
            shared,
            batches,
            precision,
            class,
            batch,
            epoch,
            left,
            calls,
            start_ns,
            until_ns,
            permit_batch,
        })
    }

    /// Takes `permits` at once, or reports how long until they could be taken. Never waits.
    ///
    /// The grant's start is the instant at which its batch was taken.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::try_acquire`](crate::Limiter::try_acquire).
    #[inline]
    pub fn try_acquire(&mut self, permits: u64) -> Result<Decision, TryAcquireError> {
        if let Some(grant) = self.take_unused(permits) {
            return Ok(Decision::Granted(grant));
        }
        let decided = self.try_shared(permits);
        // A grant was counted where it was taken.
        if let Ok(Decision::Denied(_)) = decided {
            self.shared.record_try(permits, &decided);
        }
        decided
    }

    /// Takes `permits`, and waits until they may start.
    ///
    /// Blocks the thread: in a task, use [`AsyncLimiter`](crate::AsyncLimiter). In a debug build
    /// with the feature `tokio` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::acquire`](crate::Limiter::acquire).
    pub fn acquire(&mut self, permits: u64) -> Result<Grant, AcquireError> {
        if let Some(grant) = self.take_unused(permits) {
            return Ok(grant);
        }
        match self.try_shared(permits) {
            Ok(Decision::Granted(grant)) => Ok(grant),
            // The same call to the limiter finds the same error, or the wait.
            Ok(Decision::Denied(_)) | Err(_) => {
                self.shared.acquire(Request::of(permits).in_class(self.class), self.precision, None)
            }
        }
    }

    /// Returns the number of permits that are left of the batch.
    #[must_use]
    pub const fn unused(&self) -> u64 {
        self.left
    }

    /// Returns the number of permits that the handle takes at a time.
    #[must_use]
    pub const fn batch(&self) -> u64 {
        self.batch
    }

    #[inline]
    fn take_unused(&mut self, permits: u64) -> Option<Grant> {
        // Two words that are hardly ever written.
        let lasts = self.batches.seen_ns() < self.until_ns && self.batches.epoch() == self.epoch;
        let left = self.left.checked_sub(permits).filter(|_| lasts && permits > 0)?;
        self.left = left;
        self.calls = self.calls.wrapping_add(1);
        Some(Grant::at(self.start_ns, self.start_ns, permits))
    }

    /// Takes a batch, or tries the limiter. Does not count a denial, which may not be final.
    #[inline(never)]
    fn try_shared(&mut self, permits: u64) -> Result<Decision, TryAcquireError> {
        // The limiter decides requests that would soon use up a batch; the current batch is kept.
        let is_small = (1..=self.batch >> 2).contains(&permits);
        if !is_small && self.batches.epoch() == self.epoch {
            return self.try_limiter(permits);
        }
        if self.permit_batch.is_some() {
            self.return_batch();
        }
        if self.batches.epoch() != self.epoch {
            (self.epoch, self.batch) = self.shared.batch()?;
        }
        if is_small {
            match self.shared.take_batch(permits, self.batch) {
                BatchVerdict::Taken(permit_batch) => {
                    self.left = permit_batch.permits.saturating_sub(permits);
                    self.start_ns = permit_batch.start_ns;
                    self.until_ns = permit_batch.start_ns.saturating_add(LASTS_NS);
                    self.permit_batch = Some(permit_batch);
                    self.calls = 1;
                    let start_ns = permit_batch.start_ns;
                    return Ok(Decision::Granted(Grant::at(start_ns, start_ns, permits)));
                }
                BatchVerdict::Denied { retry_after_ns } => {
                    return Ok(Decision::denied(Some(retry_after_ns)));
                }
                BatchVerdict::Unknown => {}
            }
        }
        self.try_limiter(permits)
    }

    fn try_limiter(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        let decided = self.shared.try_uncounted(permits);
        if let Ok(Decision::Granted(_)) = decided {
            self.shared.record_try(permits, &decided);
        }
        decided
    }

    /// Credits the rest of the batch.
    fn return_batch(&mut self) {
        let left = std::mem::take(&mut self.left);
        self.until_ns = 0;
        let Some(permit_batch) = self.permit_batch.take() else { return };
        if let Some(stats) = self.shared.stats() {
            stats.record_batch(self.calls, permit_batch.permits.saturating_sub(left));
        }
        if left > 0 {
            self.shared.return_batch(permit_batch, left);
        }
    }
}

impl<C: Clock> Drop for Local<C> {
    fn drop(&mut self) {
        self.return_batch();
    }
}

impl<C: Clock> fmt::Debug for Local<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own: [(&str, &dyn fmt::Debug); 2] = [("held", &self.left), ("batch", &self.batch)];
        self.shared.fmt_as(f, "Local", &own)
    }
}
