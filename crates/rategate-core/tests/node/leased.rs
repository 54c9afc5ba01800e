//! Laws of permits that are borrowed.

use rategate_core::any_policy::AnyPolicy;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::node::{Errand, Leased, Lent, Local, Terms, guarded};
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;

use crate::common::{Grants, MS, S, XorShift};
use crate::n;
use crate::world::{Books, Plan, World};

/// A world of some seed, but for its limit: of a few nanoseconds, where every one of them counts, or of milliseconds.
fn any_plan(seed: u64) -> (Plan, XorShift) {
    let mut random = XorShift::new(seed ^ 0x51ED);
    let scale = random.pick(&[1, 1, 7, 1_000]);
    let mut some = |low: u64, high: u64| random.between(low, high) * scale;
    let length_ns = some(6, 60) + 2;
    let plan = Plan {
        policy: SlidingLog::new(1, 1).unwrap().into(),
        grid_ns: None,
        nodes: 0,
        length_ns,
        most_units: 0,
        drift_ppm: 0,
        delays_ns: (some(0, 2), some(2, 6)),
        loses_one_in: 0,
        budget_ns: some(6, 14),
        gaps_ns: (some(0, 2), some(3, 16)),
        most_permits: 0,
        crashes_one_in: 0,
        ends_ns: length_ns * 60 + some(0, 200),
    };
    let plan = Plan {
        nodes: usize::try_from(random.between(1, 6)).unwrap(),
        most_units: random.between(1, 12),
        drift_ppm: u32::try_from(random.pick(&[0, 200, 30_000, 200_000])).unwrap(),
        loses_one_in: random.pick(&[0, 0, 30, 6]),
        most_permits: random.between(1, 3),
        crashes_one_in: random.pick(&[0, 0, 40]),
        ..plan
    };
    (plan, random)
}

fn lent(plan: &Plan, policy: &impl Lent) -> u64 {
    let nodes = u64::try_from(plan.nodes).unwrap();
    policy.outstanding(nodes, plan.most_units.max(plan.most_permits), plan.length_ns)
}

/// The most permits above what a bucket earns, over all spans: the level of a bucket without a bottom to overflow. In
/// parts of which a permit has as many as the rate has nanoseconds.
fn fullest_level(used: &Grants, rate: Rate) -> (u128, u128) {
    let (permits, period_ns) = crate::common::fraction(rate);
    let mut sorted = used.0.clone();
    sorted.sort_unstable();
    let (mut level, mut before_ns, mut most) = (0_u128, 0, 0);
    for (at_ns, count) in sorted {
        level = level.saturating_sub(u128::from(at_ns - before_ns) * permits);
        level += u128::from(count) * period_ns;
        most = most.max(level);
        before_ns = at_ns;
    }
    (most, period_ns)
}

fn run(plan: &Plan, seed: u64) -> World {
    let mut world = World::new(plan.clone(), seed);
    world = world.run();
    world.settle();
    balance(plan, &world.books);
    world
}

/// Nothing is lost but what was lost on the way, or with a node (theory 5.4), or with its window.
fn balance(plan: &Plan, books: &Books) {
    let lost = books.lost_on_the_way + books.lost_in_crashes + books.let_go;
    assert_eq!(books.debited, books.used + books.sent_back + lost, "{plan:?} {books:?}");
    assert!(plan.loses_one_in > 0 || books.lost_on_the_way == 0, "{plan:?} {books:?}");
    assert!(plan.crashes_one_in > 0 || books.lost_in_crashes == 0, "{plan:?} {books:?}");
    assert!(plan.grid_ns.is_some() || books.let_go == 0, "{plan:?} {books:?}");
}

#[test]
fn a_guarded_log_keeps_its_limit_whatever_happens_and_an_open_one_is_over_by_what_is_lent() {
    let (mut over, mut full) = (0_u64, 0_u64);
    for seed in 0..250 {
        let (plan, mut random) = any_plan(seed);
        let period_ns = plan.length_ns * random.between(1, 12) / 4 + 1;
        let log = SlidingLog::new(random.between(3, 20), period_ns).unwrap();
        let strict = Plan { policy: guarded(log, plan.length_ns).unwrap().into(), ..plan.clone() };
        let most = run(&strict, seed).used.most_in(period_ns);
        assert!(most <= log.permits(), "seed {seed}: {most} of {log:?} in {strict:?}");
        full += u64::from(most == log.permits());

        let open = Plan { policy: log.into(), ..plan };
        let most = run(&open, seed).used.most_in(period_ns);
        let bound = log.permits() + lent(&open, &log);
        assert!(most <= bound, "seed {seed}: {most} of {log:?} in {open:?}");
        over += u64::from(most > log.permits());
    }
    assert!(full > 25, "the guarded limit was reached {full} times");
    assert!(over > 25, "without the guard it was passed {over} times");
}

#[test]
fn a_guarded_bucket_keeps_its_ceiling_in_every_window_and_an_open_one_is_over_by_what_is_lent() {
    let (mut over, mut fit) = (0_u64, 0_u64);
    for seed in 0..250 {
        let (plan, mut random) = any_plan(seed);
        let permits = random.between(1, 9);
        let period = std::time::Duration::from_nanos(plan.length_ns * random.between(1, 8) / 2 + 1);
        let rate = Rate::new(permits, period).unwrap();
        let bucket = Gcra::new(rate, random.between(2, 40)).unwrap();
        let burst = u128::from(bucket.burst().get());
        if let Ok(strict) = guarded(bucket, plan.length_ns) {
            fit += 1;
            let strict = Plan { policy: strict.into(), ..plan.clone() };
            let (most, permit) = fullest_level(&run(&strict, seed).used, rate);
            assert!(most <= burst * permit, "seed {seed}: {most} {bucket:?} {strict:?}");
        }
        let open = Plan { policy: bucket.into(), ..plan };
        let (most, permit) = fullest_level(&run(&open, seed).used, rate);
        let bound = burst + u128::from(lent(&open, &bucket));
        assert!(most <= bound * permit, "seed {seed}: {most} {bucket:?} {open:?}");
        over += u64::from(most > burst * permit);
    }
    assert!(fit > 50, "the guard fits {fit} times");
    assert!(over > 15, "without the guard it was passed {over} times");
}

#[test]
fn what_is_borrowed_of_a_window_is_used_in_it() {
    let mut full = 0_u64;
    for seed in 0..250 {
        let (plan, mut random) = any_plan(seed);
        let grid_ns = plan.length_ns * random.between(1, 12) / 4 + 1;
        let window = FixedWindow::new(random.between(3, 20), grid_ns, Anchor::Epoch).unwrap();
        assert_eq!(guarded(window, plan.length_ns), Ok(window));
        let plan = Plan { policy: window.into(), grid_ns: Some(grid_ns), ..plan };
        let world = run(&plan, seed);
        let mut counts = std::collections::BTreeMap::<u64, u64>::new();
        for &(at_ns, permits) in &world.used.0 {
            *counts.entry(at_ns / grid_ns).or_default() += permits;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        assert!(most <= window.permits(), "seed {seed}: {most} of {window:?} in {plan:?}");
        full += u64::from(most == window.permits());
    }
    assert!(full > 25, "the limit was reached {full} times");
}

/// One node whose store is a millisecond away, and calls evenly spaced.
fn alone(gap_ns: u64, most_units: u64) -> Plan {
    Plan {
        policy: AnyPolicy::from(SlidingLog::new(1_000_000, S).unwrap()),
        grid_ns: None,
        nodes: 1,
        length_ns: S,
        most_units,
        drift_ppm: 200,
        delays_ns: (MS, MS),
        loses_one_in: 0,
        budget_ns: 20 * MS,
        gaps_ns: (gap_ns, gap_ns),
        most_permits: 1,
        crashes_one_in: 0,
        ends_ns: 5 * S,
    }
}

#[test]
fn steady_demand_never_waits_once_the_node_knows_it_and_asks_once_for_half_to_all_of_its_units() {
    for (gap_ns, most_units) in [(MS, 100), (MS / 10, 100), (MS / 10, 1_000), (MS / 3, 50)] {
        // The world's long pauses are those of a seed; here they only start the demand anew.
        let world = run(&alone(gap_ns, most_units), 1);
        let Books { used, asks, debits, .. } = world.books;
        println!("{gap_ns} {most_units}: {:?} {}", world.books, world.last_ask_ns);
        assert!(used > 2 * S / gap_ns);
        let most = used * 2 / most_units + used / most_units / 2 + 60;
        assert!(debits >= used / most_units && debits <= most, "{debits} debits for {used}");
        assert!(asks <= 60 + used / 1_000, "{asks} calls of {used} had to wait");
    }
}

#[test]
fn a_rare_call_debits_what_it_needs_and_leaves_nothing_to_return() {
    let terms = Terms::new(n(S), n(100), 200).unwrap();
    let mut leased: Leased<u8> = Leased::new(terms);
    for call in 0..20 {
        let now_ns = call * 3 * S;
        assert_eq!(leased.try_acquire(now_ns, n(2)), Local::Ask);
        let Some(Errand::Debit { id, units }) = leased.errand(now_ns) else { panic!("no debit") };
        assert_eq!(units, n(2));
        assert_eq!(leased.errand(now_ns), None);
        leased.debited(id, now_ns + MS, units, None, 7);
        assert_eq!(leased.try_acquire(now_ns + MS, n(2)), Local::Granted);
        assert_eq!(leased.errand(now_ns + MS), None);
        assert_eq!(leased.wakes_at_ns(), None);
        assert!(!leased.may_be_forgotten(now_ns + MS));
        assert!(leased.may_be_forgotten(now_ns + S));
    }
}
