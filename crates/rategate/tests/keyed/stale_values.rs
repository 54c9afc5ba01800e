//! Values kept in a few bits of a word, which wrap around: after a long time, or after the clock
//! was set back, a key is decided as if they did not.

use std::collections::HashMap;
use std::time::Duration;

use fastrand::Rng;
use rategate::keyed::Overflow;
use rategate::{AnyPolicy, Limiter, ManualClock};
use rategate_testkit::ns;

use crate::keyed::{bucket, outcome, passes, table};

/// Returns the nanoseconds for which a value of so many parts per nanosecond is valid.
fn validity_ns(units_per_ns: u64) -> u64 {
    (1 << 54) / units_per_ns
}

/// Buckets fit a slot with bursts of at most 2^55 parts, if their values fade in a minute or
/// more.
#[test]
fn buckets_that_fit_a_slot() {
    let fits = |rate: &str, burst| AnyPolicy::from(bucket(rate, burst)).packed().is_some();
    assert!(fits("1/s", (1 << 55) / 1_000_000_000));
    assert!(!fits("1/s", (1 << 55) / 1_000_000_000 + 1));
    let max_units = (1_u64 << 54) / 60_000_000_000;
    // The first rate that shares no factor with a second.
    assert_eq!(max_units, 300_239);
    assert!(fits("300239/s", 1));
    assert!(!fits("300241/s", 1));
    assert!(fits("1000000000/s", 1), "a part for each nanosecond");
    assert!(!fits("30000001/s", 1));
    assert!(!fits("never", 1) && !fits("unlimited", 1));
}

/// The clock jumps by multiples of the time in which values fade, give or take a little. The keys
/// have used none, some, or all of a burst of twice that time.
#[test]
fn stale_values_are_not_read() {
    for (seed, units_per_ns) in (0..).zip([1, 2_469, 300_239].repeat(40)) {
        let mut random = Rng::with_seed(seed);
        let rate = format!("{units_per_ns}/s");
        let max_burst = (1 << 55) / 1_000_000_000;
        let policy = bucket(&rate, random.choice([1, 3, max_burst / 2, max_burst]).unwrap());
        let (keyed, clock) = table::<u64>(policy, 100, Overflow::Refuse);
        let validity = validity_ns(units_per_ns);
        let mut ideal: HashMap<u64, Limiter<ManualClock>> = HashMap::new();
        let mut now_ns: u64 = random
            .choice([0, 7, validity, u64::MAX / 2, u64::MAX - 9 * validity.min(1 << 50)])
            .unwrap();
        for call in 0..150 {
            let times = random.choice([0, 0, 0, 1, 2, 3, 3, 4, 5, 8, 10]).unwrap();
            now_ns = now_ns.saturating_add(validity.saturating_mul(times));
            now_ns = now_ns.saturating_add(random.u64(..7)).saturating_sub(3);
            if random.u64(..20) == 0 {
                now_ns = now_ns.saturating_add(validity / 3);
            }
            now_ns = now_ns.max(rategate::Clock::now_ns(&clock));
            clock.set(Duration::from_nanos(now_ns));
            let key = random.u64(..4);
            let fresh = || Limiter::with_clock(policy, clock.clone());
            let ideal = ideal.entry(key).or_insert_with(fresh);
            let what = format!("seed {seed}, call {call}: {key} of {policy:?} at {now_ns}");
            assert_eq!(ideal.remaining().ok(), keyed.remaining(&key).ok(), "{what}");
            let max_burst = policy.burst_size().get();
            let permits = random.choice([1, max_burst, max_burst.div_ceil(2)]).unwrap();
            assert_eq!(ideal.peek(permits).ok(), keyed.peek(&key, permits).ok(), "{what}");
            let (a, b) = (ideal.try_acquire(permits), keyed.try_acquire(&key, permits));
            assert_eq!(outcome(a.unwrap()), outcome(b.unwrap()), "{what}");
        }
    }
}

/// A clock is set back and forth at random: by the instants reported to it, no key is ever
/// granted more than its ceiling.
#[test]
fn a_clock_that_goes_back_earns_nothing() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let (rate, units_per_ns) =
            random.choice([("1/s", 1), ("3/s", 3), ("300239/s", 300_239)]).unwrap();
        let burst = 1 + random.u64(..4);
        let (keyed, clock) = table::<u64>(bucket(rate, burst), 3, Overflow::Refuse);
        let validity = validity_ns(units_per_ns);
        let second = 1_000_000_000;
        let mut now_ns: u64 = random.choice([0, validity, 1 << 62]).unwrap();
        let mut grants: HashMap<u64, Vec<u64>> = HashMap::new();
        for _ in 0..400 {
            let far = random
                .choice([1, second / units_per_ns, second, validity, 3 * validity + 9])
                .unwrap();
            let by = random.u64(..far.max(1)) + 1;
            now_ns = if random.u64(..3) == 0 {
                now_ns.saturating_sub(by)
            } else {
                now_ns.saturating_add(by)
            };
            clock.set(Duration::from_nanos(now_ns));
            let key = random.u64(..5);
            if let Ok(rategate::Decision::Granted(grant)) = keyed.try_acquire(&key, 1) {
                grants.entry(key).or_default().push(ns(grant.released_at()));
            }
        }
        for (key, starts) in &mut grants {
            starts.sort_unstable();
            // N grants in a window: it is longer than the time of (N - burst) permits.
            for (first, &from_ns) in starts.iter().enumerate() {
                for (count, &start_ns) in (1_u64..).zip(&starts[first..]) {
                    let units = u128::from(start_ns - from_ns) * u128::from(units_per_ns);
                    let needed = u128::from(count.saturating_sub(burst)) * u128::from(second);
                    assert!(units >= needed, "seed {seed}, key {key}: {count} in {starts:?}");
                }
            }
        }
    }
}

/// A table without calls for longer than its values last has capacity for all new keys at once.
#[test]
fn stale_keys_are_evicted_at_the_next_call() {
    let (keyed, clock) = table::<u64>(bucket("300239/s", 1), 60, Overflow::Refuse);
    for key in 0..60 {
        assert_eq!(passes(&keyed, &key), Some(true));
    }
    clock.advance(Duration::from_nanos(validity_ns(300_239) + 1));
    assert_eq!(passes(&keyed, &100), Some(true));
    assert_eq!(keyed.len(), 1);
}
