//! Other limiters, set up so that every try is granted, or none is.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use rategate_bench::engines::{Answer, PLENTY_PER_S, SLOT_NS};
use rategate_bench::harness::Contender;
use ratelimit::Ratelimiter;

const HOUR: Duration = Duration::from_secs(3600);
const PLENTY: u32 = 4_000_000_000;

/// Returns governor with its default clock. Its interval is in whole nanoseconds, so plenty is
/// one each nanosecond here, with four seconds' worth at the start.
pub(crate) fn governor(answer: Answer) -> Contender<'static> {
    let limiter = governor_of(match answer {
        Answer::Granted => Quota::per_second(NonZeroU32::new(PLENTY).expect("plenty")),
        Answer::Denied => Quota::per_hour(NonZeroU32::MIN),
    });
    if answer == Answer::Denied {
        while limiter.check().is_ok() {}
    }
    Contender::new("governor", move || limiter.check().is_ok())
}

/// Returns governor as most programs use it.
pub(crate) fn governor_of(quota: Quota) -> DefaultDirectRateLimiter {
    RateLimiter::direct(quota)
}

/// Returns the crate `ratelimit`.
pub(crate) fn ratelimit(answer: Answer) -> Contender<'static> {
    let builder = match answer {
        Answer::Granted => Ratelimiter::builder(PLENTY_PER_S)
            .max_tokens(PLENTY_PER_S)
            .initial_available(PLENTY_PER_S),
        Answer::Denied => Ratelimiter::builder(1).period(HOUR),
    };
    let limiter = builder.build().expect("the numbers above are right");
    Contender::new("ratelimit", move || limiter.try_wait().is_ok())
}

/// Returns leaky-bucket. It reads no clock while it has permits left.
pub(crate) fn leaky_bucket(answer: Answer) -> Contender<'static> {
    let mut builder = leaky_bucket::RateLimiter::builder();
    let limiter = match answer {
        Answer::Granted => {
            let plenty = usize::MAX / 8;
            builder.max(plenty).initial(plenty).refill(4_000_000).interval(Duration::from_millis(1))
        }
        Answer::Denied => builder.max(1).initial(0).refill(1).interval(HOUR),
    }
    .build();
    Contender::new("leaky-bucket", move || limiter.try_acquire(1))
}

/// Returns a hand-written exact window: a lock and the instants within it. The window is as long
/// as that of our log, so both drop as many entries.
pub(crate) fn mutex_log(slots: u64) -> Contender<'static> {
    let window = Duration::from_nanos(slots * SLOT_NS);
    let slots = usize::try_from(slots).expect("a log that fits into memory");
    let log: Mutex<VecDeque<Instant>> = Mutex::new(VecDeque::with_capacity(slots));
    Contender::new("mutex log", move || {
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
    })
}
