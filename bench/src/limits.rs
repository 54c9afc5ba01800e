//! Limiters, ours and others', set up so that every try is granted, or none is.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota};
use rategate::policy::{Anchor, Mode};
use rategate::{
    AllOf, Clock, Decision, FixedWindow, Gcra, Limiter, MonotonicClock, Rate, SlidingLog,
    TwoTimeline,
};
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Verdict;
use ratelimit::Ratelimiter;

/// A rate of one permit each quarter of a nanosecond, so that a permit is always available.
pub const PLENTY: u64 = 4_000_000_000;

/// The window of a log for each of its slots, in nanoseconds. No machine grants faster than that,
/// so a slot is always free; yet each grant finds older entries to drop.
const SLOT_NS: u64 = 4;

const HOUR: Duration = Duration::from_secs(3_600);

/// Twice the time the default clock takes to calibrate the processor's counter.
const SETTLED_NS: u64 = 1_500_000_000;

/// The answer to all tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All are granted.
    Granted,
    /// All are denied.
    Denied,
}

use Answer::{Denied, Granted};

/// Reads the default clock until its calibration is done. Before, it reads the system's clock.
pub fn settle_clock() {
    let clock = MonotonicClock::new();
    while clock.now_ns() < SETTLED_NS {}
}

/// Requests one permit, and returns `true` if it was granted.
#[inline]
pub fn granted<C: Clock>(limiter: &Limiter<C>) -> bool {
    matches!(limiter.try_acquire(1), Ok(Decision::Granted(_)))
}

/// Returns a limiter after all of its permits are taken, if it is to deny.
fn with(limiter: Limiter, answer: Answer) -> Limiter {
    while answer == Denied && granted(&limiter) {}
    limiter
}

/// Returns a token bucket.
pub fn bucket(answer: Answer) -> Limiter {
    let [plenty, _] = two_buckets(answer);
    with(Limiter::new(plenty), answer)
}

/// Returns a schedule.
pub fn average(answer: Answer) -> Limiter {
    let rate = if answer == Granted { Rate::per_second(PLENTY) } else { Rate::per_hour(1) };
    with(Limiter::new(TwoTimeline::new(rate, Mode::Average, None)), answer)
}

/// Returns an exact window.
pub fn log(slots: u64, answer: Answer) -> Limiter {
    let window = if answer == Granted { Duration::from_nanos(slots * SLOT_NS) } else { HOUR };
    with(Limiter::new(SlidingLog::try_new(slots, window).expect("a valid log")), answer)
}

/// Returns a fixed window of an hour.
pub fn window(answer: Answer) -> Limiter {
    let permits = if answer == Granted { 1 << 50 } else { 1 };
    let window = FixedWindow::try_new(permits, HOUR, Anchor::Epoch).expect("a valid window");
    with(Limiter::new(window), answer)
}

/// Returns two rates that have to pass together.
pub fn two_rates(answer: Answer) -> Limiter {
    with(Limiter::new(AllOf::new(two_buckets(answer))), answer)
}

fn two_buckets(answer: Answer) -> [Gcra; 2] {
    let rates = match answer {
        Granted => [(Rate::per_second(PLENTY), PLENTY), (Rate::per_second(1_000_000_000), PLENTY)],
        Denied => [(Rate::per_hour(1), 1), (Rate::per_day(1), 1)],
    };
    rates.map(|(rate, burst)| Gcra::new(rate, burst).expect("a valid bucket"))
}

/// Returns a try of the same two rates behind a mutex, as an application might write it.
pub fn locked_two_rates(answer: Answer) -> impl Fn() -> bool + Sync {
    let clock = MonotonicClock::new();
    let limit = Ledger::new(two_buckets(answer).map(Into::into), clock.now_ns());
    let limit = Mutex::new(limit);
    let try_one = move || {
        let mut limit = limit.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = clock.now_ns();
        matches!(limit.try_acquire(now_ns, 1), Ok(Verdict::Granted(_)))
    };
    while answer == Denied && try_one() {}
    try_one
}

/// Returns a try of a hand-written exact window, which drops as many entries as our log does.
pub fn locked_log(slots: u64) -> impl Fn() -> bool + Sync {
    let window = Duration::from_nanos(slots * SLOT_NS);
    let slots = slots as usize;
    let log: Mutex<VecDeque<Instant>> = Mutex::new(VecDeque::with_capacity(slots));
    move || {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while log.front().is_some_and(|&oldest| now.duration_since(oldest) >= window) {
            log.pop_front();
        }
        let free = log.len() < slots;
        if free {
            log.push_back(now);
        }
        free
    }
}

/// Returns a number that is not zero.
pub fn nonzero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}

/// Returns governor with its default clock. Its interval is in whole nanoseconds, so plenty is
/// one each nanosecond here, with four seconds' worth at the start.
pub fn governor(answer: Answer) -> DefaultDirectRateLimiter {
    let limiter = governor::RateLimiter::direct(match answer {
        Granted => Quota::per_second(nonzero(4_000_000_000)),
        Denied => Quota::per_hour(NonZeroU32::MIN),
    });
    while answer == Denied && limiter.check().is_ok() {}
    limiter
}

/// Returns the crate `ratelimit`.
pub fn ratelimit(answer: Answer) -> Ratelimiter {
    let builder = match answer {
        Granted => Ratelimiter::builder(PLENTY).max_tokens(PLENTY).initial_available(PLENTY),
        Denied => Ratelimiter::builder(1).period(HOUR),
    };
    builder.build().expect("the numbers above are right")
}

/// Returns leaky-bucket. It reads no clock while it has permits left.
pub fn leaky_bucket(answer: Answer) -> leaky_bucket::RateLimiter {
    let mut builder = leaky_bucket::RateLimiter::builder();
    match answer {
        Granted => {
            let plenty = usize::MAX / 8;
            builder.max(plenty).initial(plenty).refill(4_000_000).interval(Duration::from_millis(1))
        }
        Denied => builder.max(1).initial(0).refill(1).interval(HOUR),
    }
    .build()
}
