//! Other limiters, as their documentation shows them.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use governor::clock::{Clock as _, DefaultClock, QuantaUpkeepClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use ratelimit::Ratelimiter;

use crate::harness::Contender;
use crate::ours::KEPT_EVERY;
use crate::{Made, Paced, SLOT_NS, key};

const HOUR: Duration = Duration::from_secs(3600);
const PLENTY: u32 = 4_000_000_000;

/// Returns governor with its default clock.
pub(crate) fn governor(granted: bool) -> Contender<'static> {
    let limiter =
        RateLimiter::direct(if granted { plenty() } else { Quota::per_hour(NonZeroU32::MIN) });
    while !granted && limiter.check().is_ok() {}
    Contender::new("governor", move || limiter.check().is_ok())
}

/// Returns governor with its clock that another thread keeps.
pub(crate) fn governor_on_kept_clock() -> Made<Contender<'static>> {
    let clock = QuantaUpkeepClock::from_interval(KEPT_EVERY)?;
    let limiter = RateLimiter::direct_with_clock(plenty(), clock);
    Ok(Contender::new("governor, upkeep clock", move || limiter.check().is_ok()))
}

pub(crate) fn ratelimit(granted: bool) -> Made<Contender<'static>> {
    let plenty = u64::from(PLENTY);
    let limiter = if granted {
        Ratelimiter::builder(plenty).max_tokens(plenty).initial_available(plenty).build()?
    } else {
        Ratelimiter::builder(1).period(HOUR).build()?
    };
    Ok(Contender::new("ratelimit", move || limiter.try_wait().is_ok()))
}

/// Returns leaky-bucket. It reads no clock while it has permits left.
pub(crate) fn leaky_bucket(granted: bool) -> Contender<'static> {
    let mut builder = leaky_bucket::RateLimiter::builder();
    let limiter = if granted {
        let plenty = usize::MAX / 8;
        builder.max(plenty).initial(plenty).refill(4_000_000).interval(Duration::from_millis(1))
    } else {
        builder.max(1).initial(0).refill(1).interval(HOUR)
    }
    .build();
    Contender::new("leaky-bucket", move || limiter.try_acquire(1))
}

/// Returns an exact window as written by hand: a lock, and the instants within it.
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
        let is_free = log.len() < slots;
        if is_free {
            log.push_back(now);
        }
        is_free
    })
}

/// Returns governor's table with the same keys and limit as ours.
pub(crate) fn governor_keyed(keys: u64) -> DefaultKeyedRateLimiter<u64> {
    let burst = NonZeroU32::new(30_000_000).expect("not zero");
    let limiter = RateLimiter::keyed(Quota::per_second(NonZeroU32::MIN).allow_burst(burst));
    let taken = NonZeroU32::new(1_000).expect("not zero");
    for number in 0..keys {
        let checked = limiter.check_key_n(&key(number), taken);
        assert!(matches!(checked, Ok(Ok(()))), "a key was denied while the table was filled");
    }
    limiter
}

/// Returns a call that tries, and sleeps for as long as the denial says.
pub(crate) fn governor_paced(per_s: u32) -> Paced {
    let rate = NonZeroU32::new(per_s).expect("not zero");
    let limiter = RateLimiter::direct(Quota::per_second(rate).allow_burst(NonZeroU32::MIN));
    let clock = DefaultClock::default();
    let start = move || {
        while let Err(denial) = limiter.check() {
            thread::sleep(denial.wait_time_from(clock.now()));
        }
    };
    ("governor, check, sleep", Box::new(start))
}

fn plenty() -> Quota {
    Quota::per_second(NonZeroU32::new(PLENTY).expect("not zero"))
}
