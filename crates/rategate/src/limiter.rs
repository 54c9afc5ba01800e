//! A limit that threads share, on a clock.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrent::{Concurrent, Twinned};
use rategate_core::fair::ClassId;
use rategate_core::ledger::Ledger;
use rategate_core::policy::Policy;
use rategate_core::queue::{Bounds as QueueBounds, Request};
use rategate_core::verdict::Settled;

use crate::clock::{Clock, MonotonicClock};
use crate::decision::{Decision, Grant};
use crate::error::{AcquireError, ClassError, Closed, LimiterError, ReconfigureError, SettleError};
use crate::local::Local;
use crate::reservation::Reservation;
use crate::shared::{Hold, Shared};
use crate::stats::LimitStats;
use crate::wait::{Alarm, Precision};

/// A limit for any number of threads, on a clock.
///
/// Clones share the limit. Tries take no lock where the policy has a lock-free twin (a token
/// bucket, two timelines, a sliding log) and nobody waits. Whoever has to wait is served in the order
/// of asking, and later tries stand behind him; the lock for that is held for one decision.
///
/// | I want | verb |
/// |---|---|
/// | to wait for my turn | [`acquire`](Self::acquire) |
/// | to wait, but not for long | [`acquire_within`](Self::acquire_within) |
/// | never to wait | [`try_acquire`](Self::try_acquire) |
/// | never to wait, millions of times a second | a handle of my own: [`local`](Self::local) |
/// | to know my turn and wait in my own way | [`reserve`](Self::reserve) |
/// | to say when my operation has ended, by a drop | [`permit`](Self::permit), [`try_permit`](Self::try_permit) |
/// | to give back what had no effect | [`refund`](Self::refund) |
/// | to take an estimate, and tell the true cost later | [`settle`](Self::settle) |
/// | to look without taking | [`peek`](Self::peek), [`remaining`](Self::remaining) |
///
/// # Example
///
/// Threads share a limiter by cloning it, or by borrowing it as here.
///
/// ```
/// use rategate::{Gcra, Limiter};
///
/// let limiter = Limiter::new(Gcra::new("1000/s".parse()?, 1)?);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| limiter.acquire(1).map(|grant| grant.release_ns()));
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Closing
///
/// [`close`](Self::close) ends all waits at once. From then on every verb that can fail fails with
/// `Closed`, which always means that nothing is taken, or that it has been given back.
///
/// What was promised before is the caller's still: a [`Reservation`] can be kept after that, and
/// waiting for one whose start has come gives its grant.
///
/// # Cost
///
/// A try: one clock reading and one atomic swap, a denial no swap; in average mode while behind one
/// atomic addition and no clock. `docs/performance.md` has figures. Without a twin, or while somebody waits:
/// one lock, one clock reading, and the policy's own decision. Waiting costs one sleep and one more
/// reading.
///
/// # Changing the limit
///
/// [`reconfigure`](Self::reconfigure) takes effect at one instant: a try sees the old numbers or the
/// new ones, never some of each. Those of a token bucket and of an average schedule are swapped in
/// while others go on trying; other changes are made under the lock.
pub struct Limiter<L: Concurrent, C = MonotonicClock> {
    shared: Arc<Shared<L, C>>,
    precision: Precision,
    class: ClassId,
}

impl<P: Twinned> Limiter<Ledger<P>> {
    /// A fresh limit in real time.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self::with_clock(policy, MonotonicClock::new())
    }
}

impl<P: Twinned, C: Clock> Limiter<Ledger<P>, C> {
    /// A fresh limit on `clock`.
    #[must_use]
    pub fn with_clock(policy: P, clock: C) -> Self {
        let now_ns = clock.now_ns();
        Self::over(Ledger::new(policy, now_ns), clock)
    }

    /// Puts `policy` into force. Permits in use stay in use, and the rest of a larger allowance is there at once;
    /// what has been earned so far was earned at the old rate. Waiters start by the new numbers, and the promises of
    /// reservations are kept.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn reconfigure(&self, policy: P) -> Result<(), Closed> {
        let most = self.stats().map(|_| most_at_once(&policy));
        self.shared.change_numbers(policy)?;
        if let Some(most) = most {
            self.saw_change(|| most);
        }
        Ok(())
    }
}

impl Limiter<AllOf> {
    /// Fresh limits in real time, which a call must pass together. With none, everything passes.
    ///
    /// Up to four token buckets and fixed windows answer tries without a lock; where another policy is
    /// among them, all take it.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter, SlidingLog};
    ///
    /// // Ten a second on average, and never more than 12 within any 2 seconds.
    /// let limiter = Limiter::all_of([
    ///     Gcra::new("10/s".parse()?, 10)?.into(),
    ///     SlidingLog::new(12, 2_000_000_000)?.into(),
    /// ]);
    /// assert!(limiter.try_acquire(10)?.is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn all_of(policies: impl IntoIterator<Item = AnyPolicy>) -> Self {
        Self::all_of_with_clock(policies, MonotonicClock::new())
    }
}

impl<C: Clock> Limiter<AllOf, C> {
    /// Fresh limits on `clock`, which a call must pass together.
    #[must_use]
    pub fn all_of_with_clock(policies: impl IntoIterator<Item = AnyPolicy>, clock: C) -> Self {
        let now_ns = clock.now_ns();
        Self::over(AllOf::new(policies, now_ns), clock)
    }

    /// Puts new numbers for all the policies into force, in their order, also for those who wait. The
    /// promises of reservations are kept.
    ///
    /// # Errors
    ///
    /// [`ReconfigureError::Limit`] unless they are as many and of the same kinds, and
    /// [`ReconfigureError::Closed`]. Nothing changes then.
    pub fn reconfigure(&self, policies: &[AnyPolicy]) -> Result<(), ReconfigureError> {
        self.shared.change_numbers(policies)??;
        self.saw_change(|| policies.iter().map(most_at_once).min().unwrap_or(u64::MAX));
        Ok(())
    }
}

impl<L: Concurrent, C: Clock> Limiter<L, C> {
    /// Any live limit on the clock that it has been used with so far.
    #[must_use]
    pub fn over(limit: L, clock: C) -> Self {
        let (precision, class) = (Precision::default(), ClassId::FIRST);
        Self { shared: Arc::new(Shared::new(limit, clock)), precision, class }
    }

    /// The same limit, waited for in another manner by this handle and by the clones made of it.
    ///
    /// ```
    /// use rategate::{Limiter, Mode, Precision, TwoTimeline};
    ///
    /// let limiter = Limiter::new(TwoTimeline::new("2000/s".parse()?, Mode::Average, None));
    /// let exact = limiter.clone().with_precision(Precision::Spin);
    /// assert!(exact.acquire(1)?.release_ns() <= exact.acquire(1)?.release_ns());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// Keeps the rate where waiters wake late, and not the bound: for those who pace, and do not limit.
    /// For all clones, and all who wait.
    ///
    /// Otherwise a waiter's permits count from the instant at which it really starts. A bucket of burst 1
    /// and strict spacing lose what waiters wake late by then: `docs/performance.md` says how much.
    /// With this option they count from the instant that was promised, so real starts obey
    /// `C(W + d)`, `d` being the largest lateness. Schedules (average, damped, [`Pacer`](crate::Pacer))
    /// promise instants in any case.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter};
    ///
    /// let pace = Limiter::new(Gcra::new("2000/s".parse()?, 1)?).with_promised_starts();
    /// let (first, second) = (pace.acquire(1)?, pace.acquire(1)?);
    /// assert!(second.promised_ns() - first.promised_ns() >= 500_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_promised_starts(self) -> Self {
        self.shared.set_promises_instants(true);
        self
    }

    /// Sets, for all clones, how long a waiter whose start has come may leave its permits untaken: a
    /// future that is not polled, a thread that is stopped. After that they go to the next in line,
    /// and the waiter is first in line when it comes. Without this it is four times the largest
    /// lateness seen, from 10 ms to a minute.
    #[must_use]
    pub fn with_grace(self, period: Duration) -> Self {
        self.shared.set_grace(Some(whole_ns(period)));
        self
    }

    /// Counts, for all clones and from now on, what the limit grants and denies, under a name of at most
    /// [`MOST_NAME_BYTES`](crate::stats::MOST_NAME_BYTES). If it is counted already, under that name. What
    /// is counted, and what it costs, is in [`stats`](crate::stats).
    ///
    /// A grant is near the limit if it leaves less than a tenth of what can be taken now, or after the last
    /// change of the numbers: so count from the beginning.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter};
    ///
    /// let limiter = Limiter::new(Gcra::new("10/s".parse()?, 10)?).with_stats("uploads");
    /// limiter.acquire(4)?;
    /// let stats = limiter.stats().expect("they were just asked for");
    /// assert_eq!(stats.counts().to_string(),
    ///     "granted 1 calls of 4 permits, 0 near the limit; denied 0 of 0; 0 overflows");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_stats(self, name: &str) -> Self {
        self.shared.count_as(name);
        self
    }

    /// The limit's statistics, if it has [some](Self::with_stats).
    #[must_use]
    pub fn stats(&self) -> Option<&LimitStats> {
        self.shared.stats()
    }

    /// The same limit for a class of callers with a line of their own. While callers of several
    /// classes wait, each class is granted permits in proportion to its weight, at all times to within
    /// its weight and its largest request (deficit round robin, theory 2.8); within a class in the order
    /// of asking. A class that is alone gets everything, and one that is idle saves nothing up. This
    /// handle and the clones made of it are a class of weight 1.
    ///
    /// A crawler with pages of unknown size, under one bandwidth. Each fetches by its own class, and
    /// [settles](Self::settle) by it:
    ///
    /// ```
    /// use rategate::{Gcra, Limiter};
    ///
    /// let bandwidth = Limiter::new(Gcra::new("100000/s".parse()?, 100_000)?);
    /// let (slow_sites, fast_sites) = (bandwidth.class(1)?, bandwidth.class(1)?);
    ///
    /// let page = slow_sites.acquire(10_000)?;
    /// slow_sites.settle(&page, 12_500)?;
    /// let page = fast_sites.acquire(10_000)?;
    /// fast_sites.settle(&page, 1_200)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Classes are for kinds of callers, made once: none is ever taken away. [Bounds of the
    /// queue](Self::bound_queue) hold for each class's line. A grant costs one step for each class, and
    /// to tell a start behind the first, as for a deadline, one for each who waits.
    ///
    /// # Errors
    ///
    /// [`ClassError`].
    pub fn class(&self, weight: u64) -> Result<Self, ClassError> {
        let weight = NonZeroU64::new(weight).ok_or(ClassError::ZeroWeight)?;
        let class = self.shared.turn(|turn| turn.add_class(weight))??;
        Ok(Self { class, ..self.clone() })
    }

    /// A handle for one thread, which takes permits in batches: for many tries a second on many
    /// threads. See [`Local`] for what that does to the limit.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn local(&self) -> Result<Local<L, C>, Closed> {
        Local::new(Arc::clone(&self.shared), self.precision, self.class)
    }

    /// Takes `permits` at once, or says how long until they could be taken. Never waits.
    ///
    /// ```
    /// use rategate::{Decision, Limiter, ManualClock, SlidingLog};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::with_clock(SlidingLog::new(1, 1_000_000_000)?, clock.clone());
    /// assert!(limiter.try_acquire(1)?.is_granted());
    /// clock.advance(400_000_000);
    /// let Decision::Denied(denial) = limiter.try_acquire(1)? else { unreachable!() };
    /// assert_eq!(denial.retry_after(), Some(std::time::Duration::from_millis(600)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LimiterError::ExceedsCapacity`] for more permits than could ever pass together, and
    /// [`LimiterError::Closed`].
    #[inline]
    pub fn try_acquire(&self, permits: u64) -> Result<Decision, LimiterError> {
        self.shared.try_acquire(permits)
    }

    /// Takes `permits`, and waits until they may start.
    ///
    /// The wait is in line behind all who asked before, threads and tasks. The permits are taken when
    /// the thread runs, and count from then: real starts obey the bound however late threads wake, and
    /// what lateness costs is rate ([`with_promised_starts`](Self::with_promised_starts)). A schedule promises
    /// instants, and lateness does not shift it. Permits that come back by a release, as those of
    /// [`Concurrency`](crate::Concurrency), are waited for too. If the limiter is closed before the
    /// permits are taken, nothing is.
    ///
    /// Blocks the thread: in a task, use [`AsyncLimiter`](crate::AsyncLimiter). In a debug build with the feature
    /// `tokio` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// [`AcquireError`], at once, where waiting would not end in a grant; [`AcquireError::Closed`]
    /// also while waiting.
    pub fn acquire(&self, permits: u64) -> Result<Grant, AcquireError> {
        self.shared.acquire(self.request(permits), self.precision, None)
    }

    /// Takes `permits` if they may start within `longest`, and waits until then.
    ///
    /// Blocks the thread: in a task, use [`AsyncLimiter`](crate::AsyncLimiter). In a debug build with the feature
    /// `tokio` it panics on a thread that drives tasks.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TooLong`] at once, with nothing taken, if the start would come later than
    /// that, and [`AcquireError::DeadlinePassed`] where that turns out later; otherwise as
    /// [`acquire`](Self::acquire).
    pub fn acquire_within(&self, permits: u64, longest: Duration) -> Result<Grant, AcquireError> {
        let request = self.request(permits).within(Some(whole_ns(longest)));
        self.shared.acquire(request, self.precision, None)
    }

    /// Takes `permits`, and waits until they may start, unless somebody raises the alarm before: the
    /// caller who gives up, or whoever wants all of some kind to. An interrupted wait gives back all
    /// that it held, and those behind it move up.
    ///
    /// Blocks the thread: in a task, use [`AsyncLimiter`](crate::AsyncLimiter). In a debug build with the feature
    /// `tokio` it panics on a thread that drives tasks.
    ///
    /// ```
    /// use std::thread;
    /// use rategate::{AcquireError, Alarm, Gcra, Limiter};
    ///
    /// let limiter = Limiter::new(Gcra::new("1/h".parse()?, 1)?);
    /// limiter.acquire(1)?;
    /// let alarm = Alarm::new();
    /// thread::scope(|scope| {
    ///     let patient = scope.spawn(|| limiter.acquire_unless(1, &alarm));
    ///     alarm.raise();
    ///     assert_eq!(patient.join().unwrap(), Err(AcquireError::Interrupted));
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`AcquireError::Interrupted`]; otherwise as [`acquire`](Self::acquire). If the start has come
    /// when the alarm is raised, the grant is the caller's: its permits are spent.
    pub fn acquire_unless(&self, permits: u64, alarm: &Alarm) -> Result<Grant, AcquireError> {
        self.shared.acquire(self.request(permits), self.precision, Some(alarm))
    }

    /// Takes `permits` for the first instant at which they may start, and does not wait for it.
    ///
    /// # Errors
    ///
    /// [`AcquireError`].
    pub fn reserve(&self, permits: u64) -> Result<Reservation<L, C>, AcquireError> {
        let promise = self.shared.promise(permits, None)?;
        Ok(Reservation::new(Arc::clone(&self.shared), self.precision, promise))
    }

    /// The same, if that instant is at most `longest` away.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TooLong`] with nothing taken if it is not; otherwise as
    /// [`reserve`](Self::reserve).
    pub fn reserve_within(
        &self,
        permits: u64,
        longest: Duration,
    ) -> Result<Reservation<L, C>, AcquireError> {
        let promise = self.shared.promise(permits, Some(whole_ns(longest)))?;
        Ok(Reservation::new(Arc::clone(&self.shared), self.precision, promise))
    }

    /// How long until a try for `permits` would pass, if nobody else comes: zero if it would pass
    /// now, `None` where time alone cannot help. Takes nothing.
    ///
    /// To act on the answer, [`try_acquire`](Self::try_acquire): a peek and a try are two calls,
    /// and somebody else may come between.
    ///
    /// # Errors
    ///
    /// [`LimiterError`].
    pub fn peek(&self, permits: u64) -> Result<Option<Duration>, LimiterError> {
        Ok(self.peek_ns(permits)?.map(Duration::from_nanos))
    }

    /// Holds the lock, until it is released.
    pub(crate) fn hold(&self) -> Result<Hold<'_, L, C>, Closed> {
        self.shared.hold()
    }

    pub(crate) fn peek_ns(&self, permits: u64) -> Result<Option<u64>, LimiterError> {
        self.shared.peek(permits)
    }

    /// The most permits that a try could take now.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn remaining(&self) -> Result<u64, Closed> {
        self.shared.remaining()
    }

    /// Bounds the queue of those who wait, threads and tasks, for whoever comes from now on. Without
    /// this it holds a million, and any number of permits.
    ///
    /// ```
    /// use rategate::{AcquireError, AsyncLimiter, ManualClock, QueueBounds, SlidingLog};
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    ///
    /// let log = SlidingLog::new(1, 1_000_000_000)?;
    /// let limiter = AsyncLimiter::with_clock(log, ManualClock::stepped());
    /// limiter.limiter().bound_queue(QueueBounds::new(1))?;
    /// # let mut context = Context::from_waker(Waker::noop());
    /// let (mut first, mut second, mut third) =
    ///     (pin!(limiter.acquire(1)), pin!(limiter.acquire(1)), pin!(limiter.acquire(1)));
    /// assert!(first.as_mut().poll(&mut context).is_ready());
    /// assert!(second.as_mut().poll(&mut context).is_pending());
    /// assert_eq!(third.as_mut().poll(&mut context), Poll::Ready(Err(AcquireError::QueueFull)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn bound_queue(&self, bounds: QueueBounds) -> Result<(), Closed> {
        self.shared.turn(|turn| turn.set_bounds(bounds))
    }

    /// How many threads and tasks stand in line.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn waiting(&self) -> Result<u32, Closed> {
        self.shared.turn(|turn| turn.waiting())
    }

    /// Puts permits in from outside. Returns whether a policy here takes them; only a
    /// [`BackfillPool`](crate::BackfillPool) does.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn refill(&self, permits: u64) -> Result<bool, Closed> {
        self.shared.change(|limit, now_ns| limit.refill(now_ns, permits))
    }

    /// Gives back `permits` of a grant that are known to have had no effect and to have none later: a
    /// request that failed before it was sent, an estimate that was too high. Returns how many went
    /// back, which may be fewer: only so many that the limit is at least as full as if they had never been
    /// taken. Each permit can go back once; of a grant by a [`Local`] handle's batch none does.
    ///
    /// ```
    /// use rategate::{Limiter, ManualClock, SlidingLog};
    ///
    /// let limiter = Limiter::with_clock(SlidingLog::new(2, 1_000_000_000)?, ManualClock::new());
    /// let grant = limiter.acquire(2)?;
    /// assert_eq!(limiter.refund(&grant, 1)?, 1, "one of them was never sent");
    /// assert!(limiter.try_acquire(1)?.is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn refund(&self, grant: &Grant, permits: u64) -> Result<u64, Closed> {
        let grant = grant.as_granted();
        self.shared.turn_in_order(|turn| turn.refund(self.class, &grant, permits))
    }

    /// Makes good for an estimate, once it is known that the operation took `actual` permits: what was
    /// too much goes back as by [`refund`](Self::refund), what was too little is a debt that later
    /// calls wait behind. Nobody waits here. Once for each grant.
    ///
    /// In any window, effects are over the limit by no more than what was estimated too low in it.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter, ManualClock, Settled};
    ///
    /// // A page of unknown size, at 1000 bytes a second.
    /// let limiter = Limiter::with_clock(Gcra::new("1000/s".parse()?, 1_000)?, ManualClock::new());
    /// let page = limiter.acquire(400)?;
    /// assert_eq!(limiter.settle(&page, 700)?, Settled::Owed { permits: 300 });
    /// assert_eq!(limiter.remaining()?, 300);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SettleError`]. There is a most that one call may owe.
    pub fn settle(&self, grant: &Grant, actual: u64) -> Result<Settled, SettleError> {
        let grant = grant.as_granted();
        Ok(self.shared.turn_in_order(|turn| turn.settle(self.class, &grant, actual))??)
    }

    /// Takes note that operations have ended. Returns whether a policy here counts operations in
    /// flight; only [`Concurrency`](crate::Concurrency) and [`CommitLog`](crate::CommitLog) do. With
    /// the first their permits are free again; to the second they have committed.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn release(&self, permits: u64) -> Result<bool, Closed> {
        self.shared.release(permits)
    }

    /// Takes note that operations in flight provably had no effect and never will, so that their
    /// permits are free at once. Returns whether a policy here counts operations in flight.
    ///
    /// One that failed may have had its effect all the same: it has [ended](Self::release).
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn forgo(&self, permits: u64) -> Result<bool, Closed> {
        self.shared.forgo(permits)
    }

    /// Closes the limiter for all clones: whoever waits for a start to come wakes with `Closed`,
    /// and gives back what he had been promised. Nothing new is promised after `close` has
    /// returned.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Whether the limiter has been closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// What the limiter's clock shows, in nanoseconds since its origin.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.shared.now_ns()
    }

    /// What to ask for in this handle's line.
    pub(crate) const fn request(&self, permits: u64) -> Request {
        Request::of(permits).in_class(self.class)
    }

    /// Takes note of new numbers, by which so many can be taken at once.
    fn saw_change(&self, most: impl FnOnce() -> u64) {
        if let Some(stats) = self.stats() {
            stats.saw_change(most());
        }
    }

    pub(crate) const fn precision(&self) -> Precision {
        self.precision
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared<L, C>> {
        &self.shared
    }
}

impl<L: Concurrent, C> Limiter<L, C> {
    /// Whether this is the only handle: nobody waits, nobody holds a reservation or a permit.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Where its lock is in memory.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Takes the limit out, if this is the only handle.
    pub(crate) fn into_limit(self) -> Result<L, Self> {
        let Self { shared, precision, class } = self;
        Arc::try_unwrap(shared).map(Shared::into_limit).map_err(|shared| Self {
            shared,
            precision,
            class,
        })
    }
}

impl<L: Concurrent, C> Clone for Limiter<L, C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ..*self }
    }
}

/// One line: the policy, what remains and how many wait, as far as that can be read without waiting
/// for another thread.
impl<L: Concurrent, C: Clock> fmt::Debug for Limiter<L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt_as(f, "Limiter", &[])
    }
}

/// Returns what a fresh limit grants at most at once.
pub(crate) fn most_at_once<P: Policy>(policy: &P) -> u64 {
    policy.remaining(&policy.fresh(0), 0)
}

/// A duration as nanoseconds; over 584 years count as those.
pub(crate) fn whole_ns(duration: Duration) -> u64 {
    exact_ns(duration).unwrap_or(u64::MAX)
}

/// A duration as nanoseconds, unless it is over 584 years.
pub(crate) fn exact_ns(duration: Duration) -> Option<u64> {
    u64::try_from(duration.as_nanos()).ok()
}
