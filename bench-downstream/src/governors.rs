//! The limiters of governor that no other bench has.

use std::num::NonZeroU32;
use std::thread;

use governor::clock::{Clock as _, DefaultClock, QuantaUpkeepClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::engines::Made;
use crate::harness::Contender;
use crate::ours::KEPT_EVERY;
use crate::{Paced, key};

/// Returns governor with its clock that another thread keeps.
pub(crate) fn on_kept_clock() -> Made<Contender<'static>> {
    let clock = QuantaUpkeepClock::from_interval(KEPT_EVERY)?;
    let limiter = RateLimiter::direct_with_clock(Quota::per_second(number(4_000_000_000)), clock);
    Ok(Contender::new("governor, upkeep clock", move || limiter.check().is_ok()))
}

/// Returns governor's table with the same keys and limit as ours.
pub(crate) fn keyed(keys: u64) -> DefaultKeyedRateLimiter<u64> {
    let quota = Quota::per_second(NonZeroU32::MIN).allow_burst(number(30_000_000));
    let limiter = RateLimiter::keyed(quota);
    for number_of_key in 0..keys {
        let checked = limiter.check_key_n(&key(number_of_key), number(1_000));
        assert!(matches!(checked, Ok(Ok(()))), "a key was denied while the table was filled");
    }
    limiter
}

/// Returns a call that tries, and sleeps for as long as the denial says.
pub(crate) fn paced(per_s: u32) -> Paced {
    let limiter = RateLimiter::direct(Quota::per_second(number(per_s)).allow_burst(number(1)));
    let clock = DefaultClock::default();
    let start = move || {
        while let Err(denial) = limiter.check() {
            thread::sleep(denial.wait_time_from(clock.now()));
        }
    };
    ("governor, check, sleep", Box::new(start))
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}
