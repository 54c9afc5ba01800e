//! Laws of every live policy: promises, cancelling, the clamped clock and change.
//!
//! The oracles are limits that never received the cancelled calls, and searches through every
//! instant.

use std::mem::discriminant;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::common::{MS, S, granted, pacer, policy, rate, retry, slowed, start};
use fastrand::Rng;
use rategate_core::adaptive::AdaptiveRate;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::backfill_pool::BackfillPool;
use rategate_core::commit_log::CommitLog;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::error::LimitError;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::ratio::Ratio;
use rategate_core::schedule::Schedule;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::{Grant, Ticket, Verdict};
use rategate_core::warm_up::WarmUp;
use rategate_testkit::oracle::Grants;

/// Returns one of each policy and each mode, with small random numbers.
fn policies(random: &mut Rng) -> Vec<AnyPolicy> {
    let rate = Rate::new(random.u64(1..=9), Duration::from_nanos(random.u64(1..=60))).unwrap();
    let slow = Rate::new(1, Duration::from_nanos(random.u64(5..=60))).unwrap();
    let (permits, period_ns) = (random.u64(1..=6), random.u64(1..=60));
    let cap_ns = random.u64(0..=100);
    let ratio = Ratio::new(random.u64(4..=9), 4).unwrap();
    let log = SlidingLog::new(permits, Duration::from_nanos(period_ns));
    let damped = Mode::from_compensation(0.25).unwrap();
    let ramp = Schedule::ramp(slow, rate, random.u64(1..=500)).unwrap();
    let warm_up = WarmUp::new(rate, Duration::from_nanos(random.u64(1..=500))).unwrap();
    vec![
        Gcra::new(rate, permits).unwrap().into(),
        AdaptiveRate::new(slow, rate_above(slow)).burst(permits).into(),
        log.into(),
        log.with_guard(Duration::from_nanos(random.u64(0..=9)))
            .unwrap()
            .with_resolution(Duration::from_nanos(random.u64(1..=period_ns)))
            .unwrap()
            .into(),
        FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::Epoch).into(),
        FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::FirstCall).into(),
        pacer(rate, Duration::from_nanos(random.u64(0..=50)), Some(Duration::from_nanos(cap_ns)))
            .into(),
        pacer(rate, Duration::from_nanos(random.u64(0..=50)), None).into(),
        TwoTimeline::new(rate, Mode::Average, None).into(),
        TwoTimeline::new(rate, Mode::Average, Some(Duration::from_nanos(cap_ns))).into(),
        TwoTimeline::new(rate, Mode::Strict, None).into(),
        TwoTimeline::new(rate, damped, None).into(),
        TwoTimeline::new(rate, damped, Some(Duration::from_nanos(cap_ns))).into(),
        TwoTimeline::new(rate, Mode::Burst(ratio), None).into(),
        TwoTimeline::on_schedule(ramp, Mode::Average, None).into(),
        TwoTimeline::on_schedule(ramp, Mode::Strict, None).into(),
        warm_up.into(),
        warm_up.with_cold_factor(ratio).unwrap().with_max_request(permits).unwrap().into(),
        BackfillPool::new(permits, ratio, Some(rate)).unwrap().into(),
        BackfillPool::new(permits, Ratio::ONE, Some(slow)).unwrap().into(),
        slowed(Gcra::new(rate, permits).unwrap(), random),
        slowed(log, random),
        slowed(
            FixedWindow::new(permits, Duration::from_nanos(period_ns), Anchor::FirstCall),
            random,
        ),
        slowed(TwoTimeline::new(rate, damped, Some(Duration::from_nanos(cap_ns))), random),
        slowed(TwoTimeline::new(rate, Mode::Burst(ratio), None), random),
    ]
}

/// Returns twice a rate.
fn rate_above(rate: Rate) -> Rate {
    let (permits, period_ns) = rate.fraction().unwrap();
    Rate::new(permits * 2, Duration::from_nanos(period_ns)).unwrap()
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
        let at = |now_ns: u64| granted(limit.clone().try_acquire(now_ns, permits));
        assert!(at(now_ns + after_ns - 1).is_none(), "{what}: sooner than {after_ns}");
        let grant = at(now_ns + after_ns).unwrap_or_else(|| panic!("{what}: not at {after_ns}"));
        assert_eq!(grant.start_ns, now_ns + after_ns);
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
    let log = SlidingLog::new(1, Duration::from_nanos(100));
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
                let answer = if random.u64(..3) == 0 {
                    limit.try_acquire(now_ns, permits)
                } else {
                    limit.reserve(now_ns, permits, None)
                };
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

/// Cancel, of any call: the next starts at the first instant at which it and every remaining
/// promise conform.
///
/// The instant is found by trying each; the window's bound holds for all calls that were not
/// cancelled.
#[test]
fn a_freed_start_goes_to_the_first_call_that_fits() {
    for seed in 1..400 {
        let mut random = Rng::with_seed(seed);
        let (max, period_ns) = (random.u64(1..=4), random.u64(2..=30));
        let mut limit =
            Ledger::new(AnyPolicy::from(SlidingLog::new(max, Duration::from_nanos(period_ns))), 0);
        // (start, permits, ticket, floor before), in order of the calls; the floor under the next
        // start.
        let (mut live, mut floor_ns, mut now_ns) = (Vec::<(u64, u64, Ticket, u64)>::new(), 0, 0);
        for step in 0..60 {
            now_ns += random.choice([0, 0, 0, 1, 5, 25]).unwrap();
            if random.u64(..3) == 0 && !live.is_empty() {
                let index = usize::try_from(random.u64(0..=99)).unwrap() % live.len();
                let (begun_ns, _, ticket, floor_before_ns) = live[index];
                assert_eq!(limit.cancel(now_ns, ticket), begun_ns > now_ns, "seed {seed}");
                if begun_ns > now_ns {
                    live.remove(index);
                    floor_ns = floor_ns.min(floor_before_ns);
                }
                continue;
            }
            let permits = random.u64(1..=max);
            let fits = |at_ns: u64| {
                let mut all: Grants =
                    Grants(live.iter().map(|&(at, permits, ..)| (at, permits)).collect());
                all.add(at_ns, permits);
                all.fullest_window(period_ns).0 <= max
            };
            let first_ns = (now_ns.max(floor_ns)..u64::MAX).find(|&at_ns| fits(at_ns)).unwrap();
            let grant = granted(limit.reserve(now_ns, permits, None)).unwrap();
            assert_eq!(
                grant.start_ns, first_ns,
                "seed {seed}, step {step}: {permits} of {max} in {period_ns}"
            );
            live.push((first_ns, permits, grant.ticket, floor_ns));
            floor_ns = first_ns;
        }
    }
}

/// Cancel, in a bucket with a whole interval: each grant in order of start finds its tokens.
#[test]
fn a_freed_start_in_a_bucket_goes_to_the_first_call_that_fits() {
    for seed in 1..400 {
        let mut random = Rng::with_seed(seed);
        let (burst, interval_ns) = (random.u64(1..=4), random.u64(1..=12));
        let rate = Rate::new(1, Duration::from_nanos(interval_ns)).unwrap();
        let mut limit = Ledger::new(AnyPolicy::from(Gcra::new(rate, burst).unwrap()), 0);
        let (mut live, mut floor_ns, mut now_ns) = (Vec::<(u64, u64, Ticket, u64)>::new(), 0, 0);
        for step in 0..40 {
            now_ns += random.choice([0, 0, 0, 1, 5, 25]).unwrap();
            if random.u64(..3) == 0 && !live.is_empty() {
                let index = usize::try_from(random.u64(0..=99)).unwrap() % live.len();
                let (begun_ns, _, ticket, floor_before_ns) = live[index];
                if limit.cancel(now_ns, ticket) {
                    assert!(begun_ns > now_ns);
                    live.remove(index);
                    floor_ns = floor_ns.min(floor_before_ns);
                }
                continue;
            }
            let permits = random.u64(1..=burst);
            // Tokens in nanoseconds of earning, through all grants by start.
            let fits = |at_ns: u64| {
                let mut all: Vec<(u64, u64)> =
                    live.iter().map(|&(at, permits, ..)| (at, permits)).collect();
                all.push((at_ns, permits));
                all.sort_unstable();
                let (mut level_ns, mut last_ns) = (burst * interval_ns, 0);
                all.iter().all(|&(at_ns, permits)| {
                    level_ns = (level_ns + at_ns - last_ns).min(burst * interval_ns);
                    last_ns = at_ns;
                    let enough = level_ns >= permits * interval_ns;
                    level_ns = level_ns.saturating_sub(permits * interval_ns);
                    enough
                })
            };
            let first_ns = (now_ns.max(floor_ns)..u64::MAX).find(|&at_ns| fits(at_ns)).unwrap();
            let grant = granted(limit.reserve(now_ns, permits, None)).unwrap();
            assert_eq!(grant.start_ns, first_ns, "seed {seed}, step {step}: {permits} of {burst}");
            live.push((first_ns, permits, grant.ticket, floor_ns));
            floor_ns = first_ns;
        }
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
    let second = Duration::from_secs(1);
    let rate = Rate::new(1, second).unwrap();
    let policies: [AnyPolicy; 6] = [
        Gcra::new(rate, 1).unwrap().into(),
        SlidingLog::new(1, Duration::from_nanos(S)).into(),
        FixedWindow::new(1, Duration::from_nanos(S), Anchor::FirstCall).into(),
        pacer(rate, Duration::from_nanos(10 * MS), Some(Duration::from_nanos(S))).into(),
        TwoTimeline::new(rate, Mode::Strict, None).into(),
        BackfillPool::new(1, Ratio::ONE, Some(rate)).unwrap().into(),
    ];
    for policy in policies {
        let mut limit = Ledger::new(policy, begin_ns);
        assert_eq!(start(limit.try_acquire(begin_ns, 1)), begin_ns);
        let before = shown(&limit);
        for now_ns in [begin_ns, begin_ns + 1_000] {
            let after_ns = retry(limit.reserve(now_ns, 1, None));
            assert!(now_ns.checked_add(after_ns).is_none(), "{policy:?}: {after_ns}");
            assert_eq!(shown(&limit), before);
        }
        assert_eq!(limit.remaining(u64::MAX), 0, "{policy:?}");
        // Half a second of the clock is left: enough at twice the rate.
        let mut limit =
            Ledger::new(AnyPolicy::from(Gcra::new(Rate::per_second(2), 1).unwrap()), begin_ns);
        assert_eq!(start(limit.reserve(begin_ns, 1, None)), begin_ns);
        assert_eq!(start(limit.reserve(begin_ns, 1, None)), begin_ns + S / 2);
    }
}

/// X5.4: a live limit may become any other one, but for those on operations in flight, whose permits
/// come back by another way.
#[test]
fn operations_in_flight_stay_operations_in_flight() {
    let mut random = Rng::with_seed(7);
    let log = AnyPolicy::from(CommitLog::new(3, Duration::from_nanos(100)));
    let kinds: Vec<AnyPolicy> =
        policies(&mut random).into_iter().chain(timeless()).chain([log]).collect();
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
    let period = Duration::from_nanos(100);
    let window = FixedWindow::new(10, period, Anchor::FirstCall);
    let mut limit = Ledger::new(window, 0);
    assert!(granted(limit.try_acquire(0, 7)).is_some());
    let mut same = limit.clone();
    same.reconfigure(50, SlidingLog::new(10, period)).unwrap();
    assert_eq!((same.remaining(50), same.remaining(149), same.remaining(150)), (3, 3, 10));
    let mut fewer = limit.clone();
    fewer.reconfigure(50, Gcra::new(rate("1/10ns"), 4).unwrap()).unwrap();
    assert_eq!((fewer.remaining(50), fewer.remaining(60)), (1, 2), "seven tenths of 4 are 2.8");
    let mut more = limit.clone();
    more.reconfigure(50, SlidingLog::new(1_000, period)).unwrap();
    assert_eq!(more.remaining(50), 300);

    // An unused one begins unused, and one in debt begins with nothing left.
    let mut unused = Ledger::new(window, 0);
    unused.reconfigure(50, Gcra::spaced(rate("1/10ns"))).unwrap();
    assert!(unused.is_as_fresh(50));
    limit.charge(10, 90, Debt::CARRIED).unwrap();
    limit.reconfigure(50, SlidingLog::new(6, period)).unwrap();
    assert_eq!((limit.remaining(50), limit.debt(50)), (0, 0));

    // A promise stays one, and the rest counts around it.
    let mut limit = Ledger::new(SlidingLog::new(2, period), 0);
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

/// Cancel: a lighter call than the cancelled one may start where it never had to wait.
#[test]
fn a_lighter_call_sees_no_trace_of_a_cancelled_one() {
    let rate = Rate::new(1, Duration::from_nanos(10)).unwrap();
    let mut limit = Ledger::new(Gcra::new(rate, 2).unwrap(), 0);
    assert_eq!([2, 1].map(|permits| start(limit.reserve(0, permits, None))), [0, 10]);
    let mut lock_free = limit.clone();
    let heavy = granted(limit.reserve(0, 2, None)).unwrap();
    assert!(limit.cancel(0, heavy.ticket));
    assert_eq!(start(limit.reserve(0, 1, None)), start(lock_free.reserve(0, 1, None)));
}

/// Cancel: the remainder is what a try can take, whatever was cancelled.
#[test]
fn what_remains_after_a_cancel_is_what_a_try_can_take() {
    let rate = Rate::new(1, Duration::from_nanos(10)).unwrap();
    let mut limit = Ledger::new(Gcra::new(rate, 2).unwrap(), 0);
    assert_eq!(start(limit.reserve(0, 1, None)), 0);
    let heavy = granted(limit.reserve(0, 2, None)).unwrap();
    assert!(limit.cancel(0, heavy.ticket));
    assert_eq!(limit.remaining(0), 1);
    assert!(granted(limit.try_acquire(0, 1)).is_some());
}

/// Cancel: the call that replaces the cancelled one takes its scheduled time too.
#[test]
fn a_freed_start_keeps_its_scheduled_instant() {
    let rate = Rate::new(2, Duration::from_nanos(1)).unwrap();
    let mut limit = Ledger::new(TwoTimeline::new(rate, Mode::Average, None), 0);
    let grants = [0; 3].map(|now_ns| granted(limit.reserve(now_ns, 1, None)).unwrap());
    assert_eq!(grants.map(|grant| (grant.scheduled_ns, grant.start_ns)), [(0, 0), (0, 1), (1, 1)]);
    assert!(limit.cancel(0, grants[2].ticket));
    let again = granted(limit.reserve(0, 1, None)).unwrap();
    assert_eq!((again.scheduled_ns, again.start_ns), (1, 1));
}

/// A promise that starts early starts with all its permits.
#[test]
fn an_early_start_takes_every_permit() {
    let mut limit = Ledger::new(SlidingLog::new(2, Duration::from_nanos(100)), 0);
    assert_eq!(start(limit.reserve(0, 2, None)), 0);
    let promised = granted(limit.reserve(0, 2, None)).unwrap();
    assert_eq!(promised.start_ns, 100);
    assert!(limit.start_early(99, promised.ticket));
    assert_eq!(start(limit.reserve(99, 1, None)), 199);
}

/// Cancel: in a freed opening a try may pass sooner than a reservation would start.
#[test]
fn a_freed_start_opens_to_a_try_sooner() {
    let rate = Rate::new(1, Duration::from_nanos(2)).unwrap();
    let mut limit = Ledger::new(pacer(rate, Duration::from_nanos(10), None), 0);
    assert_eq!([0; 5].map(|now_ns| start(limit.reserve(now_ns, 1, None))), [0; 5]);
    let promised = [0; 2].map(|now_ns| granted(limit.reserve(now_ns, 1, None)).unwrap());
    assert_eq!(promised.map(|grant| grant.start_ns), [10; 2]);
    assert!(limit.cancel(0, promised[0].ticket));
    // Due at 10, and less than 10 ns early from 1 on.
    assert_eq!(retry(limit.try_acquire(0, 1)), 1);
    assert_eq!(start(limit.try_acquire(1, 1)), 1);
}
