//! Laws of every live policy: promises, cancelling, the clamped clock and change.
//!
//! The oracles are limits that never received the cancelled calls, and searches through every
//! instant.
use std::mem::discriminant;
use std::num::NonZeroU64;

use crate::common::limits::{Kind, Scale, TIMED, limit};
use crate::common::{
    MS, S, bucket, call, exact_retry, granted, log, ns, pacer, per, policy, rate, retry, start,
    timeline, window_of_first_call,
};
use fastrand::Rng;
use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::error::LimitError;
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::two_timeline::Mode;
use rategate_core::verdict::{Grant, Ticket, Verdict};
use rategate_testkit::oracle::Grants;

/// Returns one of each policy and each mode, with small random numbers.
fn policies(random: &mut Rng) -> [AnyPolicy; TIMED.len()] {
    TIMED.map(|kind| limit(kind, Scale::Of(1), random))
}

/// Returns the policies without a rate, which decide at once or never.
fn timeless() -> [AnyPolicy; 2] {
    [Concurrency::new(3).into(), BackfillPool::new(3, Ratio::ONE, None).unwrap().into()]
}

fn shown(limit: &Ledger) -> String {
    format!("{limit:?}")
}

/// Drives each policy through a random mixture of calls, and checks `law` before each.
fn walk(seeds: u64, cancels: bool, law: impl Fn(&str, &Ledger, u64, u64)) {
    for seed in 1..=seeds {
        let mut random = Rng::with_seed(seed);
        for policy in policies(&mut random) {
            let mut now_ns = random.u64(0..=20);
            let mut limit = Ledger::new(policy, now_ns);
            let mut tickets: Vec<Ticket> = Vec::new();
            for step in 0..40 {
                now_ns += random.choice([0, 0, 1, 2, 10, 60, 500]).unwrap();
                let requested_ns = now_ns.saturating_sub(random.choice([0, 0, 0, 7]).unwrap());
                let permits = random.u64(1..=4);
                let what =
                    format!("seed {seed}, step {step}: {permits} at {requested_ns} of {policy:?}");
                law(&what, &limit, requested_ns, permits);
                let answer = match random.u64(0..=3) {
                    0 => limit.try_acquire(requested_ns, permits),
                    1 => limit.reserve(requested_ns, permits, Some(random.u64(0..=50))),
                    _ => limit.reserve(requested_ns, permits, None),
                };
                if let Ok(Verdict::Granted(grant)) = answer {
                    tickets.push(grant.ticket);
                }
                if cancels && random.u64(..4) == 0 && !tickets.is_empty() {
                    let ticket = tickets
                        .remove(usize::try_from(random.u64(0..=99)).unwrap() % tickets.len());
                    limit.cancel(requested_ns, ticket);
                }
            }
        }
    }
}

/// X5.2: the first grant of a fresh limit is at once, at any instant; for all policies.
#[test]
fn the_first_grant_is_at_once() {
    for seed in 1..20 {
        let mut random = Rng::with_seed(seed);
        for policy in policies(&mut random) {
            for now_ns in [0, 1, 12_345, u64::MAX - 1_000] {
                assert_eq!(start(Ledger::new(policy, now_ns).try_acquire(now_ns, 1)), now_ns);
                assert_eq!(start(Ledger::new(policy, now_ns).reserve(now_ns, 1, None)), now_ns);
            }
        }
    }
}

/// X5.5, X5.1, X3.2: for every policy a denial carries the exact wait: at its end the same call
/// passes, equality included, and one nanosecond sooner it does not. Peeking agrees.
#[test]
fn every_denial_carries_the_exact_wait() {
    let law = |what: &str, limit: &Ledger, now_ns: u64, permits: u64| {
        let now_ns = limit.clamp(now_ns);
        let peeked = limit.peek(now_ns, permits);
        let Ok(verdict) = limit.clone().try_acquire(now_ns, permits) else {
            assert!(peeked.is_err(), "{what}");
            return;
        };
        let Verdict::Denied(denial) = verdict else {
            assert_eq!(peeked, Ok(Some(0)), "{what}");
            return;
        };
        let after_ns = denial.retry_after_ns.expect("time helps").get();
        assert_eq!(peeked, Ok(Some(after_ns)), "{what}");
        assert_eq!(exact_retry(limit, now_ns, permits, what), after_ns, "{what}");
    };
    walk(60, false, law);
    walk(60, true, law);
}

/// X5.5: a reservation with a bound on its wait passes if and only if the wait is within; its
/// denial is exact too, and every grant carries start, wait and remainder.
#[test]
fn a_bounded_wait_is_kept_or_denied_exactly() {
    let law = |what: &str, limit: &Ledger, now_ns: u64, permits: u64| {
        let now_ns = limit.clamp(now_ns);
        let Ok(Verdict::Granted(free)) = limit.clone().reserve(now_ns, permits, None) else {
            return;
        };
        assert!(free.start_ns >= now_ns && free.scheduled_ns <= free.start_ns, "{what}");
        assert_eq!(free.wait_ns(), free.start_ns - free.scheduled_ns);
        let wait_ns = free.start_ns - now_ns;
        assert!(granted(limit.clone().reserve(now_ns, permits, Some(wait_ns))).is_some(), "{what}");
        let Some(shorter_ns) = wait_ns.checked_sub(1) else { return };
        for max_ns in [shorter_ns, wait_ns / 2, 0] {
            let with_bound = |now_ns: u64| limit.clone().reserve(now_ns, permits, Some(max_ns));
            let after_ns = retry(with_bound(now_ns));
            assert!(granted(with_bound(now_ns + after_ns - 1)).is_none(), "{what}, {max_ns}");
            assert!(granted(with_bound(now_ns + after_ns)).is_some(), "{what}, {max_ns}");
        }
    };
    walk(40, false, law);
}

/// X5.5: the remainder is the maximum that a try can take: that many pass, one more does not.
#[test]
fn what_remains_is_what_a_try_can_take() {
    let law = |what: &str, limit: &Ledger, now_ns: u64, _: u64| {
        let remaining = limit.remaining(now_ns);
        if remaining > 0 {
            let grant = granted(limit.clone().try_acquire(now_ns, remaining));
            assert!(grant.is_some(), "{what}: {remaining} do not pass");
        }
        let more = limit.clone().try_acquire(now_ns, remaining + 1);
        assert!(!matches!(more, Ok(Verdict::Granted(_))), "{what}: more than {remaining} pass");
    };
    walk(60, false, law);
    walk(60, true, law);
}

/// A denial, zero permits, an impossible request and a peek leave no trace; zero permits pass.
#[test]
fn what_takes_nothing_leaves_no_trace() {
    let law = |what: &str, limit: &Ledger, now_ns: u64, permits: u64| {
        let before = shown(limit);
        let mut limit = limit.clone();
        for answer in [limit.try_acquire(now_ns, 0), limit.reserve(now_ns, 0, Some(0))] {
            let grant = granted(answer).expect("zero permits pass");
            assert_eq!(grant.start_ns, limit.clamp(now_ns));
            assert!(!limit.clone().cancel(now_ns, grant.ticket));
        }
        let _ = limit.peek(now_ns, permits);
        let untouched = |answer| !matches!(answer, Ok(Verdict::Granted(_)));
        assert_eq!(shown(&limit), before, "{what}");
        for _ in 0..2 {
            let (mut once, mut again) = (limit.clone(), limit.clone());
            if untouched(once.try_acquire(now_ns, permits)) {
                assert_eq!(shown(&once), before, "{what}: try");
            }
            if untouched(again.reserve(now_ns, permits, Some(1))) {
                assert_eq!(shown(&again), before, "{what}: reserve");
            }
        }
        if limit.try_acquire(now_ns, u64::MAX).is_err() {
            assert!(limit.reserve(now_ns, u64::MAX, None).is_err());
            assert_eq!(shown(&limit), before, "{what}: too many");
        }
    };
    walk(30, false, law);
}

/// X5.3: a clock that goes backwards counts as the newest reading that left a trace.
#[test]
fn going_backwards_earns_nothing() {
    let law = |what: &str, limit: &Ledger, now_ns: u64, permits: u64| {
        let newest_ns = limit.clamp(0);
        for earlier_ns in [0, now_ns.min(newest_ns) / 2, newest_ns.saturating_sub(1)] {
            let (mut early, mut newest) = (limit.clone(), limit.clone());
            assert_eq!(
                early.try_acquire(earlier_ns, permits),
                newest.try_acquire(newest_ns, permits),
                "{what}"
            );
            assert_eq!(
                early.reserve(earlier_ns, permits, None),
                newest.reserve(newest_ns, permits, None),
                "{what}"
            );
            assert_eq!(early.remaining(earlier_ns), newest.remaining(newest_ns), "{what}");
            let one = NonZeroU64::MIN;
            assert!(limit.opening_from(earlier_ns, one).unwrap().start_ns >= newest_ns, "{what}");
        }
    };
    walk(30, false, law);
}

/// X5.3: every verb that carries a reading advances the clock, not only grants.
#[test]
fn every_reading_counts() {
    let log = log(1, 100);
    let readers: [fn(&mut Ledger); 4] = [
        |limit| assert!(!limit.release(50, 1)),
        |limit| assert!(!limit.abort(50, 1)),
        |limit| assert!(!limit.refill(50, 1)),
        |limit| limit.reconfigure(50, policy(limit)).unwrap(),
    ];
    for read in readers {
        let mut limit = Ledger::new(log, 0);
        read(&mut limit);
        assert_eq!(limit.clamp(0), 50);
        assert_eq!(limit.opening_from(0, NonZeroU64::MIN).unwrap().start_ns, 50);
        assert_eq!(start(limit.try_acquire(20, 1)), 50);
    }
}

/// Order is kept: without cancelling, starts never decrease in order of the calls.
#[test]
fn starts_come_in_order_of_requests() {
    for seed in 1..100 {
        let mut random = Rng::with_seed(seed);
        for policy in policies(&mut random) {
            let (mut limit, mut now_ns, mut last_ns) = (Ledger::new(policy, 0), 0, 0);
            for _ in 0..60 {
                now_ns += random.choice([0, 0, 1, 20]).unwrap();
                let permits = random.u64(1..=4);
                let answer = call(&mut limit, random.u64(..3) > 0, now_ns, permits);
                if let Ok(Verdict::Granted(grant)) = answer {
                    assert!(grant.start_ns >= last_ns, "seed {seed}: {policy:?}");
                    last_ns = grant.start_ns;
                }
            }
        }
    }
}

/// Cancel, of the last call: later calls see the schedule as if it had never been made.
///
/// The oracle is a limit that never received it.
#[test]
fn a_cancelled_last_call_was_never_made() {
    for seed in 1..150 {
        let mut random = Rng::with_seed(seed);
        for policy in policies(&mut random) {
            let mut limit = Ledger::new(policy, 0);
            let mut now_ns = 0;
            for _ in 0..25 {
                now_ns = limit.clamp(now_ns) + random.choice([0, 0, 1, 30]).unwrap();
                let _ = limit.reserve(now_ns, random.u64(1..=4), None);
                let mut lock_free = limit.clone();
                let weight = random.u64(1..=4);
                let Ok(Verdict::Granted(grant)) = limit.reserve(now_ns, weight, None) else {
                    continue;
                };
                let cancelled = limit.cancel(now_ns, grant.ticket);
                assert_eq!(cancelled, grant.start_ns > now_ns, "seed {seed}: {policy:?}");
                if !cancelled {
                    let before = shown(&limit);
                    assert!(!limit.cancel(now_ns, grant.ticket), "too late is too late");
                    assert_eq!(shown(&limit), before);
                    continue;
                }
                assert!(!limit.cancel(now_ns, grant.ticket), "cancelled twice");
                assert_eq!(limit.remaining(now_ns), lock_free.remaining(now_ns));
                for later_ns in [now_ns, now_ns, now_ns + 13, now_ns + 100] {
                    let permits = random.u64(1..=4);
                    let again = limit.reserve(later_ns, permits, None);
                    let never = lock_free.reserve(later_ns, permits, None);
                    let shown = |grant: Grant| (grant.start_ns, grant.scheduled_ns);
                    let what = format!("seed {seed}: {permits} at {later_ns}: {policy:?}");
                    match (again, never) {
                        (Ok(Verdict::Granted(again)), Ok(Verdict::Granted(never))) => {
                            assert_eq!(shown(again), shown(never), "{what}");
                            let left = [&limit, &lock_free].map(|it| it.remaining(later_ns));
                            assert_eq!(left[0], left[1], "{what}");
                        }
                        (again, never) => assert_eq!(again, never, "{what}"),
                    }
                }
            }
        }
    }
}

/// Reserves and cancels. Each call starts at the first instant at which it and every remaining
/// promise conform, which is found by trying each.
fn frees_starts(
    random: &mut Rng,
    (limits, most): (AllOf, u64),
    conforms: impl Fn(&Grants) -> bool,
) {
    let what = format!("{limits:?}");
    let mut limit = Ledger::new(limits, 0);
    // (start, permits, ticket, floor before), in order of the calls; the floor under the next
    // start.
    let (mut live, mut floor_ns, mut now_ns) = (Vec::<(u64, u64, Ticket, u64)>::new(), 0, 0);
    for step in 0..60 {
        now_ns += random.choice([0, 0, 0, 1, 5, 25]).unwrap();
        if random.u64(..3) == 0 && !live.is_empty() {
            let index = random.usize(..live.len());
            let (begun_ns, _, ticket, floor_before_ns) = live[index];
            assert_eq!(limit.cancel(now_ns, ticket), begun_ns > now_ns, "{what}");
            if begun_ns > now_ns {
                live.remove(index);
                floor_ns = floor_ns.min(floor_before_ns);
            }
            continue;
        }
        let permits = random.u64(1..=most);
        let fits = |&at_ns: &u64| {
            let known = live.iter().map(|&(at_ns, permits, ..)| (at_ns, permits));
            conforms(&Grants(known.chain([(at_ns, permits)]).collect()))
        };
        let first_ns = (now_ns.max(floor_ns)..u64::MAX).find(fits).unwrap();
        let grant = granted(limit.reserve(now_ns, permits, None)).unwrap();
        assert_eq!(grant.start_ns, first_ns, "step {step}: {permits} of {what}");
        live.push((first_ns, permits, grant.ticket, floor_ns));
        floor_ns = first_ns;
    }
}

/// Cancel, of any call: the next starts at the first instant at which it and every remaining
/// promise conform, in a log and in two of them.
///
/// The window's bound holds for all calls that were not cancelled.
#[test]
fn a_freed_start_goes_to_the_first_call_that_fits() {
    for seed in 1..400 {
        let mut random = Rng::with_seed(seed);
        let sizes = [0; 2].map(|_| (random.u64(1..=4), random.u64(2..=30)));
        for sizes in [&sizes[..1], &sizes] {
            let logs = sizes.iter().map(|&(max, period_ns)| log(max, period_ns).into());
            let most = sizes.iter().map(|&(max, _)| max).min().unwrap();
            frees_starts(&mut random, (logs.collect(), most), |all| {
                sizes.iter().all(|&(max, period_ns)| all.fullest_window(period_ns).0 <= max)
            });
        }
    }
}

/// Cancel, in a bucket with a whole interval: each grant in order of start finds its tokens.
#[test]
fn a_freed_start_in_a_bucket_goes_to_the_first_call_that_fits() {
    for seed in 1..400 {
        let mut random = Rng::with_seed(seed);
        let (burst, interval_ns) = (random.u64(1..=4), random.u64(1..=12));
        let bucket = Gcra::new(per(1, interval_ns), burst).unwrap();
        // Tokens in nanoseconds of earning, through all grants by start.
        frees_starts(&mut random, (bucket.into(), burst), |all| {
            let mut all = all.0.clone();
            all.sort_unstable();
            let (mut level_ns, mut last_ns) = (burst * interval_ns, 0);
            all.iter().all(|&(at_ns, permits)| {
                level_ns = (level_ns + at_ns - last_ns).min(burst * interval_ns);
                last_ns = at_ns;
                let enough = level_ns >= permits * interval_ns;
                level_ns = level_ns.saturating_sub(permits * interval_ns);
                enough
            })
        });
    }
}

/// Change: promises are kept, and can be cancelled, whatever the new numbers; a call after the
/// change disturbs none of them.
#[test]
fn promises_survive_a_change() {
    for seed in 1..60 {
        let mut random = Rng::with_seed(seed);
        let (old, new) = (policies(&mut random), policies(&mut random));
        for (old, new) in old.into_iter().zip(new) {
            let mut limit = Ledger::new(old, 0);
            let promised: Vec<_> =
                (0..8).filter_map(|_| granted(limit.reserve(0, 1, None))).collect();
            let now_ns = random.u64(0..=40);
            limit.reconfigure(now_ns, new).unwrap();
            assert!(new.can_follow(&old).is_ok());
            let live = promised.iter().filter(|grant| grant.start_ns > now_ns).count();
            assert_eq!(limit.promised(), live, "seed {seed}: {old:?}");
            let _ = limit.reserve(now_ns, 1, None);
            for grant in &promised {
                let waits = grant.start_ns > now_ns;
                assert_eq!(limit.cancel(now_ns, grant.ticket), waits, "seed {seed}: {old:?}");
            }
        }
    }
}

/// Change to the same numbers, with no promises open, changes no later decision, at the rates
/// that keep no fraction beyond their parts.
#[test]
fn a_change_to_the_same_numbers_changes_nothing() {
    for seed in 1..60 {
        let mut random = Rng::with_seed(seed);
        for policy in policies(&mut random) {
            // A burst step in progress is scaled to a whole nanosecond, a ramp starts anew, and a
            // pool is refilled, which moves a share of its backlog.
            let restarts = matches!(policy, AnyPolicy::TwoTimeline(_))
                && format!("{policy:?}").contains("Ramp");
            let fills = matches!(policy, AnyPolicy::BackfillPool(_));
            if restarts || fills || format!("{policy:?}").contains("Burst") {
                continue;
            }
            let mut limit = Ledger::new(policy, 0);
            let mut now_ns = 0;
            for _ in 0..30 {
                now_ns += random.choice([0, 1, 9, 50]).unwrap();
                let _ = limit.try_acquire(now_ns, random.u64(1..=2));
                let mut lock_free = limit.clone();
                limit.reconfigure(now_ns, policy).unwrap();
                for later_ns in [now_ns, now_ns + 3, now_ns + 40] {
                    let what = format!("seed {seed} at {later_ns}: {policy:?}");
                    assert_eq!(limit.remaining(later_ns), lock_free.remaining(later_ns), "{what}");
                    assert_eq!(limit.peek(later_ns, 1), lock_free.peek(later_ns, 1), "{what}");
                }
                // Only their tickets differ: one of them records a change.
                let (changed, same) =
                    (limit.try_acquire(now_ns, 1), lock_free.try_acquire(now_ns, 1));
                let visible = |answer| granted(answer).map(|grant| grant.start_ns);
                assert_eq!(visible(changed), visible(same), "seed {seed}: {policy:?}");
                assert_eq!(limit.remaining(now_ns), lock_free.remaining(now_ns));
            }
        }
    }
}

/// Restart: the limit is as new, and no earlier ticket is valid.
#[test]
fn a_restart_drops_everything() {
    let mut random = Rng::with_seed(1);
    for policy in policies(&mut random) {
        let mut limit = Ledger::new(policy, 0);
        let tickets: Vec<_> = (0..9).filter_map(|_| granted(limit.reserve(0, 1, None))).collect();
        limit.restart(5);
        assert_eq!((limit.promised(), limit.clamp(0)), (0, 5));
        for grant in tickets {
            assert!(!limit.cancel(5, grant.ticket));
        }
        let mut fresh = Ledger::new(policy, 5);
        for now_ns in [5, 5, 6, 30] {
            let (again, new) =
                (granted(limit.reserve(now_ns, 1, None)), granted(fresh.reserve(now_ns, 1, None)));
            assert_eq!(again.map(|grant| grant.start_ns), new.map(|grant| grant.start_ns));
        }
    }
}

/// The end of the clock: a promise past it is denied with its wait, and takes no permits.
#[test]
fn the_end_of_the_clock_wraps_nothing() {
    let begin_ns = 18_446_744_073 * S;
    let rate = Rate::per_second(1);
    let modes = [Mode::Average, Mode::Strict, Mode::Burst("2".parse().unwrap())];
    let modes = modes.into_iter().chain([Mode::from_compensation(0.5).unwrap()]);
    let limits: [(AnyPolicy, u64); 5] = [
        (Gcra::spaced(rate).into(), S),
        (log(1, S).into(), S),
        (window_of_first_call(1, S).into(), S),
        // A sleep of less than 10 ms is not worth it.
        (pacer(rate, ns(10 * MS), Some(ns(S))).into(), S - 10 * MS + 1),
        // A pool names the time in which it is full for certain.
        (BackfillPool::new(1, Ratio::ONE, Some(rate)).unwrap().into(), 3 * S),
    ];
    let timelines = modes.map(|mode| (timeline(rate, mode, None).into(), S));
    for (policy, wait_ns) in limits.into_iter().chain(timelines) {
        let mut limit = Ledger::new(policy, begin_ns);
        assert_eq!(start(limit.try_acquire(begin_ns, 1)), begin_ns);
        let before = shown(&limit);
        for since_ns in [0, 5, 1_000] {
            let after_ns = retry(limit.reserve(begin_ns + since_ns, 1, None));
            assert_eq!(after_ns, wait_ns - since_ns, "{policy:?}");
            assert_eq!(shown(&limit), before);
        }
        let left_ns = u64::MAX - begin_ns;
        assert_eq!(retry(limit.try_acquire(u64::MAX, 1)), wait_ns - left_ns, "{policy:?}");
        assert_eq!((limit.remaining(u64::MAX), limit.promised()), (0, 0), "{policy:?}");
    }
    // Half a second of the clock is left: enough at twice the rate.
    let mut limit = Ledger::new(Gcra::per_second(2), begin_ns);
    assert_eq!(
        [0; 2].map(|_| start(limit.reserve(begin_ns, 1, None))),
        [0, S / 2].map(|ns| begin_ns + ns)
    );
}

/// X5.4: a live limit may become any other one, but for those on operations in flight, whose permits
/// come back by another way.
#[test]
fn operations_in_flight_stay_operations_in_flight() {
    let mut random = Rng::with_seed(7);
    let commit_log = limit(Kind::CommitLog, Scale::Of(1), &mut random);
    let kinds: Vec<AnyPolicy> =
        policies(&mut random).into_iter().chain(timeless()).chain([commit_log]).collect();
    for one in &kinds {
        for other in &kinds {
            let same = discriminant(one) == discriminant(other);
            let counts_in_flight = one.counts_in_flight() || other.counts_in_flight();
            let refused = counts_in_flight && !same;
            let expected = if refused { Err(LimitError::OtherPolicy) } else { Ok(()) };
            assert_eq!(one.can_follow(other), expected);
            let mut limit = Ledger::new(*other, 0);
            assert_eq!(limit.reconfigure(7, *one), expected);
            assert_eq!(policy(&limit), if refused { *other } else { *one });
        }
    }
}

/// Another policy begins as used up as the one before it was, rounded up, and promises are kept.
#[test]
fn another_policy_begins_as_used_up() {
    let window = window_of_first_call(10, 100);
    let mut limit = Ledger::new(window, 0);
    assert!(granted(limit.try_acquire(0, 7)).is_some());
    let mut same = limit.clone();
    same.reconfigure(50, log(10, 100)).unwrap();
    assert_eq!((same.remaining(50), same.remaining(149), same.remaining(150)), (3, 3, 10));
    let mut fewer = limit.clone();
    fewer.reconfigure(50, bucket("1/10ns", 4)).unwrap();
    assert_eq!((fewer.remaining(50), fewer.remaining(60)), (1, 2), "seven tenths of 4 are 2.8");
    let mut more = limit.clone();
    more.reconfigure(50, log(1_000, 100)).unwrap();
    assert_eq!(more.remaining(50), 300);

    // An unused one begins unused, and one in debt begins with nothing left.
    let mut unused = Ledger::new(window, 0);
    unused.reconfigure(50, Gcra::spaced(rate("1/10ns"))).unwrap();
    assert!(unused.is_as_fresh(50));
    limit.charge(10, 90, Debt::CARRIED).unwrap();
    limit.reconfigure(50, log(6, 100)).unwrap();
    assert_eq!((limit.remaining(50), limit.debt(50)), (0, 0));

    // A promise stays one, and the rest counts around it.
    let mut limit = Ledger::new(log(2, 100), 0);
    assert_eq!([0; 3].map(|now_ns| start(limit.reserve(now_ns, 1, None))), [0, 0, 100]);
    limit.reconfigure(20, window).unwrap();
    assert_eq!((limit.promised(), limit.remaining(20)), (1, 0));
    assert_eq!([9, 1, 1].map(|permits| start(limit.reserve(20, permits, None))), [120, 120, 220]);
}

/// A denial names no wait where time alone cannot help and an act of a caller is needed.
#[test]
fn permits_from_outside_help_where_time_does_not() {
    for policy in timeless() {
        let mut limit = Ledger::new(policy, 0);
        limit.refill(0, 3);
        assert!(granted(limit.try_acquire(0, 3)).is_some());
        let Ok(Verdict::Denied(denial)) = limit.reserve(0, 1, None) else { panic!("{policy:?}") };
        assert_eq!((denial.retry_after_ns, limit.peek(S, 1)), (None, Ok(None)));
        let mut lock_free = limit.clone();
        assert!(limit.refill(0, 1) | limit.release(0, 1));
        assert_eq!(start(limit.reserve(7, 1, None)), 7);
        assert_eq!(lock_free.abort(0, 1), matches!(policy, AnyPolicy::Concurrency(_)));
        assert_eq!(lock_free.peek(7, 1).unwrap().is_some(), lock_free.remaining(7) == 1);
    }
    let mut random = Rng::with_seed(3);
    for policy in policies(&mut random) {
        let mut limit = Ledger::new(policy, 0);
        assert_eq!(limit.refill(0, 1), matches!(policy, AnyPolicy::BackfillPool(_)));
        assert!(!limit.release(0, 1));
        assert!(!limit.abort(0, 1));
    }
}

/// A promise that starts early starts with all its permits.
#[test]
fn an_early_start_takes_every_permit() {
    let mut limit = Ledger::new(log(2, 100), 0);
    assert_eq!(start(limit.reserve(0, 2, None)), 0);
    let promised = granted(limit.reserve(0, 2, None)).unwrap();
    assert_eq!(promised.start_ns, 100);
    assert!(limit.start_early(99, promised.ticket));
    assert_eq!(start(limit.reserve(99, 1, None)), 199);
}

/// Cancel: in a freed opening a try may pass sooner than a reservation would start.
#[test]
fn a_freed_start_opens_to_a_try_sooner() {
    let rate = per(1, 2);
    let mut limit = Ledger::new(pacer(rate, ns(10), None), 0);
    assert_eq!([0; 5].map(|now_ns| start(limit.reserve(now_ns, 1, None))), [0; 5]);
    let promised = [0; 2].map(|now_ns| granted(limit.reserve(now_ns, 1, None)).unwrap());
    assert_eq!(promised.map(|grant| grant.start_ns), [10; 2]);
    assert!(limit.cancel(0, promised[0].ticket));
    // Due at 10, and less than 10 ns early from 1 on.
    assert_eq!(retry(limit.try_acquire(0, 1)), 1);
    assert_eq!(start(limit.try_acquire(1, 1)), 1);
}
