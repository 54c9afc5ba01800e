//! The operation throttle, which a loop calls after each operation.
//!
//! It sleeps whenever enough delay has added up to be worth a sleep.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use rategate_core::policy::{Policy, Taken};
use rategate_core::rate::Rate;
use rategate_core::two_timeline::{
    self, DEFAULT_CATCH_UP_NS, DEFAULT_MIN_SLEEP_NS, Mode, TwoTimeline,
};

use crate::clock::wait::CancelToken;
use crate::clock::{Clock, MonotonicClock};
use crate::error::AcquireError;
use rategate_core::span::whole_ns;

/// A throttle that keeps a loop of operations at a rate, on average.
///
/// ```text
///   @ operation, z sleep          2000/s, 0.1 ms each: 25 operations owe 10 ms, worth a sleep
///   @@@@@@@@@@@@@@@@@@@@@@@@@zzzzzzzzzz@@@@@@@@@@@@@@@@@@@@@@@@@zzzzzzzzzz@@@@@
/// ```
///
/// * It limits the average and nothing else: a batch runs back to back. For a bound on every
///   window, see [`SlidingLog`](crate::SlidingLog); for even spacing,
///   [`TwoTimeline`](crate::TwoTimeline).
/// * Operation `k` is paid for `k` intervals after the throttle was made. A sleep that ends early
///   or late makes the next one longer or shorter; no error adds up.
/// * Time before the first [`wait`](Self::wait) counts as time of the first operation.
/// * It has a history, so it serves one loop; start a new run with a new throttle. Threads share
///   a [`Limiter`](crate::Limiter) over a batched [`TwoTimeline`] instead, which they call
///   *before* each operation.
///
/// ```
/// use std::time::Duration;
///
/// use rategate::pace::Throttle;
/// use rategate::{Clock, ManualClock, Rate};
///
/// let clock = ManualClock::new();
/// let mut throttle = Throttle::new(Rate::per_second(2000), clock.clone());
/// for _ in 0..60 {
///     clock.advance(Duration::from_micros(100)); // the operation
///     throttle.wait()?;
/// }
/// assert_eq!(clock.now_ns(), 26_000_000, "two sleeps of 10 ms so far");
/// throttle.finish();
/// assert_eq!(clock.now_ns(), 30_000_000, "exactly 60 intervals");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Throttle<C = MonotonicClock> {
    pacer: TwoTimeline,
    /// The schedule without batches, which yields when an operation is paid for.
    unbatched: TwoTimeline,
    rate: Rate,
    min_sleep_ns: u64,
    catch_up: CatchUp,
    state: two_timeline::State,
    clock: C,
    /// The newest instant at which an operation was let through. Starts never decrease.
    latest_ns: u64,
    /// The instant at which the operations so far are paid for to the end.
    paid_ns: u64,
}

/// The delay that the loop may make up for by running at full speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatchUp {
    /// The newest part of the delay, at most this long. The rest is forfeited.
    AtMost(Duration),
    /// All of the delay, however long that takes. After an hour of slow operations the loop may
    /// run unthrottled for an hour's worth of them.
    Unbounded,
}

impl<C: Clock> Throttle<C> {
    /// Creates a throttle at `rate` from now on.
    ///
    /// It sleeps for 10 ms or more, and catches up on at most one second's worth of operations.
    #[must_use]
    pub fn new(rate: Rate, clock: C) -> Self {
        let catch_up = CatchUp::AtMost(Duration::from_nanos(DEFAULT_CATCH_UP_NS));
        let now_ns = clock.now_ns();
        let pacer = pacer_of(rate, DEFAULT_MIN_SLEEP_NS, catch_up);
        Self {
            pacer,
            unbatched: pacer_of(rate, 0, catch_up),
            rate,
            min_sleep_ns: DEFAULT_MIN_SLEEP_NS,
            catch_up,
            state: pacer.fresh_after(now_ns),
            clock,
            latest_ns: now_ns,
            paid_ns: now_ns,
        }
    }

    /// Sets the minimum sleep: a debt of exactly `min_sleep` is worth a sleep.
    ///
    /// Zero sleeps after every operation that is early.
    #[must_use]
    pub fn with_min_sleep(mut self, min_sleep: Duration) -> Self {
        self.min_sleep_ns = whole_ns(min_sleep);
        self.derived()
    }

    /// Sets the bound on catching up.
    #[must_use]
    pub fn with_catch_up(mut self, catch_up: CatchUp) -> Self {
        self.catch_up = catch_up;
        self.derived()
    }

    /// Sleeps once after an operation, if enough is owed. Returns the intended sleep; zero if
    /// none.
    ///
    /// Call it after each operation. The error of a sleep is carried into the next one.
    ///
    /// Blocks the thread: do not call it on a thread that drives tasks. In a debug build with the
    /// feature `tokio` it panics there.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimeCannotHelp`] at the rate [`Rate::NEVER`], and
    /// [`AcquireError::TooLong`] if the sleep would end past the clock's 64 bits. Both come at
    /// once, without a sleep.
    pub fn wait(&mut self) -> Result<Duration, AcquireError> {
        let now_ns = self.clock.now_ns();
        let opening = self.pacer.opening(&self.state, now_ns, NonZeroU64::MIN);
        let opening = opening.map_err(|refusal| AcquireError::refused(refusal, None))?;
        let start_ns = opening.start_ns.max(now_ns);
        let paid = self.unbatched.opening(&self.state, now_ns, NonZeroU64::MIN);
        self.paid_ns = paid.map_or(start_ns, |paid| paid.start_ns);
        // A sleep may end early, and the next operation come before the start last recorded.
        self.latest_ns = self.latest_ns.max(start_ns);
        let taken = Taken { from_ns: now_ns, start_ns: self.latest_ns, permits: NonZeroU64::MIN };
        self.pacer.take(&mut self.state, taken);
        let owed_ns = start_ns.saturating_sub(now_ns);
        if owed_ns > 0 {
            self.clock.sleep(owed_ns);
        }
        Ok(Duration::from_nanos(owed_ns))
    }

    /// Sleeps off the remaining debt, so that N operations take exactly N intervals, never less.
    ///
    /// Returns how long that was to take.
    ///
    /// Blocks the thread: do not call it on a thread that drives tasks. In a debug build with the
    /// feature `tokio` it panics there.
    pub fn finish(self) -> Duration {
        let tail_ns = self.paid_ns.saturating_sub(self.clock.now_ns());
        // No other holder raises this token, so the wait ends at its instant.
        let _ = self.clock.wait(self.paid_ns, &CancelToken::new());
        Duration::from_nanos(tail_ns)
    }

    /// Rebuilds the pacers from the current numbers.
    fn derived(self) -> Self {
        Self {
            pacer: pacer_of(self.rate, self.min_sleep_ns, self.catch_up),
            unbatched: pacer_of(self.rate, 0, self.catch_up),
            ..self
        }
    }
}

/// Writes one line: the numbers, and how far the operations so far are paid for.
impl<C: Clock> fmt::Debug for Throttle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owed_ns = self.paid_ns.saturating_sub(self.clock.now_ns());
        f.debug_struct("Throttle")
            .field("rate", &self.rate)
            .field("min_sleep", &Duration::from_nanos(self.min_sleep_ns))
            .field("catch_up", &self.catch_up)
            .field("owed", &Duration::from_nanos(owed_ns))
            .finish_non_exhaustive()
    }
}

fn pacer_of(rate: Rate, min_sleep_ns: u64, catch_up: CatchUp) -> TwoTimeline {
    let catch_up = match catch_up {
        CatchUp::AtMost(max_catch_up) => Some(max_catch_up),
        CatchUp::Unbounded => None,
    };
    TwoTimeline::new(rate, Mode::Batched { min_sleep_ns }, catch_up)
}
