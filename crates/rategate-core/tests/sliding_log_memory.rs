//! Memory of a log: bytes for each key by numbers and traffic, while it grows and when it falls.

use std::num::NonZeroU64;

use crate::common::{MS, S, US, log};
use fastrand::Rng;
use rategate_core::gcra;
use rategate_core::policy::{Policy, Taken};
use rategate_core::sliding_log::{MAX_PERMITS, SlidingLog, State};

/// Grants permits that pass at `now_ns`. Returns how many did.
fn request(policy: &SlidingLog, state: &mut State, now_ns: u64, permits: u64) -> u64 {
    let requested = NonZeroU64::new(permits).unwrap();
    let opening = policy.opening(state, now_ns, requested).unwrap();
    if opening.start_ns > now_ns {
        return 0;
    }
    policy.take(state, Taken { from_ns: now_ns, start_ns: now_ns, permits: requested });
    permits
}

fn heap(state: &State) -> usize {
    log(1, S).heap_bytes(state)
}

fn bytes(state: &State) -> usize {
    size_of::<State>() + heap(state)
}

/// The pattern in which callers arrive.
#[derive(Clone, Copy, Debug)]
enum Traffic {
    /// One by one at distinct instants without any pattern, at least as many as the limit grants.
    Busy,
    /// One by one, evenly spaced, as many as the limit grants.
    Even,
    /// All that the limit grants at one instant, once in a window.
    Bursts,
    /// A tenth of the limit's permits at a time, at instants without any pattern.
    Tenths,
    /// Once in a window.
    Rare,
}

/// Returns the maximum of bytes of one key within two windows.
fn max_bytes(policy: &SlidingLog, traffic: Traffic, seed: u64) -> usize {
    let mut random = Rng::with_seed(seed);
    let mut between = |low: u64, high: u64| random.u64(low..=high);
    let (max, held_ns) = (policy.permits(), policy.held_for_ns());
    let (mut state, mut now_ns, mut max_bytes) = (State::default(), held_ns + seed, 0);
    let end_ns = now_ns + 2 * held_ns;
    let mean_ns = held_ns * 9 / 10 / max;
    while now_ns < end_ns {
        let permits = match traffic {
            Traffic::Bursts => max,
            Traffic::Tenths => max.div_ceil(10),
            _ => 1,
        };
        request(policy, &mut state, now_ns, permits);
        max_bytes = max_bytes.max(bytes(&state));
        now_ns += match traffic {
            Traffic::Busy => 1 + between(0, 2 * mean_ns),
            Traffic::Even => held_ns / max,
            Traffic::Tenths => between(1, 2 * mean_ns * permits),
            Traffic::Bursts | Traffic::Rare => held_ns,
        };
    }
    max_bytes
}

/// S3.10, S3.11, X3.6: bytes for a key in total, by numbers and traffic: the most of some seeds.
/// The guide's table has these figures.
#[test]
fn a_key_takes_no_more_than_this() {
    const NS: u64 = S;
    let table = [
        // permits, parts of a second, traffic, bytes
        (10, 1_000, Traffic::Busy, 116),
        (10, 65_535, Traffic::Busy, 312),
        (10, 1_000_000, Traffic::Busy, 312),
        (10, NS, Traffic::Busy, 312),
        (100, 1_000, Traffic::Busy, 213),
        (100, 65_535, Traffic::Busy, 736),
        (100, 1_000_000, Traffic::Busy, 2_264),
        (100, NS, Traffic::Busy, 2_264),
        (1_000, 1_000, Traffic::Busy, 943),
        (1_000, 65_535, Traffic::Busy, 1_874),
        (1_000, 1_000_000, Traffic::Busy, 9_522),
        (1_000, NS, Traffic::Busy, 17_064),
        (10_000, 100, Traffic::Busy, 211),
        (10_000, 1_000, Traffic::Busy, 1_091),
        (10_000, 65_535, Traffic::Busy, 11_119),
        (10_000, 1_000_000, Traffic::Busy, 15_544),
        (10_000, NS, Traffic::Busy, 194_216),
        (10_000, 1_000, Traffic::Even, 1_091),
        (10_000, 65_535, Traffic::Even, 11_239),
        (10_000, NS, Traffic::Even, 194_216),
        (10_000, 1_000, Traffic::Tenths, 312),
        (10_000, NS, Traffic::Tenths, 312),
        (10_000, 1_000, Traffic::Bursts, 24),
        (10_000, NS, Traffic::Bursts, 24),
        (10_000, 1_000, Traffic::Rare, 106),
        (10_000, NS, Traffic::Rare, 24),
    ];
    for (permits, parts, traffic, max) in table {
        let policy = log(permits, S).with_parts(parts).unwrap();
        let took = (1..22).map(|seed| max_bytes(&policy, traffic, seed)).max().unwrap();
        let expected = max - max / 8..=max;
        assert!(expected.contains(&took), "{permits} in {parts} parts, {traffic:?}: {took} bytes");
    }
}

/// S3.10: 10 000 permits for each of 1000 callers, all of them busy at instants without any
/// pattern, are 80 MB of 8-byte instants: here at most 2.5 MB to 0.1 %, and 20 MB to 0.0015 %.
#[test]
fn a_thousand_busy_callers() {
    for (parts, max) in [(1_000, 2_500_000), (65_535, 20_000_000)] {
        let policy = log(10_000, S).with_parts(parts).unwrap();
        // The fullest of some stands for each of the thousand.
        let fullest = (1..16).map(|seed| max_bytes(&policy, Traffic::Busy, seed)).max().unwrap();
        assert!(fullest * 1_000 <= max, "{parts} parts: {fullest} bytes each");
    }
}

/// State grows with use: a key with one grant, or two, costs less than a token bucket.
#[test]
fn a_key_that_is_rarely_used_has_no_heap() {
    assert!(size_of::<State>() <= size_of::<gcra::State>());
    let exact = log(MAX_PERMITS, S);
    for permits in [1, 65_535, 65_536, MAX_PERMITS] {
        let mut state = exact.fresh(7);
        assert_eq!(request(&exact, &mut state, 7, permits), permits);
        assert_eq!(heap(&state), 0, "{permits}");
        assert_eq!(exact.remaining(&state, 7), MAX_PERMITS - permits);
        // Another instant takes some, until the first permits have left.
        request(&exact, &mut state, 7 + MS, (MAX_PERMITS - permits).max(1));
        request(&exact, &mut state, 7 + S, 1);
        assert_eq!(heap(&state) > 0, permits < MAX_PERMITS, "{permits}");
        request(&exact, &mut state, 7 + 3 * S, 1);
        assert_eq!(heap(&state), 0, "{permits}");
    }
}

/// A shrinking log is rewritten before it takes more than documented: a key that was once busy
/// keeps no memory of that.
#[test]
fn memory_falls_with_the_log() {
    for parts in [1_000, 65_535, S] {
        let policy = log(10_000, S).with_parts(parts).unwrap();
        let (mut state, mut now_ns) = (State::default(), S);
        for _ in 0..9_900 {
            now_ns += 90 * US;
            assert_eq!(request(&policy, &mut state, now_ns, 1), 1);
        }
        // A grant each 20 ms for the rest of a window, in which the others leave.
        for _ in 0..60 {
            now_ns += 20 * MS;
            assert_eq!(request(&policy, &mut state, now_ns, 1), 1);
            let held = usize::try_from(10_000 - policy.remaining(&state, now_ns)).unwrap();
            assert!(heap(&state) <= 64 * held + 500, "{held} of {parts} parts");
        }
        assert!((9_949..=9_950).contains(&policy.remaining(&state, now_ns)));
    }
}
