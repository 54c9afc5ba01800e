//! Laws of borrowed permits.

use std::num::NonZeroU64;
use std::time::Duration;

use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::fixed_window::{Anchor, FixedWindow};
use rategate_core::gcra::Gcra;
use rategate_core::node::leased::MAX_LEASES;
use rategate_core::node::{LeaseAction, LeaseConfig, Leased, Lent, LocalDecision, guarded};
use rategate_core::rate::Rate;
use rategate_core::sliding_log::SlidingLog;
use rategate_testkit::oracle::Grants;

use crate::common::{MS, S};
use crate::node::n;
use crate::node::world::{Books, Plan, World};

/// Returns a world of some seed except its limit: of few nanoseconds, each of which counts, or of
/// milliseconds.
fn any_plan(seed: u64) -> (Plan, Rng) {
    let mut random = Rng::with_seed(seed ^ 0x51ED);
    let scale = random.choice([1, 1, 7, 1_000]).unwrap();
    let mut some = |low: u64, high: u64| random.u64(low..=high) * scale;
    let length_ns = some(6, 60) + 2;
    let plan = Plan {
        policy: SlidingLog::new(1, Duration::from_nanos(1)).into(),
        grid_ns: None,
        nodes: 0,
        length_ns,
        max_units: 0,
        drift_ppm: 0,
        delays_ns: (some(0, 2), some(2, 6)),
        loses_one_in: 0,
        budget_ns: some(6, 14),
        gaps_ns: (some(0, 2), some(3, 16)),
        pauses_one_in: 60,
        max_permits: 0,
        crashes_one_in: 0,
        ends_ns: length_ns * 30 + some(0, 200),
    };
    let plan = Plan {
        nodes: usize::try_from(random.u64(1..=6)).unwrap(),
        max_units: random.u64(1..=12),
        drift_ppm: u32::try_from(random.choice([0, 200, 30_000, 200_000]).unwrap()).unwrap(),
        loses_one_in: random.choice([0, 0, 30, 6]).unwrap(),
        max_permits: random.u64(1..=3),
        crashes_one_in: random.choice([0, 0, 40]).unwrap(),
        ..plan
    };
    (plan, random)
}

fn lent(plan: &Plan, policy: &impl Lent) -> u64 {
    let nodes = u64::try_from(plan.nodes).unwrap();
    policy.outstanding(nodes, plan.max_units.max(plan.max_permits), plan.length_ns)
}

/// Returns the maximum of permits above a bucket's earnings, over all spans.
///
/// It is the level of a bucket without a bottom to overflow, in parts of which a permit has as
/// many as the rate has nanoseconds.
fn fullest_level(used: &Grants, rate: Rate) -> (u128, u128) {
    let (permits, period_ns) = crate::common::fraction(rate);
    let mut sorted = used.0.clone();
    sorted.sort_unstable();
    let (mut level, mut before_ns, mut max) = (0_u128, 0, 0);
    for (at_ns, count) in sorted {
        level = level.saturating_sub(u128::from(at_ns - before_ns) * permits);
        level += u128::from(count) * period_ns;
        max = max.max(level);
        before_ns = at_ns;
    }
    (max, period_ns)
}

fn run(plan: &Plan, seed: u64) -> World {
    let mut world = World::new(plan.clone(), seed);
    world = world.run();
    world.settle();
    balance(plan, &world.books);
    world
}

/// No permits are lost except those lost in flight, with a node (docs/theory.md, section 5.4), or
/// with their window.
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
    for seed in 0..120 {
        let (plan, mut random) = any_plan(seed);
        let period_ns = plan.length_ns * random.u64(1..=12) / 4 + 1;
        let log = SlidingLog::new(random.u64(3..=20), Duration::from_nanos(period_ns));
        let strict = Plan { policy: guarded(log, plan.length_ns).unwrap().into(), ..plan.clone() };
        let max = run(&strict, seed).used.fullest_window(period_ns).0;
        assert!(max <= log.permits(), "seed {seed}: {max} of {log:?} in {strict:?}");
        full += u64::from(max == log.permits());

        let open = Plan { policy: log.into(), ..plan };
        let max = run(&open, seed).used.fullest_window(period_ns).0;
        let bound = log.permits() + lent(&open, &log);
        assert!(max <= bound, "seed {seed}: {max} of {log:?} in {open:?}");
        over += u64::from(max > log.permits());
    }
    assert!(full > 15, "the guarded limit was reached {full} times");
    assert!(over > 10, "without the guard it was passed {over} times");
}

#[test]
fn a_guarded_bucket_keeps_its_ceiling_in_every_window_and_an_open_one_is_over_by_what_is_lent() {
    let (mut over, mut fit) = (0_u64, 0_u64);
    for seed in 0..120 {
        let (plan, mut random) = any_plan(seed);
        let permits = random.u64(1..=9);
        let period = Duration::from_nanos(plan.length_ns * random.u64(1..=8) / 2 + 1);
        let rate = Rate::new(permits, period).unwrap();
        let bucket = Gcra::new(rate, random.u64(2..=40)).unwrap();
        let burst = u128::from(bucket.burst_size().get());
        if let Ok(strict) = guarded(bucket, plan.length_ns) {
            fit += 1;
            let strict = Plan { policy: strict.into(), ..plan.clone() };
            let (max, permit) = fullest_level(&run(&strict, seed).used, rate);
            assert!(max <= burst * permit, "seed {seed}: {max} {bucket:?} {strict:?}");
        }
        let open = Plan { policy: bucket.into(), ..plan };
        let (max, permit) = fullest_level(&run(&open, seed).used, rate);
        let bound = burst + u128::from(lent(&open, &bucket));
        assert!(max <= bound * permit, "seed {seed}: {max} {bucket:?} {open:?}");
        over += u64::from(max > burst * permit);
    }
    assert!(fit > 30, "the guard fits {fit} times");
    assert!(over > 10, "without the guard it was passed {over} times");
}

#[test]
fn what_is_borrowed_of_a_window_is_used_in_it() {
    let mut full = 0_u64;
    for seed in 0..120 {
        let (plan, mut random) = any_plan(seed);
        let grid_ns = plan.length_ns * random.u64(1..=12) / 4 + 1;
        let window =
            FixedWindow::new(random.u64(3..=20), Duration::from_nanos(grid_ns), Anchor::Epoch);
        assert_eq!(guarded(window, plan.length_ns), Ok(window));
        let plan = Plan { policy: window.into(), grid_ns: Some(grid_ns), ..plan };
        let world = run(&plan, seed);
        let mut counts = std::collections::BTreeMap::<u64, u64>::new();
        for &(at_ns, permits) in &world.used.0 {
            *counts.entry(at_ns / grid_ns).or_default() += permits;
        }
        let max = counts.values().copied().max().unwrap_or(0);
        assert!(max <= window.permits(), "seed {seed}: {max} of {window:?} in {plan:?}");
        full += u64::from(max == window.permits());
    }
    assert!(full > 15, "the limit was reached {full} times");
}

/// Returns a plan of one node whose store is a millisecond away, with evenly spaced calls.
fn single(gap_ns: u64, max_units: u64) -> Plan {
    Plan {
        policy: AnyPolicy::from(SlidingLog::new(1_000_000, Duration::from_nanos(S))),
        grid_ns: None,
        nodes: 1,
        length_ns: S,
        max_units,
        drift_ppm: 200,
        delays_ns: (MS, MS),
        loses_one_in: 0,
        budget_ns: 20 * MS,
        gaps_ns: (gap_ns, gap_ns),
        pauses_one_in: 0,
        max_permits: 1,
        crashes_one_in: 0,
        ends_ns: 5 * S,
    }
}

#[test]
fn steady_demand_never_waits_once_the_node_knows_it_and_requests_once_for_half_to_all_of_its_units()
{
    for (gap_ns, max_units) in [(MS, 100), (MS / 10, 100), (MS / 10, 1_000), (MS / 3, 50)] {
        let world = run(&single(gap_ns, max_units), 1);
        let Books { used, requests, debits, denials, sent_back, .. } = world.books;
        assert!(used > 49 * S / gap_ns / 10 && denials == 0);
        let max = used * 2 / max_units + 16;
        assert!(debits >= used / max_units && debits <= max, "{debits} debits for {used}");
        assert!(requests <= 2 * max_units, "{requests} calls had to wait");
        assert!(world.last_request_ns < S / 10, "the last waited at {}", world.last_request_ns);
        assert!(sent_back <= max_units, "{sent_back} for nothing");
    }
}

#[test]
fn a_rare_call_debits_what_it_needs_and_leaves_nothing_to_return() {
    let config = LeaseConfig::new(n(S), n(100), 200).unwrap();
    let mut leased: Leased<u8> = Leased::new(config);
    for call in 0..20 {
        let now_ns = call * 3 * S;
        assert_eq!(leased.try_acquire(now_ns, n(2)), LocalDecision::NeedsLease);
        let Some(LeaseAction::Debit { id, units }) = leased.lease_action(now_ns) else {
            panic!("no debit")
        };
        assert_eq!(units, n(2));
        assert_eq!(leased.lease_action(now_ns), None);
        leased.debited(id, now_ns + MS, units, None, 7);
        assert_eq!(leased.try_acquire(now_ns + MS, n(2)), LocalDecision::Granted);
        assert_eq!(leased.lease_action(now_ns + MS), None);
        assert_eq!(leased.wakes_at_ns(), None);
        assert!(!leased.may_be_evicted(now_ns + MS));
        assert!(leased.may_be_evicted(now_ns + S));
    }
}

/// Returns a node that has just sent a debit for `units` at `sent_ns`.
fn requested(
    sent_ns: u64,
    units: u64,
    config: LeaseConfig,
) -> (Leased<u8>, rategate_core::node::LeaseActionId) {
    let mut leased = Leased::new(config);
    assert_eq!(leased.try_acquire(sent_ns, n(units)), LocalDecision::NeedsLease);
    let Some(LeaseAction::Debit { id, .. }) = leased.lease_action(sent_ns) else {
        panic!("no debit")
    };
    (leased, id)
}

#[test]
fn a_lease_ends_a_length_after_it_was_sent_less_the_drift_or_with_its_window() {
    let config = LeaseConfig::new(n(S), n(100), 200).unwrap();
    let (leased, id) = requested(5, 10, config);
    for (window_ends_in_ns, usable_ns) in [
        (None, S / 1_000_000 * 999_800),
        (Some(S), S / 1_000_000 * 999_800),
        (Some(S / 2), S / 2_000_000 * 999_800),
        (Some(9_999), 9_997),
    ] {
        let mut leased = leased.clone();
        leased.debited(id, 5 + 9_000, n(10), window_ends_in_ns, 1);
        let ends_ns = 5 + usable_ns;
        assert_eq!(leased.try_acquire(ends_ns - 1, n(1)), LocalDecision::Granted);
        assert_eq!(leased.units(ends_ns - 1), 9);
        assert_eq!(leased.try_acquire(ends_ns, n(1)), LocalDecision::NeedsLease);
    }
}

#[test]
fn what_is_left_of_a_lease_goes_back_unless_its_window_is_over() {
    let config = LeaseConfig::new(n(S), n(100), 0).unwrap();
    let (leased, id) = requested(0, 10, config);
    let mut whole = leased.clone();
    whole.debited(id, MS, n(10), None, 1);
    // The caller that it was debited for may be about to retry, for a quarter of a lease.
    assert_eq!(whole.lease_action(S / 4), None);
    let units = n(10);
    assert_eq!(whole.lease_action(MS + S / 4), Some(LeaseAction::Return { receipt: 1, units }));
    assert_eq!(
        whole.try_acquire(MS + S / 4, n(1)),
        LocalDecision::NeedsLease,
        "and is not used after"
    );

    let mut cut = leased;
    cut.debited(id, MS, n(10), Some(S / 5), 1);
    assert_eq!(cut.lease_action(S / 5), None);
    assert_eq!(cut.units(S / 5), 0);
}

#[test]
fn an_answer_that_was_given_up_is_returned_and_never_used() {
    let config = LeaseConfig::new(n(S), n(100), 0).unwrap();
    let (mut leased, id) = requested(0, 10, config);
    leased.lost(id, 20 * MS);
    leased.debited(id, 30 * MS, n(10), None, 1);
    assert_eq!(leased.units(30 * MS), 0);
    assert_eq!(leased.try_acquire(30 * MS, n(1)), LocalDecision::NeedsLease);
    assert_eq!(
        leased.lease_action(30 * MS),
        Some(LeaseAction::Return { receipt: 1, units: n(10) })
    );
    assert!(matches!(leased.lease_action(30 * MS), Some(LeaseAction::Debit { .. })));
}

#[test]
fn a_denial_holds_from_the_sending_is_reported_from_the_reply_and_requested_anew_after_a_length() {
    let config = LeaseConfig::new(n(S), n(100), 1_000).unwrap();
    let (leased, id) = requested(1_000, 10, config);
    let mut short = leased.clone();
    short.denied(id, 3_000, Some(n(10_000)));
    let denied = |wait| LocalDecision::Denied { retry_after_ns: Some(n(wait)) };
    assert_eq!(short.try_acquire(3_000, n(1)), denied(10_010));
    assert_eq!(short.try_acquire(1_000 + 9_989, n(1)), denied(2_021));
    assert_eq!(short.lease_action(1_000 + 9_989), None);
    assert_eq!(short.try_acquire(1_000 + 9_990, n(1)), LocalDecision::NeedsLease);

    let mut long = leased.clone();
    long.denied(id, 3_000, Some(n(100 * S)));
    assert_eq!(long.try_acquire(S / 2, n(1)), denied(100 * S + S / 10 + 3_000 - S / 2));
    assert_eq!(long.try_acquire(S, n(1)), LocalDecision::NeedsLease);

    let mut never = leased;
    never.denied(id, 3_000, None);
    assert_eq!(never.try_acquire(S / 2, n(1)), LocalDecision::Denied { retry_after_ns: None });
    assert_eq!(never.try_acquire(S, n(1)), LocalDecision::NeedsLease);
}

#[test]
fn a_clock_that_goes_back_revives_nothing() {
    let config = LeaseConfig::new(n(S), n(100), 0).unwrap();
    let (mut leased, id) = requested(0, 10, config);
    leased.debited(id, MS, n(10), None, 1);
    assert_eq!(leased.units(S), 0);
    assert_eq!(leased.try_acquire(S, n(1)), LocalDecision::NeedsLease);
    assert_eq!(leased.try_acquire(MS, n(1)), LocalDecision::NeedsLease);
}

#[test]
fn what_is_left_of_an_ended_lease_is_not_used_though_it_has_not_gone_back_yet() {
    let config = LeaseConfig::new(n(S), n(100), 0).unwrap();
    let (mut leased, id) = requested(0, 10, config);
    leased.debited(id, MS, n(10), None, 1);
    let later_ns = S / 100 * 95;
    assert_eq!(leased.try_acquire(later_ns, n(15)), LocalDecision::NeedsLease);
    // The next debit does not count on a fading lease.
    let Some(LeaseAction::Debit { id, units }) = leased.lease_action(later_ns) else {
        panic!("no debit")
    };
    assert_eq!(units, n(15));
    // The sender of the lease actions is late, too.
    leased.debited(id, later_ns + MS, n(15), None, 2);
    assert_eq!(leased.units(S), 15);
    assert_eq!(leased.try_acquire(S, n(15)), LocalDecision::Granted);
    assert_eq!(leased.try_acquire(S, n(1)), LocalDecision::NeedsLease);
    assert_eq!(leased.lease_action(S), Some(LeaseAction::Return { receipt: 1, units: n(10) }));
}

fn use_up(leased: &mut Leased<u8>, now_ns: u64, calls: u64) {
    for _ in 0..calls {
        assert_eq!(leased.try_acquire(now_ns, n(1)), LocalDecision::Granted);
    }
}

#[test]
fn a_debit_is_for_what_was_used_in_half_a_lease() {
    let config = LeaseConfig::new(n(S), n(100), 0).unwrap();
    let (mut leased, id) = requested(0, 9, config);
    leased.debited(id, MS, n(9), None, 1);
    use_up(&mut leased, S / 10, 4);
    use_up(&mut leased, S / 10 * 3, 5);
    let Some(LeaseAction::Debit { units, .. }) = leased.lease_action(S / 10 * 3) else {
        panic!("no debit")
    };
    assert_eq!(units, n(9));
}

#[test]
fn the_next_debit_does_not_count_on_what_is_about_to_end() {
    let config = LeaseConfig::new(n(S), n(100), 0).unwrap();
    let (mut leased, id) = requested(0, 10, config);
    leased.debited(id, MS, n(10), None, 1);
    use_up(&mut leased, S / 5 * 4, 5);
    assert_eq!(leased.lease_action(S / 5 * 4), None, "half is left");
    let expires_soon_ns = S / 8 * 7;
    assert_eq!(leased.wakes_at_ns(), Some(expires_soon_ns));
    assert_eq!(leased.lease_action(expires_soon_ns - 1), None);
    let Some(LeaseAction::Debit { units, .. }) = leased.lease_action(expires_soon_ns) else {
        panic!("no debit")
    };
    assert_eq!(units, n(5));
}

#[test]
fn after_less_than_requested_a_node_requests_ahead_no_sooner_than_a_quarter_of_a_lease_later() {
    let config = LeaseConfig::new(n(S), n(100), 0).unwrap();
    let (mut leased, id) = requested(0, 10, config);
    leased.debited(id, MS, n(10), None, 1);
    use_up(&mut leased, S / 5, 10);
    let Some(LeaseAction::Debit { id, units }) = leased.lease_action(S / 5) else {
        panic!("no debit")
    };
    assert_eq!(units, n(10));
    leased.debited(id, S / 5, n(2), None, 2);
    assert_eq!(leased.lease_action(S / 20 * 9 - 1), None);
    let mut waits = leased.clone();
    assert!(matches!(leased.lease_action(S / 20 * 9), Some(LeaseAction::Debit { .. })));
    // For a call that waits, at once.
    assert_eq!(waits.try_acquire(S / 5, n(3)), LocalDecision::NeedsLease);
    assert!(matches!(waits.lease_action(S / 5), Some(LeaseAction::Debit { .. })));
}

#[test]
fn leases_are_bounded_and_the_one_that_ends_first_goes_back() {
    let config = LeaseConfig::new(n(S), n(100), 0).unwrap();
    let mut leased: Leased<u64> = Leased::new(config);
    for debit in 0..40 {
        let now_ns = debit * MS;
        assert_eq!(leased.try_acquire(now_ns, n(90)), LocalDecision::NeedsLease);
        let max = u64::try_from(MAX_LEASES).unwrap();
        if debit >= max {
            let first = Some(LeaseAction::Return { receipt: debit - max, units: n(1) });
            assert_eq!(leased.lease_action(now_ns), first);
        }
        let Some(LeaseAction::Debit { id, .. }) = leased.lease_action(now_ns) else {
            panic!("no debit")
        };
        leased.debited(id, now_ns, n(1), None, debit);
        assert_eq!(leased.units(now_ns), (debit + 1).min(max));
    }
}

/// A credited grant is available again, in a lease that ends no later than its own, and only
/// once.
#[test]
fn what_is_credited_is_used_in_time_and_once() {
    for seed in 0..400 {
        let random = &mut Rng::with_seed(seed);
        let config = LeaseConfig::new(n(1_000), n(10), 0).unwrap();
        let mut node: Leased<u64> = Leased::new(config);
        let (mut leases, mut kept, mut open, mut now_ns) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..400 {
            now_ns += random.u64(0..=60);
            let permits = n(random.u64(1..=3));
            if node.try_acquire(now_ns, permits) == LocalDecision::Granted {
                let until_ns = node.granted_until_ns().unwrap();
                assert!(until_ns > now_ns);
                open.push((now_ns, permits, until_ns));
            }
            if !open.is_empty() && random.u64(0..=1) == 0 {
                let at = usize::try_from(random.u64(1..=1_000)).unwrap() % open.len();
                let (granted_ns, permits, until_ns) = open.swap_remove(at);
                if random.u64(0..=2) == 0 {
                    kept.push((granted_ns, permits.get()));
                } else {
                    let before = node.units(now_ns);
                    node.credit(now_ns, permits, until_ns);
                    assert!(node.units(now_ns) <= before + permits.get());
                }
            }
            while let Some(lease_action) = node.lease_action(now_ns) {
                if let LeaseAction::Debit { id, units } = lease_action {
                    let window_ns = random.choice([None, None, Some(300)]).unwrap();
                    node.debited(id, now_ns, units, window_ns, now_ns);
                    leases.push((now_ns + window_ns.unwrap_or(1_000), units.get()));
                }
            }
        }
        kept.extend(open.iter().map(|(granted_ns, permits, _)| (*granted_ns, permits.get())));
        // Permits used from an instant on belong to leases that ended after it.
        for &(from_ns, _) in &kept {
            let used: u64 = kept.iter().filter(|use_| use_.0 >= from_ns).map(|use_| use_.1).sum();
            let lent: u64 =
                leases.iter().filter(|lease| lease.0 > from_ns).map(|lease| lease.1).sum();
            assert!(used <= lent, "seed {seed}: {used} of {lent} from {from_ns}");
        }
    }
}

/// Of what is held, the used part was used in time, and each unit of the rest is used once more or
/// returned to the store once.
#[test]
fn what_is_held_is_used_in_time_and_the_rest_comes_back_once() {
    let (mut returned_late, mut windows) = (0, 0);
    for seed in 0..300 {
        let random = &mut Rng::with_seed(seed);
        let config = LeaseConfig::new(n(1_000), n(20), 0).unwrap();
        let mut node: Leased<u64> = Leased::new(config);
        let (mut leases, mut kept, mut open, mut now_ns) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let (mut debited, mut returned, mut lost) = (0, 0, 0);
        for _ in 0..300 {
            now_ns += random.u64(0..=60);
            let permits = n(random.u64(1..=9));
            let before = node.units(now_ns);
            if let Some(hold) = node.try_hold(now_ns, permits) {
                assert_eq!(node.units(now_ns), before - permits.get());
                open.push((now_ns, permits.get(), hold));
            } else {
                assert!(before < permits.get());
            }
            if open.len() > random.usize(..6) {
                let (held_ns, permits, hold) = open.swap_remove(random.usize(..open.len()));
                let used = random.u64(0..=permits);
                let back = node.end_hold(now_ns, hold, used);
                assert!(back <= permits - used);
                lost += permits - used - back;
                kept.push((held_ns, used));
            }
            if random.u64(..9) == 0 {
                let (short, before) = (random.u64(..6), node.units(now_ns));
                let charged = node.charge(now_ns, short);
                assert_eq!((charged, node.units(now_ns)), (short.min(before), before - charged));
                kept.push((now_ns, charged));
            }
            while let Some(lease_action) = node.lease_action(now_ns) {
                match lease_action {
                    LeaseAction::Debit { id, units } => {
                        let window_ns = random.choice([None, None, Some(300)]).unwrap();
                        windows += u64::from(window_ns.is_some());
                        node.debited(id, now_ns, units, window_ns, now_ns);
                        leases.push((now_ns + window_ns.unwrap_or(1_000), units.get()));
                        debited += units.get();
                    }
                    LeaseAction::Return { receipt, units } => {
                        returned += units.get();
                        returned_late += u64::from(receipt + 1_000 <= now_ns);
                    }
                }
            }
        }
        let held: u64 = open.iter().map(|(_, permits, _)| permits).sum();
        let used: u64 = kept.iter().map(|(_, used)| used).sum();
        // Units of a window that has ended are not returned.
        let known = used + held + returned + node.units(now_ns);
        assert!(known <= debited && lost <= debited - known, "seed {seed}: {known} of {debited}");
        kept.extend(open.iter().map(|(held_ns, permits, _)| (*held_ns, *permits)));
        for &(from_ns, _) in &kept {
            let used: u64 = kept.iter().filter(|use_| use_.0 >= from_ns).map(|use_| use_.1).sum();
            let lent: u64 =
                leases.iter().filter(|lease| lease.0 > from_ns).map(|lease| lease.1).sum();
            assert!(used <= lent, "seed {seed}: {used} of {lent} from {from_ns}");
        }
    }
    assert!(returned_late > 100 && windows > 100, "{returned_late} {windows}");
}

/// A unit whose lease has room for no more of them is returned, and the others are not.
#[test]
fn what_fits_no_lease_is_returned_once() {
    let config = LeaseConfig::new(n(S), n(20), 0).unwrap();
    let (mut node, first) = requested(0, 10, config);
    node.debited(first, MS, n(10), None, 1);
    assert_eq!(node.try_acquire(2 * MS, n(20)), LocalDecision::NeedsLease);
    let Some(LeaseAction::Debit { id, units }) = node.lease_action(2 * MS) else {
        panic!("no debit")
    };
    node.debited(id, 3 * MS, units, None, 2);
    assert_eq!(node.units(3 * MS), 20);
    // Of units of two leases, the use is taken off once.
    let mut other = node.clone();
    let both = other.try_hold(3 * MS, n(15)).unwrap();
    assert_eq!((other.end_hold(3 * MS, both, 12), other.units(3 * MS)), (3, 8));
    let hold = node.try_hold(3 * MS, n(5)).unwrap();
    // Five of this grant are of the first lease, which all eight are credited to.
    assert_eq!(node.try_acquire(3 * MS, n(8)), LocalDecision::Granted);
    node.credit(3 * MS, n(8), S);
    assert_eq!(node.units(3 * MS), 15);
    assert_eq!(node.end_hold(3 * MS, hold, 0), 5);
    assert_eq!(node.units(3 * MS), 17);
    assert_eq!(node.lease_action(3 * MS), Some(LeaseAction::Return { receipt: 1, units: n(3) }));
    assert_eq!(node.lease_action(3 * MS), None);
}

/// A hold that does not fit is demand, so that the next debit is for calls like that.
#[test]
fn what_cannot_be_held_is_borrowed_for_the_next() {
    let mut node: Leased<u8> = Leased::new(LeaseConfig::new(n(S), n(100), 0).unwrap());
    assert!(node.try_hold(0, n(30)).is_none());
    assert_eq!(node.lease_action(0), None, "one call alone is none to come");
    assert!(node.try_hold(MS, n(30)).is_none());
    let Some(LeaseAction::Debit { id, units }) = node.lease_action(MS) else { panic!("no debit") };
    assert_eq!(units, n(60));
    node.debited(id, 2 * MS, units, None, 1);
    assert!(node.try_hold(3 * MS, n(30)).is_some());
}

/// The last unit of a lease can be credited, too; units that were never granted cannot.
#[test]
fn the_last_unit_comes_back() {
    let mut node: Leased<&str> = Leased::new(LeaseConfig::new(n(1_000_000), n(10), 0).unwrap());
    assert_eq!(node.try_acquire(0, n(2)), LocalDecision::NeedsLease);
    let Some(LeaseAction::Debit { id, units }) = node.lease_action(0) else { panic!() };
    node.debited(id, 10, units, None, "receipt");
    for _ in 0..3 {
        assert_eq!(node.try_acquire(10, n(2)), LocalDecision::Granted);
        let until_ns = node.granted_until_ns().unwrap();
        assert!(
            node.lease_action(10)
                .is_none_or(|lease_action| matches!(lease_action, LeaseAction::Debit { .. }))
        );
        node.credit(10, n(2), until_ns);
        assert_eq!(node.units(10), 2);
        node.credit(10, n(5), until_ns);
        assert_eq!(node.units(10), 2, "never more than were lent");
    }
    assert_eq!(node.try_acquire(10, n(2)), LocalDecision::Granted);
    let until_ns = node.granted_until_ns().unwrap();
    node.credit(until_ns, n(2), until_ns);
    assert_eq!(node.units(until_ns), 0, "not after its end");
}

/// A store with a permit a millisecond, and the numbers of its requests and grants.
struct FakeLeaseStore {
    level: u64,
    requested: u64,
    granted: u64,
}

impl FakeLeaseStore {
    const BURST: u64 = 200;

    /// Passes a millisecond in which each node is called this often.
    fn pass(&mut self, nodes: &mut [Leased<()>], now_ns: u64, calls: u64) {
        self.level = Self::BURST.min(self.level + 1);
        for node in nodes {
            let granted =
                (0..calls).filter(|_| node.try_acquire(now_ns, n(1)) == LocalDecision::Granted);
            self.granted += u64::try_from(granted.count()).unwrap();
            while let Some(lease_action) = node.lease_action(now_ns) {
                let (id, units) = match lease_action {
                    LeaseAction::Debit { id, units } => (id, units.get().min(self.level)),
                    LeaseAction::Return { units, .. } => {
                        self.level = Self::BURST.min(self.level + units.get());
                        continue;
                    }
                };
                self.requested += 1;
                self.level -= units;
                match NonZeroU64::new(units) {
                    Some(units) => node.debited(id, now_ns, units, None, ()),
                    None => node.denied(id, now_ns, NonZeroU64::new(MS)),
                }
            }
        }
    }
}

/// Denied nodes send fewer and fewer requests, while all permits are still granted.
///
/// The nodes want sixteen times what there is. A node that is alone again has what it wants
/// before a lease of the rate is lost.
#[test]
fn denied_nodes_request_less_and_less_and_no_more_than_a_lease_is_lost() {
    const LASTS_MS: u64 = 20_000;
    let length_ns = 100 * MS;
    let plain = LeaseConfig::new(n(length_ns), n(50), 200).unwrap().with_pause_ns(length_ns / 16);
    let played = [plain, plain.with_max_pause_ns(50 * MS)].map(|config| {
        let mut nodes: Vec<Leased<()>> = (0..4).map(|_| Leased::new(config)).collect();
        let mut shop = FakeLeaseStore { level: FakeLeaseStore::BURST, requested: 0, granted: 0 };
        for ms in 0..LASTS_MS {
            shop.pass(&mut nodes, ms * MS, 4);
        }
        let scarce = (shop.requested * 1_000 / (4 * LASTS_MS), shop.granted);
        let before = shop.granted;
        for ms in LASTS_MS..LASTS_MS + 1_000 {
            // Eight in ten of the available permits.
            shop.pass(&mut nodes[..1], ms * MS, u64::from(ms % 5 > 0));
        }
        (scarce, shop.granted - before)
    });
    let [((often, all), _), ((seldom, max), single)] = played;
    assert!(often > 120, "{often} requests of each node a second");
    assert!(seldom * 3 < often, "{seldom} requests of each node a second, not {often}");
    assert!(max + 100 >= all && all >= LASTS_MS, "{max} of {all}");
    assert!(single >= 800 - 100, "{single}");
}
