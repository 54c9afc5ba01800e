//! Iterators whose items pass a limiter one by one, each when it is pulled.

use std::fmt;
use std::iter::FusedIterator;
use std::time::Duration;

use rategate_core::error::LimitError;
use rategate_core::sliding_log::SlidingLog;

use crate::clock::{Clock, MonotonicClock};
use crate::error::AcquireError;
use crate::limiter::Limiter;
use rategate_core::span::exact_ns;

/// Rate limits for every iterator.
///
/// # Gate the action, not the enumeration
///
/// An item is limited *as it is pulled*. A consumer that pulls a chunk of items first and works
/// on them afterwards, as parallel iterators do, waits while it pulls and then runs the whole
/// chunk without any limit. There, call [`Limiter::acquire`] in the action itself:
///
/// ```
/// use std::time::Duration;
/// use rategate::{Limiter, ManualClock, RateLimitedExt, SlidingLog};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::with_clock(SlidingLog::new(5, Duration::from_secs(1)), clock.clone());
/// let act_at = || limiter.now().as_secs();
///
/// // Pulled in one chunk: 9 seconds of waiting, and then 50 actions at one instant.
/// let chunk = (0..50).rate_limited(&limiter).collect::<Result<Vec<_>, _>>()?;
/// assert!(chunk.iter().all(|_| act_at() == 9));
///
/// // The action itself is gated: five in each second, whatever pulls the items.
/// let starts = chunk.iter().map(|_| limiter.acquire(1).map(|_| act_at()));
/// assert_eq!(starts.collect::<Result<Vec<_>, _>>()?[..6], [10, 10, 10, 10, 10, 11]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait RateLimitedExt: Iterator + Sized {
    /// Lets each item pass `limiter` when it is pulled. The limiter may be shared.
    ///
    /// Pulling blocks the thread: in a task, use `RateLimitedStreamExt` of the feature `futures`.
    fn rate_limited<C: Clock>(self, limiter: &Limiter<C>) -> RateLimited<Self, C> {
        RateLimited { items: self, limiter: limiter.clone(), held: None, stopped: false }
    }

    /// Lets at most `items` items pass in any window of length `period`.
    ///
    /// The limit is this iterator's own and lives as long as it does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rategate::RateLimitedExt;
    ///
    /// for number in (0..20).limit_rate(10, Duration::from_millis(10))? {
    ///     assert!(number? < 20);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LimitError`] if either is zero, `items` over
    /// [`MAX_PERMITS`](rategate_core::sliding_log::MAX_PERMITS), or `period` over 584 years.
    fn limit_rate(self, items: u64, period: Duration) -> Result<RateLimited<Self>, LimitError> {
        self.limit_rate_on(items, period, MonotonicClock::new())
    }

    /// Lets at most `items` items pass in any window of length `period`, on the given clock.
    ///
    /// # Errors
    ///
    /// [`LimitError`], as [`limit_rate`](Self::limit_rate).
    fn limit_rate_on<C: Clock>(
        self,
        items: u64,
        period: Duration,
        clock: C,
    ) -> Result<RateLimited<Self, C>, LimitError> {
        let period_ns = exact_ns(period).ok_or(LimitError::PeriodTooLong)?;
        let policy = SlidingLog::try_new(items, Duration::from_nanos(period_ns))?;
        Ok(self.rate_limited(&Limiter::with_clock(policy, clock)))
    }
}

impl<I: Iterator> RateLimitedExt for I {}

/// The iterator behind [`RateLimitedExt`]: yields each item once its permit is granted.
///
/// Nothing is pulled ahead, and the end of the sequence costs no permit. If the limiter grants no
/// more, the error is the last thing to come out, and [`into_parts`](Self::into_parts) returns
/// the item that was pulled for it.
#[must_use = "an iterator does nothing until it is pulled"]
pub struct RateLimited<I: Iterator, C = MonotonicClock> {
    items: I,
    limiter: Limiter<C>,
    held: Option<I::Item>,
    stopped: bool,
}

impl<I: Iterator, C> RateLimited<I, C> {
    /// Returns the item that got an error instead of a permit, if any, and the items after it.
    pub fn into_parts(self) -> (Option<I::Item>, I) {
        (self.held, self.items)
    }
}

impl<I: Iterator, C: Clock> Iterator for RateLimited<I, C> {
    type Item = Result<I::Item, AcquireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stopped {
            return None;
        }
        let Some(item) = self.items.next() else {
            self.stopped = true;
            return None;
        };
        match self.limiter.acquire(1) {
            Ok(_) => Some(Ok(item)),
            Err(error) => {
                self.held = Some(item);
                self.stopped = true;
                Some(Err(error))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self.items.size_hint() {
            _ if self.stopped => (0, Some(0)),
            // An error may replace the first item, and then nothing comes.
            (lower, upper) => (lower.min(1), upper),
        }
    }
}

impl<I: Iterator, C: Clock> FusedIterator for RateLimited<I, C> {}

impl<I: Iterator + fmt::Debug, C> fmt::Debug for RateLimited<I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimited")
            .field("items", &self.items)
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}
