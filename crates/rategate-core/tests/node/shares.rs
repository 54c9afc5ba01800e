//! Laws of a partitioned total.

use fastrand::Rng;
use rategate_core::node::group::{Group, Heartbeat, HeartbeatReply};
use rategate_core::node::member::{Member, MemberConfig, Resize};

use crate::common::{MS, S};
use crate::node::members::{Plan, World};
use crate::node::n;

fn any_plan(seed: u64) -> Plan {
    let mut random = Rng::with_seed(seed ^ 0xA11);
    let scale = random.choice([1, 1, 1_000]).unwrap();
    let heartbeat_ns = random.u64(24..=80) * scale;
    let quiet_from_ns = heartbeat_ns * 30;
    Plan {
        total: random.u64(0..=30),
        max_members: usize::try_from(random.u64(1..=7)).unwrap(),
        heartbeat_ns,
        drift_ppm: u32::try_from(random.choice([0, 200, 30_000, 100_000]).unwrap()).unwrap(),
        delays_ns: (0, random.u64(0..=2 * scale)),
        loses_one_in: random.choice([0, 10, 3]).unwrap(),
        budget_ns: 6 * scale,
        memory_ns: random.u64(1..=4) * heartbeat_ns / random.u64(1..=6) + 1,
        holds_on: random.u64(..3) == 0,
        quiet_from_ns,
        ends_ns: quiet_from_ns + 12 * heartbeat_ns,
    }
}

#[test]
fn shares_are_never_more_than_the_total_and_all_of_it_once_things_are_quiet() {
    let mut churned = 0_u64;
    for seed in 0..200 {
        let plan = any_plan(seed);
        let world = World::new(plan.clone(), seed).run();
        let shares = world.shares_now();
        assert_eq!(shares.iter().sum::<u64>(), plan.total, "seed {seed}: {shares:?} {plan:?}");
        if !plan.holds_on {
            let even = shares.last().unwrap() - shares.first().unwrap();
            assert!(even <= 1, "seed {seed}: {shares:?}");
        }
        churned += world.heartbeats;
    }
    assert!(churned > 5_000);
}

#[test]
fn the_total_is_full_two_heartbeats_and_a_half_after_the_last_change() {
    for seed in 0..200 {
        let plan = Plan { loses_one_in: 0, holds_on: false, ..any_plan(seed) };
        let world = World::new(plan.clone(), seed).run();
        let full_ns = world.full_since_ns.expect("full in the end");
        // A length, a heartbeat, and the delays of clocks and messages.
        let slack_ns = plan.heartbeat_ns * 2 / 5 + 12 * plan.delays_ns.1 + 4;
        let latest_ns = plan.quiet_from_ns + plan.heartbeat_ns * 5 / 2 + slack_ns;
        assert!(full_ns <= latest_ns, "seed {seed}: {full_ns} > {latest_ns} {plan:?}");
    }
}

#[test]
fn no_window_sees_more_than_the_total_whichever_member_held_it() {
    let mut full = 0_u64;
    for seed in 0..200 {
        let plan = any_plan(seed);
        let world = World::new(plan.clone(), seed).run();
        let max = world.used.fullest_window(plan.memory_ns).0;
        assert!(max <= plan.total, "seed {seed}: {max} of {plan:?}");
        full += u64::from(max == plan.total);
    }
    assert!(full > 100, "{full}");
}

fn heartbeat(name: u8, total: u64) -> Heartbeat {
    Heartbeat { member: [name; 16], total, at_least: 0, length_ns: 3 * S / 2, memory_ns: S }
}

#[test]
fn the_remainder_goes_to_the_first_names_and_nothing_is_dropped() {
    let mut group = Group::new();
    for at in 0..8 {
        for name in 0..7 {
            let _ = group.heartbeat(at * S / 2, &heartbeat(name, 45));
        }
    }
    let shares: Vec<u64> =
        (0..7).map(|name| group.heartbeat(4 * S, &heartbeat(name, 45)).permits).collect();
    assert_eq!(shares, [7, 7, 7, 6, 6, 6, 6]);
    assert_eq!(group.held(4 * S), 45);
}

#[test]
fn a_new_member_gets_its_share_once_the_others_have_given_theirs_up() {
    let mut group = Group::new();
    let all = HeartbeatReply { permits: 10, fresh: 10, members: 1, changes_in_ns: None };
    assert_eq!(group.heartbeat(0, &heartbeat(1, 10)), all);
    let joined = group.heartbeat(S / 10, &heartbeat(2, 10));
    assert_eq!(joined, HeartbeatReply { permits: 0, fresh: 0, members: 2, changes_in_ns: None });
    // The first member's smaller share is in a reply that it may not have received.
    assert_eq!(group.heartbeat(S, &heartbeat(1, 10)).permits, 5);
    let second = group.heartbeat(S, &heartbeat(2, 10));
    assert_eq!((second.permits, second.changes_in_ns), (0, Some(n(S / 2))));
    // From then on it has received it or uses nothing. The second's gain was just used, or might
    // have been.
    let got = group.heartbeat(3 * S / 2, &heartbeat(2, 10));
    assert_eq!(got, HeartbeatReply { permits: 5, fresh: 0, members: 2, changes_in_ns: None });
}

#[test]
fn a_silent_member_is_missed_and_its_share_is_fresh_once_unheld_for_the_memory() {
    let mut group = Group::new();
    for at in 0..4 {
        for name in [1, 2] {
            let _ = group.heartbeat(at * S, &heartbeat(name, 10));
        }
    }
    // The second is silent from here on: heartbeat at 3 s, over at 4.5 s, late after two thirds
    // of that.
    assert_eq!(group.heartbeat(4 * S - 1, &heartbeat(1, 10)).changes_in_ns, None);
    assert_eq!(group.heartbeat(4 * S, &heartbeat(1, 10)).changes_in_ns, Some(n(S / 2)));
    let mut soon = group.clone();
    assert_eq!(soon.heartbeat(9 * S / 2, &heartbeat(1, 10)).permits, 10);
    let got = group.heartbeat(11 * S / 2 - 1, &heartbeat(1, 10));
    assert_eq!((got.permits, got.fresh), (10, 0));
    let mut later = soon.clone();
    let _ = later.heartbeat(9 * S / 2, &Heartbeat { length_ns: 0, ..heartbeat(1, 10) });
    assert!(!later.may_be_evicted(11 * S / 2 - 1, S));
    assert!(later.may_be_evicted(11 * S / 2, S));
    assert_eq!(later.heartbeat(11 * S / 2, &heartbeat(3, 10)).fresh, 10);
}

#[test]
fn a_member_keeps_what_it_cannot_give_up_and_no_more_than_it_has() {
    let mut group = Group::new();
    let _ = group.heartbeat(0, &heartbeat(1, 10));
    let _ = group.heartbeat(0, &heartbeat(2, 10));
    let kept = group.heartbeat(S, &Heartbeat { at_least: 8, ..heartbeat(1, 10) });
    assert_eq!(kept.permits, 8);
    assert_eq!(group.heartbeat(5 * S / 2 - 1, &heartbeat(2, 10)).permits, 2);
    let greedy = group.heartbeat(5 * S / 2 - 1, &Heartbeat { at_least: 100, ..heartbeat(2, 10) });
    assert_eq!(greedy.permits, 2);
}

#[test]
fn a_share_ends_a_length_after_its_heartbeat_was_sent_and_a_late_reply_brings_none() {
    let config = MemberConfig::new(n(S), 1_000).unwrap();
    let mut member = Member::new(config);
    let received = HeartbeatReply { permits: 10, fresh: 4, members: 3, changes_in_ns: None };
    let first = member.heartbeat(7).unwrap();
    assert_eq!(member.heartbeat(8), None, "one at a time");
    // The reply comes late, and still counts from the sending.
    assert_eq!(member.received(first, S, received), Resize { from: 0, to: 10, fresh: 4 });
    let usable_ns = 3 * S / 2 / 1_000 * 999;
    assert_eq!(member.share(7 + usable_ns - 1), 10);
    assert_eq!(member.share(7 + usable_ns), 0);
    assert_eq!(member.wakes_at_ns(), Some(7 + S));

    let second = member.heartbeat(7 + S).unwrap();
    member.lost(second, 7 + S + 20 * MS);
    assert_eq!(member.wakes_at_ns(), Some(7 + S + 20 * MS + S / 8), "soon again");
    // It was not lost, but late: nothing changes.
    let late = member.received(second, 8 + S + 20 * MS, received);
    assert_eq!(late, Resize { from: 10, to: 10, fresh: 0 });
    assert_eq!(member.share(7 + usable_ns), 0);
    let third = member.heartbeat(3 * S).unwrap();
    let again = member.received(third, 3 * S, HeartbeatReply { fresh: 0, ..received });
    assert_eq!((again.from, again.stale()), (0, 10));
    member.leave();
    assert_eq!(
        (member.share(3 * S), member.wakes_at_ns(), member.heartbeat(9 * S)),
        (0, None, None)
    );
}

#[test]
fn a_member_sends_a_heartbeat_when_the_share_of_another_is_over() {
    let mut member = Member::new(MemberConfig::new(n(S), 1_000).unwrap());
    let id = member.heartbeat(0).unwrap();
    let changes_in_ns = Some(n(S / 2));
    let received = HeartbeatReply { permits: 1, fresh: 0, members: 2, changes_in_ns };
    let _ = member.received(id, MS, received);
    assert_eq!(member.wakes_at_ns(), Some(MS + S / 2 + S / 2_000), "on a clock that may be fast");
    // Never more than eight times in a heartbeat interval.
    let id = member.heartbeat(S).unwrap();
    let _ = member.received(id, S, HeartbeatReply { changes_in_ns: Some(n(1)), ..received });
    assert_eq!(member.wakes_at_ns(), Some(S + S / 8));
}

/// Steps are merged to the safe side: one heartbeat each nanosecond, each with one permit less,
/// and unknown receipts.
#[test]
fn many_small_steps_are_joined_to_the_safe_side() {
    const STEPS: u64 = 40;
    let (total, length_ns, memory_ns) = (100, 1_000, 500);
    let mut group = Group::new();
    for at_ns in 0..STEPS {
        let second = Heartbeat { total: total - at_ns, length_ns, memory_ns, ..heartbeat(1, 0) };
        assert_eq!(group.heartbeat(at_ns, &second).permits, total - at_ns);
    }
    // The share in the reply at `t` may be used until `t + 1000`.
    let may_hold = |at_ns: u64| {
        let first = (at_ns + 1).saturating_sub(length_ns);
        if first < STEPS { total - first } else { 0 }
    };
    let last_ns = length_ns + STEPS + memory_ns;
    for at_ns in STEPS..=last_ns {
        let held = group.held(at_ns);
        assert!(held >= may_hold(at_ns) && held <= total, "{held} at {at_ns}");
        let joining = Heartbeat { total, length_ns, memory_ns, ..heartbeat(2, 0) };
        let received = group.clone().heartbeat(at_ns, &joining);
        assert!(received.permits + may_hold(at_ns) <= total, "{received:?} at {at_ns}");
        let since_ns = (at_ns + 1).saturating_sub(memory_ns);
        let fresh = total - may_hold(since_ns);
        assert!(received.fresh <= fresh, "{received:?} at {at_ns}, {fresh} fresh");
    }
    assert_eq!(group.held(last_ns), 0);
    let joining = Heartbeat { total, length_ns, memory_ns, ..heartbeat(2, 0) };
    assert_eq!(group.heartbeat(last_ns, &joining).fresh, total);
}

#[test]
fn what_many_gave_up_one_after_the_other_is_fresh_no_sooner_than_each_of_them() {
    let (total, memory_ns) = (20, 500);
    let mut group = Group::new();
    for name in 1..=total {
        let heartbeat = Heartbeat { memory_ns, ..heartbeat(u8::try_from(name).unwrap(), name) };
        assert_eq!(group.heartbeat(0, &heartbeat).permits, 1);
    }
    // One leaves each nanosecond.
    for name in 1..=total {
        let heartbeat =
            Heartbeat { length_ns: 0, memory_ns, ..heartbeat(u8::try_from(name).unwrap(), total) };
        let _ = group.heartbeat(9 + name, &heartbeat);
    }
    for at_ns in 500..=529 {
        let received =
            group.clone().heartbeat(at_ns, &Heartbeat { memory_ns, ..heartbeat(99, total) });
        assert_eq!(received.permits, total);
        let fresh = (at_ns + 1).saturating_sub(510).min(total);
        assert!(received.fresh <= fresh, "{received:?} at {at_ns}, {fresh} fresh");
        assert!(at_ns < 529 || received.fresh == total);
    }
}

#[test]
fn no_more_is_fresh_than_is_gained() {
    let mut member = Member::new(MemberConfig::new(n(S), 0).unwrap());
    let id = member.heartbeat(0).unwrap();
    let received = HeartbeatReply { permits: 3, fresh: 3, members: 2, changes_in_ns: None };
    assert_eq!(member.received(id, 0, received), Resize { from: 0, to: 3, fresh: 3 });
    // A reply in between was lost, in which it had less.
    let id = member.heartbeat(S).unwrap();
    let received = HeartbeatReply { permits: 4, fresh: 2, ..received };
    assert_eq!(member.received(id, S, received), Resize { from: 3, to: 4, fresh: 1 });
}
