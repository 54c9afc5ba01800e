//! Tests of the `all_of` contract, against a search through every instant.
use crate::common::limits::{Kind, Scale, TIMED, limit, limit_of};
use crate::common::played::{Played, Step, VERBS};
use crate::common::{
    MS, S, bucket, call, exact_retry, granted, log, ns, rate, retry, start, window,
};
use fastrand::Rng;
use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrency::Concurrency;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::ledger::Ledger;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::Verdict;
use rategate_testkit::oracle::Grants;

/// The start is the first instant at which all limits agree, found by trying each: two logs, of
/// which one is on a grid, and a grid of windows. A denial is exact and takes from no limit; the remainder is the minimum.
#[test]
fn a_call_starts_when_all_agree() {
    for seed in 1..200 {
        let mut random = Rng::with_seed(seed);
        let sizes = [0; 3].map(|_| (random.u64(1..=6), random.u64(1..=40)));
        let [(a, a_ns), (b, b_ns), (c, c_ns)] = sizes;
        let grid = window(c, c_ns);
        let (step_ns, coarse) = (random.u64(1..=a_ns), log(a, a_ns));
        let coarse = coarse.with_resolution(ns(step_ns)).unwrap();
        let mut limit = Ledger::new([coarse.into(), log(b, b_ns).into(), grid.into()], 0);
        let (mut grants, mut now_ns, mut last_ns) = (Grants::default(), 0, 0);
        for step in 0..80 {
            let what = format!("seed {seed}, step {step}: {sizes:?}");
            now_ns += random.choice([0, 0, 0, 2, 15, 60]).unwrap();
            let permits = random.u64(1..=a.min(b).min(c));
            let fits = |at_ns: u64, permits: u64| {
                let held = |period_ns: u64, step_ns: u64| -> u64 {
                    let is_young =
                        |start_ns: u64| start_ns.next_multiple_of(step_ns) + period_ns > at_ns;
                    let young = grants.0.iter().filter(|&&(start_ns, _)| is_young(start_ns));
                    young.map(|(_, permits)| permits).sum()
                };
                let same_window =
                    grants.0.iter().filter(|(start_ns, _)| start_ns / c_ns == at_ns / c_ns);
                let counted: u64 = same_window.map(|(_, permits)| permits).sum();
                held(a_ns, step_ns) + permits <= a
                    && held(b_ns, 1) + permits <= b
                    && counted + permits <= c
            };
            let first_ns =
                (now_ns.max(last_ns)..u64::MAX).find(|&at_ns| fits(at_ns, permits)).unwrap();
            if last_ns <= now_ns {
                let max = (0..=6).rev().find(|&permits| fits(now_ns, permits)).unwrap_or(0);
                assert_eq!(limit.remaining(now_ns), max, "{what}");
            }
            let before = format!("{limit:?}");
            assert_eq!(limit.peek(now_ns, permits), Ok(Some(first_ns - now_ns)), "{what}");
            let reserves = random.u64(..2) == 0;
            let answer = call(&mut limit, reserves, now_ns, permits);
            if reserves || first_ns == now_ns {
                assert_eq!(start(answer), first_ns, "{what}");
                grants.add(first_ns, permits);
                last_ns = first_ns;
            } else {
                assert_eq!(retry(answer), first_ns - now_ns, "{what}");
                assert_eq!(format!("{limit:?}"), before, "{what}: a denial left a trace");
                exact_retry(&limit, now_ns, permits, &what);
            }
        }
        assert!(grants.fullest_window(a_ns).0 <= a && grants.fullest_window(b_ns).0 <= b);
    }
}

/// With policies of every kind, the denial's wait is exact, and never shorter than any one of
/// them allows on its own.
#[test]
fn retry_after_is_exact_for_any_mixture() {
    for seed in 1..150 {
        let mut random = Rng::with_seed(seed);
        let chosen = [0; 2].map(|_| limit_of(&TIMED, Scale::Of(1), &mut random));
        let mut limit = Ledger::new(chosen, 0);
        assert_eq!(limit.policies().collect::<Vec<_>>(), chosen);
        let mut now_ns = 0;
        for _ in 0..60 {
            now_ns += random.choice([0, 1, 10, 40]).unwrap();
            let before = limit.clone();
            match limit.try_acquire(now_ns, 1).unwrap() {
                Verdict::Granted(grant) => assert_eq!(grant.start_ns, now_ns),
                Verdict::Denied(_) => {
                    exact_retry(&before, now_ns, 1, &format!("seed {seed}: {chosen:?}"));
                    assert_eq!(format!("{limit:?}"), format!("{before:?}"));
                }
            }
        }
    }
}

/// The most severe refusal wins: "never possible" before "waiting cannot help" before "not yet".
#[test]
fn the_worst_refusal_wins() {
    let gcra = |text| AnyPolicy::from(bucket(text, 5));
    let small = AnyPolicy::from(log(2, S));
    for order in [[gcra("never"), small], [small, gcra("never")]] {
        let mut limit = Ledger::new(order, 0);
        assert_eq!(limit.try_acquire(0, 3), Err(ExceedsCapacity::new(3, 2)));
        assert_eq!(limit.peek(0, 1), Ok(None));
        let Ok(Verdict::Denied(denial)) = limit.reserve(0, 1, None) else { panic!("never") };
        assert_eq!((denial.retry_after_ns, limit.remaining(0)), (None, 0));
    }
    let mut limit = Ledger::new(AllOf::default(), 0);
    assert_eq!(start(limit.reserve(9, u64::MAX, None)), 9);
    assert_eq!(limit.remaining(9), u64::MAX);
}

/// A cancelled promise is credited to all limits and a started one to none; zero permits leave no
/// trace.
#[test]
fn cancelling_credits_all() {
    let mut limit = Ledger::new([log(1, 100).into(), bucket("1/50ns", 1).into()], 0);
    assert_eq!(start(limit.reserve(0, 1, None)), 0);
    let promised = granted(limit.reserve(0, 1, None)).unwrap();
    assert_eq!(promised.start_ns, 100);
    let before = format!("{limit:?}");
    let nothing = granted(limit.try_acquire(3, 0)).unwrap();
    assert!(nothing.start_ns == 3 && format!("{limit:?}") == before);
    let mut kept = limit.clone();
    assert!(limit.cancel(99, promised.ticket));
    assert!(!limit.cancel(99, promised.ticket));
    assert_eq!(start(limit.reserve(99, 1, None)), 100);
    assert!(!kept.cancel(100, promised.ticket));
    assert_eq!(start(kept.reserve(100, 1, None)), 200);
}

/// A change applies to all limits or to none; all limits share one clock.
#[test]
fn a_change_fits_all_or_changes_nothing() {
    let gcra = |text| AnyPolicy::from(bucket(text, 1));
    let mut limit = Ledger::new([log(1, 100).into(), gcra("1/50ns")], 0);
    assert_eq!(start(limit.reserve(0, 1, None)), 0);
    let before = format!("{limit:?}");
    for mismatched in
        [vec![Concurrency::new(1).into(), gcra("1/s")], vec![log(1, 7).into()], vec![]]
    {
        assert_eq!(limit.reconfigure(5, mismatched), Err(LimitError::OtherPolicy));
        assert_eq!(format!("{limit:?}"), before);
    }
    assert_eq!(limit.reconfigure(5, [log(1, 20).into(), gcra("1/50ns")]), Ok(()));
    assert_eq!(limit.clamp(0), 5);
    assert_eq!(retry(limit.try_acquire(0, 1)), 45);
    assert_eq!(limit.reconfigure(5, [log(1, 20).into(), gcra("1/10ns")]), Ok(()));
    assert_eq!(retry(limit.try_acquire(5, 1)), 15);
}

/// With a limit on operations in flight, its permits return by an act and the others by time.
#[test]
fn ending_an_operation_frees_only_what_is_in_flight() {
    let mut limit = Ledger::new([Concurrency::new(1).into(), log(2, 100).into()], 0);
    assert_eq!(start(limit.try_acquire(0, 1)), 0);
    assert_eq!(limit.peek(50, 1), Ok(None));
    assert!(limit.release(50, 1));
    assert_eq!(start(limit.try_acquire(50, 1)), 50);
    assert!(limit.release(60, 1));
    assert_eq!(retry(limit.try_acquire(60, 1)), 40);
    assert!(!limit.refill(60, 1));
    assert!(!Ledger::new(log(2, 100), 60).release(60, 1));
}

/// A grant shows the latest instant that any of the schedules names.
#[test]
fn the_latest_schedule_is_shown() {
    let strict = |text| AnyPolicy::from(TwoTimeline::new(rate(text), Mode::Strict, None));
    for order in [["1/10ns", "1/50ns"], ["1/50ns", "1/10ns"]] {
        let mut limit = Ledger::new(order.map(strict), 0);
        for operation in 0..5 {
            let grant = granted(limit.reserve(operation, 1, None)).unwrap();
            assert_eq!((grant.scheduled_ns, grant.start_ns), (operation * 50, operation * 50));
        }
        let mut late = Ledger::new([strict(order[0]), log(1, 7).into(), strict(order[1])], 0);
        let grants = [200; 2].map(|now_ns| granted(late.reserve(now_ns, 1, None)).unwrap());
        assert_eq!(grants.map(|grant| (grant.scheduled_ns, grant.start_ns)), [(0, 200), (50, 250)]);
    }
}

/// One limit given twice decides, owes and gives back as it does alone, whatever comes: holds,
/// charges that become promises, cancelled calls, and other numbers.
#[test]
fn a_limit_twice_is_a_limit_once() {
    let kinds = [Kind::Bucket, Kind::Log, Kind::Window, Kind::BoundedAverage, Kind::Strict];
    for seed in 0..3_000 {
        let mut random = Rng::with_seed(seed);
        let kind = random.choice(kinds).unwrap();
        let first = limit(kind, Scale::Of(MS / 5), &mut random);
        let (mut once, mut twice) = (Played::new(first), Played::new([first; 2]));
        let (mut now_ns, mut story) = (0, vec![format!("{first:?}")]);
        for _ in 0..60 {
            now_ns += random.choice([0, 0, 0, MS / 2, MS, 7 * MS]).unwrap();
            if random.u64(..100) == 0 {
                let next = limit(kind, Scale::Of(MS / 5), &mut random);
                once.ledger.reconfigure(now_ns, next).unwrap();
                twice.ledger.reconfigure(now_ns, [next; 2]).unwrap();
                story.push(format!("{now_ns}: {next:?}"));
            }
            let step = Step::random(now_ns, &VERBS, (5, 20 * MS), &mut random);
            let seen = once.step(&step);
            story.push(format!("{step:?}: {seen}"));
            assert_eq!(twice.step(&step), seen, "seed {seed}: {story:#?}");
            assert_eq!(twice.seen(now_ns), once.seen(now_ns), "seed {seed}: {story:#?}");
        }
    }
}
