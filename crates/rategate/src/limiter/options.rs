//! The options of a limiter: how it waits, what it counts, its queue, and its other handles.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate_core::line::QueueBounds;
use rategate_core::span::whole_ns;

use super::Limiter;
use crate::clock::Clock;
use crate::clock::wait::Precision;
use crate::error::{ClassError, Closed};
use crate::local::Local;
use crate::stats::LimitStats;

impl<C: Clock> Limiter<C> {
    /// Returns this handle with another wait precision, which its later clones inherit.
    ///
    /// ```
    /// use rategate::policy::Mode;
    /// use rategate::wait::Precision;
    /// use rategate::{Limiter, TwoTimeline};
    ///
    /// let limiter = Limiter::new(TwoTimeline::new("2000/s".parse()?, Mode::Average, None));
    /// let exact = limiter.clone().with_precision(Precision::Spin);
    /// assert!(exact.acquire(1)?.released_at() <= exact.acquire(1)?.released_at());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// Keeps the rate, not the bound, where waiters wake late; for pacing rather than limiting.
    ///
    /// This applies to all clones and all waiters. Without it a waiter's permits count from the
    /// instant at which it really starts. A bucket of burst 1 and strict spacing then lose the
    /// time by which waiters wake late: `docs/performance.md` has figures. With this option
    /// permits count from the promised instant, so real starts obey `C(W + d)`, `d` being the
    /// largest lateness. Schedules (average, damped, batched) promise instants in
    /// any case.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Gcra, Limiter};
    ///
    /// let pace = Limiter::new(Gcra::per_second(2000)).with_promised_starts();
    /// let (first, second) = (pace.acquire(1)?, pace.acquire(1)?);
    /// assert!(second.promised_at() - first.promised_at() >= Duration::from_micros(500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_promised_starts(self) -> Self {
        self.shared.set_promises_instants(true);
        self
    }

    /// Sets, for all clones, how long a due waiter may leave its permits untaken.
    ///
    /// Such a waiter is a future that is not polled, or a thread that is stopped. After the grace
    /// period its permits go to the next waiter, and the late waiter is at the head of the queue
    /// when it comes. The default is four times the largest lateness seen, from 10 ms to a
    /// minute.
    #[must_use]
    pub fn with_grace(self, period: Duration) -> Self {
        self.shared.set_grace(Some(whole_ns(period)));
        self
    }

    /// Counts, for all clones and from now on, what the limit grants and denies, under `name`.
    ///
    /// A name is cut to [`MAX_NAME_BYTES`](crate::stats::MAX_NAME_BYTES) bytes. A limiter that
    /// already counts keeps its name. What is counted, and the cost, is in
    /// [`stats`](crate::stats).
    ///
    /// A grant is near the limit if it leaves less than a tenth of a number of permits: those that
    /// could be taken when counting began or, after a change of the limit, those that the new
    /// limit grants at once. So count from the beginning.
    ///
    /// ```
    /// use rategate::{Gcra, Limiter};
    ///
    /// let limiter = Limiter::new(Gcra::per_second(10).burst(10)).with_stats("uploads");
    /// limiter.acquire(4)?;
    /// let stats = limiter.stats().expect("they were just enabled");
    /// assert_eq!(stats.counts().to_string(),
    ///     "granted 1 calls of 4 permits, 0 near the limit; denied 0 of 0; 0 overflows");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_stats(self, name: &str) -> Self {
        self.shared.count_as(name);
        self
    }

    /// Returns the limit's statistics, if they are [enabled](Self::with_stats).
    #[must_use]
    pub fn stats(&self) -> Option<&LimitStats> {
        self.shared.stats()
    }

    /// Bounds the wait queue, for threads and tasks that come from now on.
    ///
    /// The default is a million waiters, and any number of permits.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::wait::QueueBounds;
    /// use rategate::{AcquireError, AsyncLimiter, ManualClock, SlidingLog};
    /// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
    ///
    /// let log = SlidingLog::new(1, Duration::from_secs(1));
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
        self.shared.section(|section| section.line().0.set_bounds(bounds))
    }

    /// Creates a handle for a class of callers with a wait queue of its own.
    ///
    /// While callers of several classes wait, each class is granted permits in proportion to its
    /// weight, at all times to within its weight and its largest request. (This is deficit round
    /// robin; see `docs/theory.md`, section 2.8.) Callers of one class are served in arrival
    /// order. A class that is alone gets everything, and an idle class saves nothing up. This
    /// handle and its clones form a class of weight 1.
    ///
    /// A crawler fetches pages of unknown size under one bandwidth. Each kind of site
    /// [holds](Self::hold) an estimate and commits the size by its own class:
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Gcra, Limiter};
    ///
    /// let minute = Duration::from_secs(60);
    /// let bandwidth = Limiter::new(Gcra::per_second(100_000).burst(100_000));
    /// let (slow_sites, fast_sites) = (bandwidth.class(1)?, bandwidth.class(1)?);
    ///
    /// slow_sites.hold(10_000, minute)?.commit(12_500)?;
    /// fast_sites.hold(10_000, minute)?.commit(1_200)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Classes are for kinds of callers and are made once; they cannot be removed. The
    /// [bounds](Self::bound_queue) hold for each class's queue. A grant costs one step for each
    /// class. To compute a start behind the first, as for a deadline, costs one step for each
    /// waiter.
    ///
    /// # Errors
    ///
    /// [`ClassError`].
    pub fn class(&self, weight: u64) -> Result<Self, ClassError> {
        let weight = NonZeroU64::new(weight).ok_or(ClassError::ZeroWeight)?;
        let class = self.shared.section(|section| {
            let (line, now_ns, woken) = section.line();
            line.add_class(now_ns, weight, woken)
        })??;
        Ok(Self { class, ..self.clone() })
    }

    /// Creates a local handle for one thread, which takes permits in batches.
    ///
    /// It is for many tries a second on many threads. See [`Local`] for the effect on the limit.
    ///
    /// # Errors
    ///
    /// [`Closed`].
    pub fn local(&self) -> Result<Local<C>, Closed> {
        Local::new(Arc::clone(&self.shared), self.precision, self.class)
    }
}
