//! Tests of the `sliding_log` contract, against a plain list of all grants.

use crate::common::{MS, S, call, exact_retry, granted, log, ns, retry, start};
use fastrand::Rng;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::ledger::Ledger;
use rategate_core::sliding_log::{MAX_PERMITS, SlidingLog};
use rategate_core::verdict::Verdict;
use rategate_testkit::oracle::Grants;

const MINUTE: u64 = 60 * S;

fn live(permits: u64, period_ns: u64) -> Ledger {
    Ledger::new(log(permits, period_ns), 0)
}

/// Returns when `permits` pass by the list: the first instant from `from_ns` on at which they
/// fit.
///
/// Only an instant at which a listed grant becomes a period old can be the first.
fn opening(list: &Grants, max: u64, period_ns: u64, from_ns: u64, permits: u64) -> u64 {
    let fits = |at_ns: u64| {
        let young = list.0.iter().filter(|(start_ns, _)| start_ns + period_ns > at_ns);
        young.map(|(_, permits)| permits).sum::<u64>() + permits <= max
    };
    let ages = list.0.iter().map(|(start_ns, _)| start_ns + period_ns);
    let candidates = ages.filter(|&at_ns| at_ns > from_ns).chain([from_ns]);
    candidates.filter(|&at_ns| fits(at_ns)).min().expect("all come of age")
}

/// S1.4, S1.5, X1.1, X1.7: in the ring of N instants, grant n starts at `max(now, g[n - N] + M)`,
/// from a clock that starts at 0 as from any other, and unused slots delay no caller.
#[test]
fn single_permits_follow_the_recurrence() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let (max, period_ns) = (random.u64(1..=8), random.u64(1..=100));
        let mut now_ns = random.choice([0, 0, 1_000]).unwrap();
        let mut limit = Ledger::new(log(max, period_ns), now_ns);
        let mut grants: Vec<u64> = Vec::new();
        for n in 0..150_usize {
            now_ns += random.choice([0, 0, 0, 1, 5, 40, 300]).unwrap();
            let slot = n.checked_sub(usize::try_from(max).unwrap());
            let due_ns = slot.map_or(now_ns, |slot| now_ns.max(grants[slot] + period_ns));
            let begun_ns = start(limit.reserve(now_ns, 1, None));
            assert_eq!(begun_ns, due_ns, "seed {seed}, grant {n}");
            grants.push(begun_ns);
        }
    }
}

/// S1.1, S3.2, S3.4, S3.6, S4.3: any call starts exactly when it fits the list, so any window of
/// M contains at most N, and no caller waits longer than that takes.
#[test]
fn answers_are_those_of_the_list() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let (max, period_ns) = (random.u64(1..=9), random.u64(1..=60));
        let mut limit = live(max, period_ns);
        let (mut list, mut now_ns, mut last_ns) = (Grants::default(), 0, 0);
        for step in 0..120 {
            let what = format!("seed {seed}, step {step}");
            now_ns += random.choice([0, 0, 1, 3, 20, 100]).unwrap();
            let permits = random.u64(1..=max);
            let opens_ns = opening(&list, max, period_ns, now_ns.max(last_ns), permits);
            let reserves = random.u64(..2) == 0;
            let answer = call(&mut limit, reserves, now_ns, permits);
            if reserves || opens_ns == now_ns {
                assert_eq!(start(answer), opens_ns, "{what}");
                list.add(opens_ns, permits);
                last_ns = opens_ns;
            } else {
                assert_eq!(retry(answer), opens_ns - now_ns, "{what}");
            }
        }
        assert!(list.fullest_window(period_ns).0 <= max, "seed {seed}");
    }
}

/// S1.3: a caller below the limit never waits, however its calls are spaced.
#[test]
fn below_the_limit_no_caller_waits() {
    let mut random = Rng::with_seed(3);
    let mut limit = live(51, S);
    let (mut now_ns, mut requested) = (0, Grants::default());
    while now_ns < 30 * S {
        now_ns += random.u64(0..=30 * MS);
        let mut with_this = requested.clone();
        with_this.add(now_ns, 1);
        if with_this.fullest_window(S).0 <= 51 {
            assert_eq!(start(limit.reserve(now_ns, 1, None)), now_ns);
            requested = with_this;
            requested.0.retain(|(start_ns, _)| start_ns + S > now_ns);
        }
    }
}

/// X1.2, X3.2, S4.18: equality passes, one nanosecond sooner is denied, and no wait is ever zero.
#[test]
fn a_retry_at_its_instant_passes() {
    for seed in 1..100 {
        let mut random = Rng::with_seed(seed);
        let (max, period_ns) = (random.u64(1..=5), random.u64(2..=1_000));
        let mut limit = live(max, period_ns);
        let mut now_ns = 0;
        for _ in 0..60 {
            now_ns += random.u64(0..=period_ns / max);
            let permits = random.u64(1..=max);
            if granted(limit.try_acquire(now_ns, permits)).is_none() {
                exact_retry(&limit, now_ns, permits, &format!("seed {seed}"));
            }
        }
    }
}

/// S1.8, S1.9: callers with reservations that start at their promised instants get the very
/// schedule of callers that wait.
#[test]
fn promised_starts_are_those_of_waiting_callers() {
    let (mut waiting, mut promised) = (live(7, S), live(7, S));
    let mut now_ns = 0;
    for _ in 0..100 {
        now_ns = start(waiting.reserve(now_ns, 1, None));
        assert_eq!(start(promised.reserve(0, 1, None)), now_ns);
    }
}

/// S1.10, S1.11: 51 a second with demand always above it: from any point on, a second contains
/// 51.
#[test]
fn a_saturated_second_holds_51_at_every_phase() {
    let mut random = Rng::with_seed(51);
    let mut limit = live(51, S);
    let (mut now_ns, mut starts) = (0, Vec::new());
    while now_ns < 12 * S {
        // Several a millisecond where 51 a second pass.
        now_ns += random.u64(0..=MS);
        if granted(limit.try_acquire(now_ns, 1)).is_some() {
            starts.push(now_ns);
        }
    }
    for _ in 0..500 {
        let from_ns = random.u64(S..=10 * S);
        let sample = starts.iter().filter(|&&at| (from_ns..from_ns + S).contains(&at)).count();
        assert!(sample <= 51, "{sample} from {from_ns}");
    }
    assert!(starts.len() > 51 * 12 * 99 / 100, "a poller is up to a millisecond late each round");
    // Reservations leave no gap at all.
    let mut limit = live(51, S);
    let starts: Vec<u64> = (0..510).map(|n| start(limit.reserve(n * MS, 1, None))).collect();
    for from_ns in (0..8 * S).step_by(7_777_777) {
        let sample = starts.iter().filter(|&&at| (from_ns..from_ns + S).contains(&at)).count();
        assert_eq!(sample, 51, "from {from_ns}");
    }
}

/// X1.5: with a jitter of J in transit, 51 sent a second may be more on arrival; a guard of J
/// keeps them at 51.
#[test]
fn a_guard_absorbs_the_jitter_of_the_way() {
    for jitter_ns in [5 * MS, 20 * MS] {
        let arrivals = |guard_ns: u64| {
            let mut random = Rng::with_seed(jitter_ns);
            let policy = log(51, S).with_guard(ns(guard_ns)).unwrap();
            let mut limit = Ledger::new(policy, 0);
            let mut arrived = Grants::default();
            for n in 0..2_000 {
                let begun_ns = start(limit.reserve(n * 19 * MS, 1, None));
                arrived.add(begun_ns + 40 * MS + random.u64(0..=jitter_ns), 1);
            }
            arrived.fullest_window(S).0
        };
        assert!(arrivals(0) > 51, "unguarded, J = {jitter_ns}");
        assert!(arrivals(jitter_ns) <= 51, "guarded, J = {jitter_ns}");
    }
}

/// S4.2: two a second, requested at 0.8, 0.9, 1.1 and 1.2 s.
#[test]
fn the_four_arrivals_of_the_two_a_second_example() {
    let mut limit = live(2, S);
    let starts = [800, 900, 1_100, 1_200].map(|ms| start(limit.reserve(ms * MS, 1, None)) / MS);
    assert_eq!(starts, [800, 900, 1_800, 1_900]);
}

/// S4.10: ten actions of 250 ms at two a second.
#[test]
fn a_loop_of_slow_actions() {
    let mut limit = live(2, S);
    let (mut now_ns, mut starts) = (0, Vec::new());
    for _ in 0..10 {
        let begun_ns = start(limit.reserve(now_ns, 1, None));
        starts.push(begun_ns / MS);
        now_ns = begun_ns + 250 * MS;
    }
    assert_eq!(starts, [0, 250, 1000, 1250, 2000, 2250, 3000, 3250, 4000, 4250]);
    assert_eq!(now_ns, 4_500 * MS);
}

/// S4.13, X4.2: ten at once at two a second: each pair exactly a second after the one before.
#[test]
fn parallel_callers_lose_no_capacity() {
    let mut limit = live(2, S);
    let starts: Vec<u64> = (0..10).map(|_| start(limit.reserve(0, 1, None)) / MS).collect();
    assert_eq!(starts, [0, 0, 1000, 1000, 2000, 2000, 3000, 3000, 4000, 4000]);
}

/// S4.4: an oven for six pizzas of 30 minutes, three makers in a queue: never more than six in
/// any half hour, and twelve an hour in the long run.
#[test]
fn the_pizza_oven() {
    let mut oven = live(6, 30 * MINUTE);
    let (mut makers, mut placed) = ([0_u64; 3], Grants::default());
    for round in 0..120 {
        let maker = &mut makers[round % 3];
        let begun_ns = start(oven.reserve(*maker, 1, None));
        placed.add(begun_ns, 1);
        *maker = begun_ns + 3 * MINUTE;
    }
    assert_eq!(placed.fullest_window(30 * MINUTE).0, 6);
    assert!(placed.0[119].0 < 120 / 6 * 30 * MINUTE);
}

/// X3.1, S3.3, S3.5: exactly N pass at once: fresh, in each later period, and again and again
/// after the log has emptied itself.
#[test]
fn all_hundred_pass_at_every_phase() {
    let mut limit = live(100, 5 * S);
    let burst = |limit: &mut Ledger, now_ns| {
        (0..150).filter(|_| granted(limit.try_acquire(now_ns, 1)).is_some()).count()
    };
    for now_ns in [0, 5, 10, 15, 1_000, 2_000, 2_007, 9_999].map(|s| s * S) {
        assert_eq!(burst(&mut limit, now_ns), 100, "at {now_ns}");
        assert_eq!(burst(&mut limit, now_ns + 5 * S - 1), 0, "just before {now_ns} is over");
    }
    // Partly aged: only as many as have left can pass again.
    let mut limit = live(100, 5 * S);
    for (at_s, requested) in [(0, 30), (2, 50), (4, 20)] {
        assert!(granted(limit.try_acquire(at_s * S, requested)).is_some());
    }
    assert_eq!([5, 7, 9].map(|at_s| burst(&mut limit, at_s * S)), [30, 50, 20]);
}

/// S3.7: many callers with random pauses against 100 in 5 s.
#[test]
fn many_callers_with_random_pauses() {
    let mut random = Rng::with_seed(37);
    let mut limit = live(100, 5 * S);
    let (mut callers, mut grants) = ([0_u64; 10], Grants::default());
    for _ in 0..20_000 {
        let caller = callers.iter_mut().min().unwrap();
        if granted(limit.try_acquire(*caller, 1)).is_some() {
            grants.add(*caller, 1);
        }
        *caller += random.u64(10 * MS..=90 * MS);
    }
    assert_eq!(grants.fullest_window(5 * S).0, 100);
}

/// S4.20: a denial names the wait instead of blocking; a caller that respects it gets every
/// available permit.
#[test]
fn callers_that_heed_retry_after_get_the_whole_rate() {
    let mut limit = live(4, S);
    let (mut now_ns, mut passed) = (0, 0);
    while now_ns < 100 * S {
        match limit.try_acquire(now_ns, 1).unwrap() {
            Verdict::Granted(_) => passed += 1,
            Verdict::Denied(denial) => now_ns += denial.retry_after_ns.unwrap().get(),
        }
    }
    assert_eq!(passed, 400);
}

/// S3.12: N and M change on the fly. Windows that start after the change contain at most the new
/// N, and if only N changes, those around it at most the larger (docs/theory.md, section 2.6).
#[test]
fn windows_after_a_change_hold_the_new_limit() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let (mut max, mut period_ns) = (random.u64(1..=8), random.u64(5..=60));
        let mut limit = live(max, period_ns);
        let (mut now_ns, mut before, mut all) = (0, 0, Grants::default());
        for _ in 0..6 {
            let (was, changed_ns, keeps_period) = (max, now_ns, random.u64(..2) == 0);
            let known = all.0.len();
            max = random.u64(1..=8);
            if !keeps_period {
                period_ns = random.u64(5..=60);
            }
            limit.reconfigure(now_ns, log(max, period_ns)).unwrap();
            for _ in 0..40 {
                now_ns += random.u64(0..=6);
                let permits = random.u64(1..=max);
                if granted(limit.try_acquire(now_ns, permits)).is_some() {
                    all.add(now_ns, permits);
                }
            }
            let after = Grants(all.0[known..].to_vec());
            assert!(
                after.fullest_window(period_ns).0 <= max,
                "seed {seed}, changed at {changed_ns}"
            );
            if keeps_period {
                let around = Grants(all.0[before..].to_vec());
                assert!(
                    around.fullest_window(period_ns).0 <= max.max(was),
                    "seed {seed}, at {changed_ns}"
                );
            }
            before = known;
        }
    }
}

/// S3.12: more permits pass at once, fewer only once enough have aged, and a longer period counts
/// those still in the log.
#[test]
fn a_change_of_the_limit_keeps_the_log() {
    let mut limit = live(3, 100);
    for now_ns in [0, 10, 20] {
        assert!(granted(limit.try_acquire(now_ns, 1)).is_some());
    }
    limit.reconfigure(20, log(5, 100)).unwrap();
    assert_eq!(limit.remaining(20), 2);
    limit.reconfigure(20, log(1, 100)).unwrap();
    assert_eq!(retry(limit.try_acquire(20, 1)), 100, "the newest has to leave");
    limit.reconfigure(20, log(2, 200)).unwrap();
    assert_eq!(retry(limit.try_acquire(20, 1)), 190, "the second newest has to");
    limit.reconfigure(20, log(3, 50)).unwrap();
    assert_eq!(retry(limit.try_acquire(20, 1)), 30);
    // At 55 the first has left a log of 50 ns, and a longer period does not bring it back.
    limit.reconfigure(55, log(3, 1_000)).unwrap();
    assert_eq!(limit.remaining(55), 1);
    // A permit leaves at the very nanosecond at which it is a period old.
    let mut limit = live(1, 100);
    assert!(granted(limit.try_acquire(0, 1)).is_some());
    assert_eq!((limit.remaining(99), limit.remaining(100)), (0, 1));
    limit.reconfigure(100, log(1, 1_000)).unwrap();
    assert_eq!(start(limit.try_acquire(100, 1)), 100);
}

/// S4.14, S4.7, X4.4: any period from 1 ns to 584 years is exact; zero and less is refused.
#[test]
fn every_period_up_to_the_whole_clock() {
    assert_eq!(SlidingLog::try_new(0, ns(S)), Err(LimitError::ZeroPermits));
    assert_eq!(SlidingLog::try_new(1, ns(0)), Err(LimitError::ZeroPeriod));
    let max = MAX_PERMITS;
    assert_eq!(SlidingLog::try_new(max + 1, ns(S)), Err(LimitError::TooManyPermits { max }));
    let policy = log(1, S);
    assert_eq!(policy.with_guard(ns(u64::MAX)), Err(LimitError::PeriodTooLong));
    assert!(policy.with_guard(ns(u64::MAX - S)).is_ok());

    for period_ns in [1, 999, 1_500, 50 * 86_400 * S, u64::MAX - 5] {
        let mut limit = live(1, period_ns);
        assert_eq!(start(limit.try_acquire(5, 1)), 5);
        assert_eq!(retry(limit.try_acquire(5, 1)), period_ns);
        assert_eq!(start(limit.reserve(5, 1, None)), 5 + period_ns);
    }
    assert_eq!(live(2, S).try_acquire(0, 3), Err(ExceedsCapacity::new(3, 2)));
}

/// S4.19: where a millisecond or a 32-bit or 63-bit counter would roll over, nothing happens.
#[test]
fn no_instant_is_special() {
    let arrivals = [0, 0, 3, 8, 8, 9, 30, 31, 44, 44, 100_u64];
    let run = |origin_ns: u64| {
        let mut limit = Ledger::new(log(2, 10), origin_ns);
        arrivals.map(|at_ns| start(limit.reserve(origin_ns + at_ns, 1, None)) - origin_ns)
    };
    let expected = run(0);
    for border in [1 << 31, 1 << 32, (1 << 32) * MS, 1 << 53, 1 << 63, u64::MAX - 500] {
        for before_ns in [0, 5, 9, 50] {
            assert_eq!(run(border - before_ns), expected, "near {border}");
        }
    }
}
