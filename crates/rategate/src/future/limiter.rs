//! The limiter for tasks: the handle that tasks share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::{Acquire, AcquireHold, AcquireOwned, AcquireWithin};
use super::driver;
use super::reservation::AsyncReservation;
use crate::clock::{Clock, MonotonicClock};
use crate::error::AcquireError;
use crate::limiter::Limiter;
use crate::permit::Permit;
use rategate_core::all_of::AllOf;
use rategate_core::span::whole_ns;

/// A limit for any number of tasks, under any executor.
///
/// It is a [`Limiter`] whose waits are futures: the same limit, the same wait queue. Tasks of
/// several runtimes and threads that block may share it, and are served in arrival order; a task
/// arrives at its first poll.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::{AsyncLimiter, ManualClock, SlidingLog};
///
/// # fn block_on<F: Future>(future: F) -> F::Output {
/// #     let mut future = std::pin::pin!(future);
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     loop {
/// #         if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) {
/// #             return done;
/// #         }
/// #     }
/// # }
/// # block_on(async {
/// let clock = ManualClock::new();
/// let limiter = AsyncLimiter::with_clock(SlidingLog::new(2, Duration::from_secs(1)), clock);
/// for page in ["first", "second", "third"] {
///     let grant = limiter.acquire(1).await?;
///     println!("{page} at {:?}", grant.released_at());
/// }
/// assert_eq!(limiter.now(), Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # In a task, use this one
///
/// The verbs of a [`Limiter`] that wait block their thread, and with it every task that the
/// thread drives. Their results are no futures, so the compiler refuses to await them: it reports
/// that a `Result<Grant, AcquireError>` is not a future. The limiter whose waits are futures is
/// this one.
///
/// ```compile_fail,E0277
/// # use rategate::{Gcra, Limiter};
/// # async fn task(limiter: Limiter) {
/// let grant = limiter.acquire(1).await; // `AsyncLimiter::from(limiter).acquire(1).await` does
/// # }
/// ```
///
/// A thread of a tokio runtime that would block panics in a debug build with the feature `tokio`.
///
/// # The timer
///
/// All tasks that wait for one limiter have one timer, that of its [clock](Clock::timer), which
/// is set for the first of them. When it fires, the wait queue is served right there: no task
/// needs to be polled for the others to go on. By default it is a thread of the process, which
/// serves any executor. To wait by a runtime's own timer, see [`Timed`](crate::wait::Timed) and,
/// with features, `TokioClock`, `TokioTimer` and `AsyncIoTimer`.
///
/// A timer that wakes late delays the waiters. A task takes its permits when it is polled, and
/// they count from then. So real starts obey the bound, and lateness costs rate, as with threads.
///
/// A limit that makes up for no lateness therefore has the first task woken before its start, on
/// a clock that [runs in real time](Clock::is_real_time). It is woken early by most of the mean
/// lateness of its polls, and by 100 us at most. A poll in that time waits without returning. An
/// [average](crate::policy::Mode::Average) schedule loses nothing with a timer of any coarseness,
/// and a bucket loses nothing that its burst makes up for.
///
/// # Cost
///
/// A permit that is available costs what a try costs. A wait takes the lock twice, and 40 bytes
/// besides the future. Leaving the queue takes the lock once, at any position in the queue.
pub struct AsyncLimiter<C = MonotonicClock> {
    limiter: Limiter<C>,
}

impl AsyncLimiter {
    /// Creates a limiter for tasks with fresh state, in real time.
    #[must_use]
    pub fn new(limits: impl Into<AllOf>) -> Self {
        Self::from(Limiter::new(limits))
    }
}

impl<C> AsyncLimiter<C>
where
    C: Clock + 'static,
{
    /// Creates a limiter for tasks with fresh state, on `clock`.
    #[must_use]
    pub fn with_clock(limits: impl Into<AllOf>, clock: C) -> Self {
        Self::from(Limiter::with_clock(limits, clock))
    }
}

impl<C> From<Limiter<C>> for AsyncLimiter<C>
where
    C: Clock + 'static,
{
    /// Creates a handle for tasks on a limit that threads may use too.
    fn from(limiter: Limiter<C>) -> Self {
        driver::install(limiter.shared());
        Self { limiter }
    }
}

impl<C: Clock> AsyncLimiter<C> {
    /// Returns the limiter for threads, which shares the limit and the wait queue.
    ///
    /// Its own `acquire` blocks the thread: do not call that in a task.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter<C> {
        &self.limiter
    }

    /// Takes `permits`, and waits in the queue until they may start.
    ///
    /// The waiter joins the queue at the first poll. [`Acquire`] documents the drop of the
    /// future.
    ///
    /// # Errors
    ///
    /// The errors of [`Limiter::acquire`].
    pub fn acquire(&self, permits: u64) -> Acquire<'_, C> {
        Acquire::new(self.limiter.shared(), self.limiter.request(permits))
    }

    /// Takes `permits` as [`acquire`](Self::acquire) does, as a future that borrows nothing.
    ///
    /// It can be kept between polls: in a stream, a service or a type of your own.
    ///
    /// ```
    /// use rategate::wait::AcquireOwned;
    /// use rategate::{AsyncLimiter, Gcra};
    ///
    /// struct Gate {
    ///     limiter: AsyncLimiter,
    ///     wait: Option<AcquireOwned>,
    /// }
    ///
    /// let limiter = AsyncLimiter::new(Gcra::per_second(10));
    /// let mut gate = Gate { limiter, wait: None };
    /// gate.wait = Some(gate.limiter.acquire_owned(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`Limiter::acquire`].
    pub fn acquire_owned(&self, permits: u64) -> AcquireOwned<C> {
        AcquireOwned::new(Arc::clone(self.limiter.shared()), self.limiter.request(permits))
    }

    /// Takes `permits` if they may start within `max_wait` of the first poll, and waits until then.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TooLong`] at once, with nothing taken, if the start would come later than
    /// that; otherwise as [`acquire`](Self::acquire).
    pub fn acquire_within(&self, permits: u64, max_wait: Duration) -> AcquireWithin<'_, C> {
        self.acquire(permits).within(whole_ns(max_wait))
    }

    /// Takes `permits`, waits in the queue until they may start, and returns them as a value
    /// whose drop ends the operation.
    ///
    /// # Errors
    ///
    /// The errors of [`Limiter::acquire`].
    pub async fn permit(&self, permits: u64) -> Result<Permit<C>, AcquireError> {
        let grant = self.acquire(permits).await?;
        Ok(Permit::new(Arc::clone(self.limiter.shared()), grant, permits))
    }

    /// Waits until an estimate of `permits` fits, and holds it until the true cost is known. The
    /// future borrows nothing.
    ///
    /// See [`Limiter::hold`](crate::Limiter::hold).
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    pub fn hold(&self, permits: u64, ttl: Duration) -> AcquireHold<C> {
        AcquireHold::new(self.limiter.clone(), self.limiter.request(permits), whole_ns(ttl))
    }

    /// Holds an estimate as [`hold`](Self::hold) does, if it fits within `max_wait` of the first
    /// poll.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire_within`](Self::acquire_within).
    pub fn hold_within(&self, permits: u64, ttl: Duration, max_wait: Duration) -> AcquireHold<C> {
        let request = self.limiter.request(permits).within(Some(whole_ns(max_wait)));
        AcquireHold::new(self.limiter.clone(), request, whole_ns(ttl))
    }

    /// Takes `permits` as [`permit`](Self::permit) does, if they may start within `max_wait`.
    ///
    /// The time counts from the first poll.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire_within`](Self::acquire_within).
    pub async fn permit_within(
        &self,
        permits: u64,
        max_wait: Duration,
    ) -> Result<Permit<C>, AcquireError> {
        let grant = self.acquire_within(permits, max_wait).await?;
        Ok(Permit::new(Arc::clone(self.limiter.shared()), grant, permits))
    }

    /// Takes `permits` for the first instant at which they may start, behind all waiters. Does
    /// not wait.
    ///
    /// # Errors
    ///
    /// The errors of [`Limiter::reserve`].
    pub fn reserve(&self, permits: u64) -> Result<AsyncReservation<C>, AcquireError> {
        self.limiter.reserve(permits).map(AsyncReservation::new)
    }

    /// Reserves `permits` as [`reserve`](Self::reserve) does, if they may start within `max_wait`.
    ///
    /// # Errors
    ///
    /// The errors of [`Limiter::reserve_within`].
    pub fn reserve_within(
        &self,
        permits: u64,
        max_wait: Duration,
    ) -> Result<AsyncReservation<C>, AcquireError> {
        self.limiter.reserve_within(permits, max_wait).map(AsyncReservation::new)
    }

    /// Returns a handle for tasks on a limiter whose tasks have their timer already.
    pub(super) const fn of(limiter: Limiter<C>) -> Self {
        Self { limiter }
    }
}

impl<C> Clone for AsyncLimiter<C> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone() }
    }
}

impl<C: Clock> fmt::Debug for AsyncLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limiter.shared().fmt_as(f, "AsyncLimiter", &[])
    }
}
