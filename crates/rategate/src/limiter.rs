//! The limiter: a limit on a clock that threads share.

mod options;
mod returns;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::all_of::AllOf;
use rategate_core::fair::ClassId;
use rategate_core::ledger::Ledger;
use rategate_core::line::Request;
use rategate_core::span::whole_ns;

use crate::clock::wait::{CancelToken, Precision};
use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, Grant};
use crate::error::{AcquireError, Closed, ReconfigureError, TryAcquireError};
use crate::reservation::Reservation;
use crate::shared::{LimiterGuard, Shared};

/// A limit for any number of threads, on a clock.
///
/// Clones share the limit. Tries take no lock where the policy has a lock-free state (a token
/// bucket, two timelines, a sliding log, a window) and the wait queue is empty. Waiters are served in
/// arrival order, and later tries queue behind them; the lock for that is held for one decision.
///
/// | I want | verb |
/// |---|---|
/// | to wait for permits | [`acquire`](Self::acquire) |
/// | to wait, but not for long | [`acquire_within`](Self::acquire_within) |
/// | never to wait | [`try_acquire`](Self::try_acquire) |
/// | never to wait, millions of times a second | a local handle: [`local`](Self::local) |
/// | to learn my start and wait in my own way | [`reserve`](Self::reserve) |
/// | to end my operation by a drop | [`permit`](Self::permit), [`try_permit`](Self::try_permit) |
/// | less of the limit for a lower priority | [`try_permit_in_share`](Self::try_permit_in_share) |
/// | to hold an estimate until its cost is known | [`hold`](Self::hold), or try: [`try_hold`] |
/// | to read the status without taking | [`peek`](Self::peek), [`remaining`](Self::remaining) |
///
/// [`try_hold`]: Self::try_hold
///
/// # Example
///
/// Threads share a limiter by cloning it, or by borrowing it as here.
///
/// ```
/// use rategate::{Gcra, Limiter};
///
/// let limiter = Limiter::new(Gcra::per_second(1000));
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| limiter.acquire(1).map(|grant| grant.released_at()));
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Closing
///
/// [`close`](Self::close) ends all waits at once. From then on every verb that can fail fails
/// with `Closed`. That always means that nothing was taken, or that it has been refunded.
///
/// Earlier promises remain the caller's: a [`Reservation`] can be kept after that, and waiting
/// for one whose start has come yields its grant.
///
/// # Cost
///
/// A try costs one clock reading and one atomic swap; a denial makes no swap. In average mode,
/// while behind schedule, it costs one atomic addition and no clock reading.
/// `docs/performance.md` has figures. Without a lock-free state, or while callers wait, a try
/// costs one lock, one clock reading and the policy's own decision; once it has denied a permit, it
/// denies further ones by a clock reading alone. Waiting costs one sleep and one more reading.
///
/// # Changing the limit
///
/// [`reconfigure`](Self::reconfigure) takes effect at one instant: a try sees the old limit or
/// the new one, never some of each. The numbers of a token bucket and of an average schedule are
/// swapped in while other threads go on trying; other changes are made under the lock.
pub struct Limiter<C = MonotonicClock> {
    shared: Arc<Shared<C>>,
    precision: Precision,
    class: ClassId,
}

impl Limiter {
    /// Creates a limiter with fresh state in real time.
    ///
    /// [`AllOf`](crate::AllOf) makes one of several limits, which a call must pass together.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{AllOf, Gcra, Limiter, SlidingLog};
    ///
    /// // Ten a second on average, and never more than 12 within any 2 seconds.
    /// let both = AllOf::default()
    ///     .and(Gcra::per_second(10).burst(10))
    ///     .and(SlidingLog::new(12, Duration::from_secs(2)));
    /// let limiter = Limiter::new(both);
    /// assert!(limiter.try_acquire(10)?.is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(limits: impl Into<AllOf>) -> Self {
        Self::with_clock(limits, MonotonicClock::new())
    }
}

impl<C: Clock> Limiter<C> {
    /// Creates a limiter with fresh state on `clock`.
    #[must_use]
    pub fn with_clock(limits: impl Into<AllOf>, clock: C) -> Self {
        Self::over(Ledger::new(limits, clock.now_ns()), clock)
    }

    /// Replaces the limit, for waiters too.
    ///
    /// A bucket keeps what it has left, as far as its new burst holds it, and everything else keeps
    /// what is used. A limit of another policy begins as used up as the one before it was.
    /// Permits earned so far were earned at the old rate. Waiters start by the new limit, and the
    /// promises of reservations are kept.
    ///
    /// # Errors
    ///
    /// [`ReconfigureError::Closed`]; [`ReconfigureError::Limit`] for another number of limits, and
    /// for a change to or from a limit on operations in flight. Nothing changes then.
    pub fn reconfigure(&self, limits: impl Into<AllOf>) -> Result<(), ReconfigureError> {
        let limits = limits.into();
        let max_permits = self.stats().map(|_| limits.max_at_once());
        self.shared.change_numbers(limits)??;
        if let Some(max_permits) = max_permits {
            self.record_reconfigure(|| max_permits);
        }
        Ok(())
    }

    /// Creates a limiter over any live limit, on the clock that the limit was used with so far.
    #[must_use]
    pub fn over(limit: Ledger, clock: C) -> Self {
        let (precision, class) = (Precision::default(), ClassId::FIRST);
        Self { shared: Arc::new(Shared::new(limit, clock)), precision, class }
    }

    /// Takes `permits` at once, or reports how long until they could be taken. Never waits.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Decision, Limiter, ManualClock, SlidingLog};
    ///
    /// let clock = ManualClock::new();
    /// let policy = SlidingLog::new(1, Duration::from_secs(1));
    /// let limiter = Limiter::with_clock(policy, clock.clone());
    /// assert!(limiter.try_acquire(1)?.is_granted());
    /// clock.advance(Duration::from_millis(400));
    /// let Decision::Denied(denial) = limiter.try_acquire(1)? else { unreachable!() };
    /// assert_eq!(denial.retry_after(), Some(Duration::from_millis(600)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::ExceedsCapacity`] for more permits than could ever pass together, and
    /// [`TryAcquireError::Closed`].
    #[inline]
    pub fn try_acquire(&self, permits: u64) -> Result<Decision, TryAcquireError> {
        self.shared.try_acquire(permits)
    }

    /// Takes `permits`, and waits until they may start.
    ///
    /// The caller queues behind all earlier callers, threads and tasks. The permits are taken
    /// when the thread runs, and count from then. So real starts obey the bound however late
    /// threads wake, and lateness costs rate
    /// ([`with_promised_starts`](Self::with_promised_starts)). A schedule promises instants, and
    /// lateness does not shift it. Permits that come back by a release, as those of
    /// [`Concurrency`](crate::Concurrency), are waited for too. If the limiter is closed before
    /// the permits are taken, none are.
    ///
    /// Blocks the thread: in a task, use [`AsyncLimiter`](crate::AsyncLimiter). In a debug build
    /// with the feature `tokio` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// [`AcquireError`], at once, where waiting would not end in a grant;
    /// [`AcquireError::Closed`] also while waiting.
    pub fn acquire(&self, permits: u64) -> Result<Grant, AcquireError> {
        self.shared.acquire(self.request(permits), self.precision, None)
    }

    /// Takes `permits` if they may start within `max_wait`, and waits until then.
    ///
    /// Blocks the thread: in a task, use [`AsyncLimiter`](crate::AsyncLimiter). In a debug build
    /// with the feature `tokio` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TooLong`] at once, with nothing taken, if the start would come later than
    /// that; [`AcquireError::DeadlinePassed`] if this becomes known only later; otherwise as
    /// [`acquire`](Self::acquire).
    pub fn acquire_within(&self, permits: u64, max_wait: Duration) -> Result<Grant, AcquireError> {
        let request = self.request(permits).within(Some(whole_ns(max_wait)));
        self.shared.acquire(request, self.precision, None)
    }

    /// Takes `permits`, and waits until they may start, unless the cancellation token is raised.
    ///
    /// The caller may raise it to end this wait, or one token may end many waits. An interrupted
    /// wait refunds all that it held, and those behind it move up.
    ///
    /// Blocks the thread: in a task, use [`AsyncLimiter`](crate::AsyncLimiter). In a debug build
    /// with the feature `tokio` it panics on a thread that drives tasks.
    ///
    /// ```
    /// use std::thread;
    /// use rategate::wait::CancelToken;
    /// use rategate::{AcquireError, Gcra, Limiter};
    ///
    /// let limiter = Limiter::new(Gcra::per_hour(1));
    /// limiter.acquire(1)?;
    /// let cancel = CancelToken::new();
    /// thread::scope(|scope| {
    ///     let patient = scope.spawn(|| limiter.acquire_unless(1, &cancel));
    ///     cancel.cancel();
    ///     assert_eq!(patient.join().unwrap(), Err(AcquireError::Interrupted));
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AcquireError::Interrupted`]; otherwise as [`acquire`](Self::acquire). If the start has
    /// come when the token is raised, the grant is the caller's: its permits are charged.
    pub fn acquire_unless(
        &self,
        permits: u64,
        cancel: &CancelToken,
    ) -> Result<Grant, AcquireError> {
        self.shared.acquire(self.request(permits), self.precision, Some(cancel))
    }

    /// Takes `permits` for the first instant at which they may start, and does not wait for it.
    ///
    /// # Errors
    ///
    /// [`AcquireError`].
    pub fn reserve(&self, permits: u64) -> Result<Reservation<C>, AcquireError> {
        let promise = self.shared.promise(permits, None)?;
        Ok(Reservation::new(Arc::clone(&self.shared), self.precision, promise))
    }

    /// Reserves `permits` as [`reserve`](Self::reserve) does, if they may start within `max_wait`.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TooLong`] with nothing taken if they may not; otherwise as
    /// [`reserve`](Self::reserve).
    pub fn reserve_within(
        &self,
        permits: u64,
        max_wait: Duration,
    ) -> Result<Reservation<C>, AcquireError> {
        let promise = self.shared.promise(permits, Some(whole_ns(max_wait)))?;
        Ok(Reservation::new(Arc::clone(&self.shared), self.precision, promise))
    }

    /// Returns how long until a try for `permits` would pass, if no other call comes first.
    ///
    /// Zero if it would pass now, otherwise what a [denial](crate::Denial::retry_after)
    /// says. Takes nothing. To act on
    /// the result, use [`try_acquire`](Self::try_acquire): a peek and a try are two calls, and
    /// another caller may come between them.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError`].
    pub fn peek(&self, permits: u64) -> Result<Option<Duration>, TryAcquireError> {
        Ok(self.peek_ns(permits)?.map(Duration::from_nanos))
    }

    /// Takes the lock, which is held until the guard is released.
    pub(crate) fn guard(&self) -> Result<LimiterGuard<'_, C>, Closed> {
        self.shared.guard()
    }

    pub(crate) fn peek_ns(&self, permits: u64) -> Result<Option<u64>, TryAcquireError> {
        self.shared.peek(permits)
    }

    /// Returns the largest number of permits that a try could take now.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn remaining(&self) -> Result<u64, Closed> {
        self.shared.remaining()
    }

    /// Returns the number of waiters, threads and tasks.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn waiting(&self) -> Result<u32, Closed> {
        self.shared.section(|section| section.state().waiting())
    }

    /// Closes the limiter for all clones. Waiters wake with `Closed`, and their promises are
    /// refunded.
    ///
    /// Nothing new is promised after `close` has returned.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Returns `true` if the limiter has been closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Returns the time of the limiter's clock: the time since the clock's origin.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now_ns())
    }

    /// Returns a request in this handle's class.
    pub(crate) const fn request(&self, permits: u64) -> Request {
        Request::of(permits).in_class(self.class)
    }

    /// Records a change of the limit to one that grants at most `max_permits` at once.
    fn record_reconfigure(&self, max_permits: impl FnOnce() -> u64) {
        if let Some(stats) = self.stats() {
            stats.record_reconfigure(max_permits());
        }
    }

    pub(crate) const fn precision(&self) -> Precision {
        self.precision
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared<C>> {
        &self.shared
    }
}

impl<C> Limiter<C> {
    /// Returns `true` if this is the only handle: there is no waiter, reservation or permit.
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Returns the address of its lock in memory, which no other limiter has while this one exists.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter};
    ///
    /// let limiter = Limiter::new(Gcra::per_second(1));
    /// assert_eq!(limiter.address(), limiter.clone().address());
    /// assert_ne!(limiter.address(), Limiter::new(Gcra::per_second(1)).address());
    /// ```
    #[must_use]
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Takes the limit out, if this is the only handle.
    pub(crate) fn into_limit(self) -> Result<Ledger, Self> {
        let Self { shared, precision, class } = self;
        Arc::try_unwrap(shared).map(Shared::into_limit).map_err(|shared| Self {
            shared,
            precision,
            class,
        })
    }
}

impl<C> Clone for Limiter<C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..*self }
    }
}

/// Writes one line: the policy, what remains and the number of waiters, as far as these can be
/// read without waiting for another thread.
impl<C: Clock> fmt::Debug for Limiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt_as(f, "Limiter", &[])
    }
}
