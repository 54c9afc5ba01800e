//! Shares of limits on operations in flight, against plain counts.

use std::collections::VecDeque;

use crate::common::end;
use fastrand::Rng;
use rategate_core::adaptive::{Adaptation, AdaptiveConcurrency, Bounds, Outcome};
use rategate_core::all_of::AllOf;
use rategate_core::concurrency::Concurrency;
use rategate_core::error::LimitError;
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::share::Share;
use rategate_core::verdict::{Grant, Verdict};

const MS: u64 = 1_000_000;

/// Plays tries of several shares, and ends. Whatever passes fits into its share of the limit, of
/// which `limit_of` returns the number, and whatever fits passes.
fn keeps_shares(seed: u64, mut limit: Ledger, limit_of: impl Fn(&Ledger, u64) -> u64) {
    let mut rng = Rng::with_seed(seed);
    let (mut now_ns, mut in_flight) = (0, Vec::<Grant>::new());
    let (mut granted, mut denied) = (0, 0);
    for _ in 0..600 {
        now_ns += rng.u64(..4 * MS);
        if rng.u32(..5) < 2 && !in_flight.is_empty() {
            let grant = in_flight.swap_remove(rng.usize(..in_flight.len()));
            let outcome = if rng.u32(..8) == 0 { Outcome::Dropped } else { Outcome::Served };
            end(&mut limit, now_ns, &grant, outcome);
            continue;
        }
        let percent = [1, 25, 50, 99, 100][rng.usize(..5)];
        let permits = rng.u64(1..=2);
        let used: u64 = in_flight.iter().map(|grant| grant.permits).sum();
        let part = (limit_of(&limit, now_ns) * u64::from(percent)).div_ceil(100);
        let share = Share::percent(percent);
        match limit.try_acquire_in_share(now_ns, permits, share).unwrap() {
            Some(Verdict::Granted(grant)) => {
                assert!(used + permits <= part, "seed {seed}: {used} and {permits} of {part}");
                in_flight.push(grant);
                granted += 1;
            }
            Some(Verdict::Denied(denial)) => {
                assert!(used + permits > part, "seed {seed}: {used} and {permits} of {part}");
                assert_eq!(denial.retry_after_ns, None, "seed {seed}");
                denied += 1;
            }
            None => panic!("seed {seed}: it limits operations in flight"),
        }
    }
    assert!(granted > 100 && denied > 20, "seed {seed}: {granted} and {denied}");
}

#[test]
fn a_share_is_a_part_of_the_present_limit() {
    for seed in 0..200 {
        let fixed = seed % 13 + 2;
        keeps_shares(seed, Ledger::new(Concurrency::new(fixed), 0), |_, _| fixed);
        let adaptive = Ledger::new(AdaptiveConcurrency::new(2, 40), 0);
        keeps_shares(seed, adaptive, |limit, now_ns| limit.max_in_flight(now_ns).unwrap());
    }
}

/// The least of several limits decides, and one that does not limit operations in flight has no
/// shares.
#[test]
fn several_limits_are_judged_by_their_own_shares() {
    for seed in 0..100 {
        let plenty = Gcra::per_second(1_000_000).burst(1_000_000);
        let both = AllOf::default().and(Concurrency::new(9)).and(plenty).and(Concurrency::new(6));
        keeps_shares(seed, Ledger::new(both, 0), |_, _| 6);
    }
    let mut rate = Ledger::new(Gcra::per_second(10), 0);
    assert_eq!(rate.try_acquire_in_share(0, 1, Share::percent(50)), Ok(None));
    assert_eq!(rate.remaining(0), 1);
}

#[test]
fn a_share_is_checked_and_rounded_up() {
    for percent in [0, 101, u8::MAX] {
        assert_eq!(Share::try_percent(percent), Err(LimitError::Share));
    }
    assert!(Share::percent(100).is_whole() && !Share::percent(99).is_whole());
    assert_eq!(Share::percent(1).of(1), 1);
    assert_eq!(Share::percent(50).of(5), 3);
    assert_eq!(Share::percent(99).of(0), 0);
    assert_eq!(Share::WHOLE.of(u64::MAX), u64::MAX);
    assert_eq!(Share::percent(1).of(u64::MAX), u64::MAX / 100 + 1);
}

#[test]
fn more_than_the_limit_is_an_error_in_every_share() {
    let mut limit = Ledger::new(Concurrency::new(4), 0);
    for share in [Share::WHOLE, Share::percent(50)] {
        let exceeds = limit.try_acquire_in_share(0, 5, share).unwrap_err();
        assert_eq!((exceeds.permits, exceeds.max), (5, 4));
        let nothing = limit.try_acquire_in_share(0, 0, share).unwrap();
        assert!(matches!(nothing, Some(Verdict::Granted(_))));
    }
}

/// Returns the limits of a server that works on six calls at once, each of which takes 10 ms, while
/// so many callers call it again and again, as far as their share has room.
fn limits_in_share(percent: u8, first: u32, callers: usize) -> Vec<u64> {
    let adaptation = Adaptation::new(Bounds::new(1, first, 500));
    let mut limit = Ledger::new(AdaptiveConcurrency::following(adaptation), 0);
    let (mut now_ns, mut in_flight) = (0, VecDeque::<Grant>::new());
    let mut limits = Vec::new();
    for nth in 0..40_000_u64 {
        let share = Share::percent(percent);
        while in_flight.len() < callers {
            match limit.try_acquire_in_share(now_ns, 1, share).unwrap() {
                Some(Verdict::Granted(grant)) => in_flight.push_back(grant),
                _ => break,
            }
        }
        // With fewer than six in flight, each still takes 10 ms.
        let workers = u64::try_from(in_flight.len().min(6)).unwrap();
        now_ns += 10 * MS / workers + nth % 3;
        let grant = in_flight.pop_front().unwrap();
        end(&mut limit, now_ns, &grant, Outcome::Served);
        limits.push(limit.max_in_flight(now_ns).unwrap());
    }
    limits
}

/// The limit is then above what the server bears, so that the share of it is.
#[test]
fn a_share_that_is_reached_moves_the_limit_where_it_is_a_quarter_at_least() {
    let last = |percent, first| {
        let limits = limits_in_share(percent, first, 500);
        let mut last = limits[limits.len() / 2..].to_vec();
        last.sort_unstable();
        last[last.len() / 2]
    };
    // The goal for six is 12.25 in flight, whatever the share of the limit they are.
    for (percent, of) in
        [(100, 11..=13), (80, 14..=17), (60, 18..=22), (50, 22..=26), (30, 36..=42)]
    {
        for first in [4, 20, 200] {
            let found = last(percent, first);
            assert!(of.contains(&found), "{percent} % from {first}: {found}");
        }
    }
    // A share with room moves none.
    assert_eq!(limits_in_share(80, 10, 6).into_iter().max(), Some(10));
    // A smaller share lets none grow, and cuts one whose share is a queue.
    assert_eq!(limits_in_share(20, 10, 500).into_iter().max(), Some(10));
    assert!((50..=65).contains(&last(20, 200)), "{}", last(20, 200));
}
