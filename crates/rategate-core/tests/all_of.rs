//! Tests of the `all_of` contract, against a search through every instant.

use std::time::Duration;

use crate::common::{S, granted, pacer, rate, retry, slowed, start};
use fastrand::Rng;
use rategate_core::all_of::AllOf;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::concurrency::Concurrency;
use rategate_core::debt::Debt;
use rategate_core::error::{ExceedsCapacity, LimitError};
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::holds::{Hold, HoldVerdict};
use rategate_core::ledger::Ledger;
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;
use rategate_core::two_timeline::{Mode, TwoTimeline};
use rategate_core::verdict::{Grant, Verdict};
use rategate_core::warm_up::WarmUp;
use rategate_testkit::oracle::Grants;

fn log(permits: u64, period_ns: u64) -> SlidingLog {
    SlidingLog::new(permits, Duration::from_nanos(period_ns))
}

/// The start is the first instant at which all limits agree, found by trying each: two logs and a
/// grid of windows. A denial is exact and takes from no limit; the remainder is the minimum.
#[test]
fn a_call_starts_when_all_agree() {
    for seed in 1..200 {
        let mut random = Rng::with_seed(seed);
        let sizes = [0; 3].map(|_| (random.u64(1..=6), random.u64(1..=40)));
        let [(a, a_ns), (b, b_ns), (c, c_ns)] = sizes;
        let grid = FixedWindow::new(c, Duration::from_nanos(c_ns), Anchor::Epoch);
        let mut limit = Ledger::new([log(a, a_ns).into(), log(b, b_ns).into(), grid.into()], 0);
        let (mut grants, mut now_ns, mut last_ns) = (Grants::default(), 0, 0);
        for step in 0..80 {
            let what = format!("seed {seed}, step {step}: {sizes:?}");
            now_ns += random.choice([0, 0, 0, 2, 15, 60]).unwrap();
            let permits = random.u64(1..=a.min(b).min(c));
            let fits = |at_ns: u64, permits: u64| {
                let held = |period_ns: u64| -> u64 {
                    let young =
                        grants.0.iter().filter(|(start_ns, _)| start_ns + period_ns > at_ns);
                    young.map(|(_, permits)| permits).sum()
                };
                let same_window =
                    grants.0.iter().filter(|(start_ns, _)| start_ns / c_ns == at_ns / c_ns);
                let counted: u64 = same_window.map(|(_, permits)| permits).sum();
                held(a_ns) + permits <= a && held(b_ns) + permits <= b && counted + permits <= c
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
            let answer = if reserves {
                limit.reserve(now_ns, permits, None)
            } else {
                limit.try_acquire(now_ns, permits)
            };
            if reserves || first_ns == now_ns {
                assert_eq!(start(answer), first_ns, "{what}");
                grants.add(first_ns, permits);
                last_ns = first_ns;
            } else {
                assert_eq!(retry(answer), first_ns - now_ns, "{what}");
                assert_eq!(format!("{limit:?}"), before, "{what}: a denial left a trace");
                assert!(granted(limit.clone().try_acquire(first_ns - 1, permits)).is_none());
                assert!(granted(limit.clone().try_acquire(first_ns, permits)).is_some());
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
        let pace = Rate::new(random.u64(1..=5), Duration::from_nanos(random.u64(1..=50))).unwrap();
        let all: [AnyPolicy; 8] = [
            Gcra::new(pace, random.u64(1..=5)).unwrap().into(),
            log(random.u64(1..=5), random.u64(1..=60)).into(),
            FixedWindow::new(
                random.u64(1..=5),
                Duration::from_nanos(random.u64(1..=60)),
                Anchor::FirstCall,
            )
            .into(),
            pacer(
                pace,
                Duration::from_nanos(random.u64(0..=30)),
                Some(Duration::from_nanos(random.u64(0..=50))),
            )
            .into(),
            TwoTimeline::new(pace, Mode::Strict, None).into(),
            WarmUp::new(pace, Duration::from_nanos(random.u64(1..=200))).unwrap().into(),
            slowed(Gcra::new(pace, random.u64(1..=3)).unwrap(), &mut random),
            TwoTimeline::new(pace, Mode::Average, Some(Duration::from_nanos(random.u64(0..=50))))
                .into(),
        ];
        let chosen = [random.choice(&all).copied().unwrap(), random.choice(&all).copied().unwrap()];
        let mut limit = Ledger::new(chosen, 0);
        assert_eq!(limit.policies().collect::<Vec<_>>(), chosen);
        let mut now_ns = 0;
        for _ in 0..60 {
            now_ns += random.choice([0, 1, 10, 40]).unwrap();
            let lock_free = limit.clone();
            match limit.try_acquire(now_ns, 1).unwrap() {
                Verdict::Granted(grant) => assert_eq!(grant.start_ns, now_ns),
                Verdict::Denied(denial) => {
                    let opens_ns = now_ns + denial.retry_after_ns.unwrap().get();
                    let at = |at_ns| granted(lock_free.clone().try_acquire(at_ns, 1)).is_some();
                    assert!(!at(opens_ns - 1) && at(opens_ns), "seed {seed}: {chosen:?}");
                    assert_eq!(format!("{limit:?}"), format!("{lock_free:?}"));
                }
            }
        }
    }
}

/// The most severe refusal wins: "never possible" before "waiting cannot help" before "not yet".
#[test]
fn the_worst_refusal_wins() {
    let gcra = |text| AnyPolicy::from(Gcra::new(rate(text), 5).unwrap());
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
    let mut limit =
        Ledger::new([log(1, 100).into(), Gcra::new(rate("1/50ns"), 1).unwrap().into()], 0);
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
    let gcra = |text| AnyPolicy::from(Gcra::new(rate(text), 1).unwrap());
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

/// A cancelled start goes to the first call that fits all limits and disturbs no promise of any.
/// It is found by trying each instant.
#[test]
fn a_freed_start_must_be_free_in_all() {
    for seed in 1..300 {
        let mut random = Rng::with_seed(seed);
        let sizes = [0; 2].map(|_| (random.u64(1..=4), random.u64(2..=30)));
        let mut limit = Ledger::new(sizes.map(|(max, period_ns)| log(max, period_ns).into()), 0);
        // (start, permits, ticket, floor before), in order of joining.
        let (mut live, mut floor_ns, mut now_ns) = (Vec::<(u64, u64, _, u64)>::new(), 0, 0);
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
            let permits = random.u64(1..=sizes[0].0.min(sizes[1].0));
            let fits = |at_ns: u64| {
                let known = live.iter().map(|&(at_ns, permits, ..)| (at_ns, permits));
                let all = Grants(known.chain([(at_ns, permits)]).collect());
                sizes.iter().all(|&(max, period_ns)| all.fullest_window(period_ns).0 <= max)
            };
            let first_ns = (now_ns.max(floor_ns)..u64::MAX).find(|&at_ns| fits(at_ns)).unwrap();
            let grant = granted(limit.reserve(now_ns, permits, None)).unwrap();
            assert_eq!(
                grant.start_ns, first_ns,
                "seed {seed}, step {step}: {permits} of {sizes:?}"
            );
            live.push((first_ns, permits, grant.ticket, floor_ns));
            floor_ns = first_ns;
        }
    }
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

/// A limit, and what its callers have of it.
struct Played {
    ledger: Ledger,
    grants: Vec<Grant>,
    holds: Vec<Hold>,
    times: usize,
}

/// What is done to it: the verb, how much, and which of the grants or holds.
struct Step {
    now_ns: u64,
    verb: u64,
    permits: u64,
    span_ns: u64,
    pick: usize,
    next: AnyPolicy,
}

impl Played {
    fn new(policy: AnyPolicy, times: usize) -> Self {
        let ledger = Ledger::new(vec![policy; times], 0);
        Self { ledger, grants: Vec::new(), holds: Vec::new(), times }
    }

    /// Returns what a caller sees of a step.
    fn step(&mut self, step: &Step) -> String {
        let &Step { now_ns, verb, permits, span_ns, pick, next } = step;
        let Self { ledger, grants, holds, times } = self;
        match verb {
            0..=2 => {
                let max_wait_ns = (verb == 2).then_some(span_ns);
                let verdict = match verb {
                    0 => ledger.try_acquire(now_ns, permits),
                    _ => ledger.reserve(now_ns, permits, max_wait_ns),
                };
                let Ok(Verdict::Granted(grant)) = verdict else { return format!("{verdict:?}") };
                grants.push(grant);
                let Grant { start_ns, scheduled_ns, permits, .. } = grant;
                let left = ledger.remaining(now_ns);
                format!("{permits} at {start_ns}, scheduled {scheduled_ns}, {left} left")
            }
            3 => match ledger.try_hold(now_ns, permits, span_ns) {
                Ok(HoldVerdict::Held(hold)) => {
                    holds.push(hold);
                    format!("held to {}", hold.end_ns)
                }
                other => format!("{other:?}"),
            },
            4 if !holds.is_empty() => {
                let hold = holds.swap_remove(pick % holds.len());
                format!("{:?}", ledger.commit(now_ns, hold, permits, Debt::CARRIED))
            }
            5 => format!("{:?}", ledger.charge(now_ns, permits, Debt::CARRIED)),
            6 if !grants.is_empty() => {
                let grant = grants.swap_remove(pick % grants.len());
                format!("cancelled {}", ledger.cancel(now_ns, grant.ticket))
            }
            7 if !grants.is_empty() => {
                let grant = grants.swap_remove(pick % grants.len());
                format!("back {}", ledger.refund(now_ns, &grant, permits))
            }
            8 => format!("credit {}", ledger.credit(now_ns, permits)),
            9 if pick < 10 => {
                format!("{next:?} {:?}", ledger.reconfigure(now_ns, vec![next; *times]))
            }
            _ => String::new(),
        }
    }

    fn seen(&self, now_ns: u64) -> String {
        let peeked = [1, 3].map(|permits| self.ledger.peek(now_ns, permits));
        let (left, debt) = (self.ledger.remaining(now_ns), self.ledger.debt(now_ns));
        format!("{peeked:?}, {left} left, owes {debt} to {:?}", self.ledger.debt_ends_in_ns(now_ns))
    }
}

/// One limit given twice decides, owes and gives back as it does alone, whatever comes: holds,
/// charges that become promises, cancelled calls, and other numbers.
#[test]
fn a_limit_twice_is_a_limit_once() {
    const MS: u64 = 1_000_000;
    for seed in 0..3_000 {
        let mut random = Rng::with_seed(seed);
        let kind = random.u64(..5);
        let policy = |random: &mut Rng| -> AnyPolicy {
            let period = Duration::from_millis(random.choice([1, 2, 10]).unwrap());
            let (permits, burst) = (random.u64(1..=6), random.u64(1..=6));
            let rate = Rate::new(permits, period).unwrap();
            let catch_up = Some(Duration::from_millis(20));
            match kind {
                0 => Gcra::new(rate, burst).unwrap().into(),
                1 => log(permits, 10 * MS).into(),
                2 => FixedWindow::new(permits, period, Anchor::Epoch).into(),
                3 => TwoTimeline::new(rate, Mode::Average, catch_up).into(),
                _ => TwoTimeline::new(rate, Mode::Strict, None).into(),
            }
        };
        let first = policy(&mut random);
        let (mut once, mut twice) = (Played::new(first, 1), Played::new(first, 2));
        let (mut now_ns, mut story) = (0, vec![format!("{first:?}")]);
        for _ in 0..60 {
            now_ns += random.choice([0, 0, 0, MS / 2, MS, 7 * MS]).unwrap();
            let (verb, permits) = (random.u64(..10), random.u64(1..=5));
            let (span_ns, pick) = (random.u64(1..20 * MS), random.usize(..100));
            let step = Step { now_ns, verb, permits, span_ns, pick, next: policy(&mut random) };
            let seen = once.step(&step);
            story.push(format!("{now_ns}: {verb} {permits}: {seen}"));
            assert_eq!(twice.step(&step), seen, "seed {seed}: {story:#?}");
            assert_eq!(twice.seen(now_ns), once.seen(now_ns), "seed {seed}: {story:#?}");
        }
    }
}
