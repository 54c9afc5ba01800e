//! Leases: never more than the limit and the permits borrowed, and with a guard never more than
//! the limit.

use std::time::Duration;

use rategate::distributed::{Builder, DecidedBy, Leases, Mode};
use rategate::policy::Anchor;
use rategate::store::Rule;
use rategate::{FixedWindow, Gcra, SlidingLog};

use crate::distributed::fleet::Fleet;
use crate::distributed::wire::{LinkState, Wire};
use crate::distributed::{MS, S};

const NODES: u64 = 5;
const UNITS: u64 = 20;
const LEASE_NS: u64 = 50 * MS;

fn leased(rule: Rule, is_guarded: bool) -> impl Fn(Builder<Wire>) -> Builder<Wire> {
    let leases =
        Leases { ttl: Duration::from_nanos(LEASE_NS), max_permits: UNITS, ..Leases::default() };
    let leases = Leases { guard: is_guarded, ..leases };
    move |builder| builder.limit("limit", rule).mode(Mode::Leased(leases))
}

/// Plays nodes that call in different ways: never, all the time, in bursts, with a changing
/// busiest node.
pub(super) fn traffic(seed: u64, rule: Rule, is_guarded: bool) -> Fleet {
    let mut fleet = Fleet::new(seed);
    for _ in 0..NODES {
        fleet.join(leased(rule, is_guarded));
    }
    let start_ns = fleet.now_ns();
    let mut busiest = 0;
    for step in 0..6_000 {
        if fleet.random.u64(..400) == 0 {
            busiest = fleet.random.u64(..NODES);
        }
        if fleet.random.u64(..500) == 0 {
            let node = usize::try_from(fleet.random.u64(..NODES)).unwrap();
            let link_state = match fleet.random.u64(..4) {
                0 => LinkState::RequestsLost,
                1 => LinkState::RepliesLost,
                _ => LinkState::Open { max_delay_ns: 15 * MS },
            };
            fleet.nodes[node].wire.set(link_state);
        }
        let node = if fleet.random.u64(..3) == 0 { fleet.random.u64(..NODES) } else { busiest };
        let permits = if fleet.random.u64(..20) == 0 { 7 } else { 1 };
        fleet.call(usize::try_from(node).unwrap(), b"key", permits);
        let pause_ns = if fleet.random.u64(..200) == 0 { 80 * MS } else { fleet.random.u64(..MS) };
        let _ = step;
        fleet.run_to(fleet.now_ns() + pause_ns);
    }
    assert!(fleet.now_ns() > start_ns + S);
    assert!(fleet.grants.len() > 200, "{} grants", fleet.grants.len());
    fleet
}

fn log() -> Rule {
    SlidingLog::new(100, Duration::from_nanos(200 * MS)).into()
}

fn bucket() -> Rule {
    Gcra::new("400/s".parse().unwrap(), 60).unwrap().into()
}

fn window() -> Rule {
    FixedWindow::new(100, Duration::from_nanos(200 * MS), Anchor::Epoch).into()
}

#[test]
fn a_log_is_over_by_what_was_borrowed_at_most() {
    for seed in 0..6 {
        let fleet = traffic(seed, log(), false);
        let max_granted = fleet.max_in(200 * MS, |by| by == DecidedBy::Lease);
        assert!(max_granted <= 100 + NODES * UNITS, "seed {seed}: {max_granted}");
    }
}

/// S3.16, X3.8: permits that nodes count by themselves were reserved before, so no two of them
/// admit on one total.
#[test]
fn a_guarded_log_is_never_over() {
    for seed in 0..6 {
        let max_granted = traffic(seed, log(), true).max_in(200 * MS, |by| by == DecidedBy::Lease);
        assert!(max_granted <= 100, "seed {seed}: {max_granted}");
    }
}

#[test]
fn a_guarded_bucket_is_never_over() {
    for seed in 0..6 {
        let fleet = traffic(seed, bucket(), true);
        for window_ns in [0, MS, 10 * MS, 50 * MS, 100 * MS, 500 * MS, S] {
            let max_granted = fleet.max_in(window_ns + 1, |by| by == DecidedBy::Lease);
            let ceiling = 60 + 400 * window_ns / S;
            assert!(max_granted <= ceiling, "seed {seed}: {max_granted} in {window_ns} ns");
        }
    }
}

/// Leases end with the window, without a guard.
#[test]
fn a_fixed_window_is_never_over() {
    for seed in 0..6 {
        let fleet = traffic(seed, window(), false);
        let mut used = std::collections::BTreeMap::<u64, u64>::new();
        for grant in fleet.grants.iter().filter(|grant| grant.by == DecidedBy::Lease) {
            *used.entry(grant.at_ns / (200 * MS)).or_default() += grant.permits;
        }
        let max_granted = used.values().max().copied().unwrap();
        assert!(max_granted <= 100, "seed {seed}: {max_granted}");
    }
}

/// A node with steady demand below the limit waits for its first reply, and sends few requests.
#[test]
fn steady_demand_is_met_without_waiting() {
    let mut fleet = Fleet::new(9);
    let rule: Rule = Gcra::new("10000/s".parse().unwrap(), 1_000).unwrap().into();
    let leases =
        Leases { ttl: Duration::from_nanos(100 * MS), max_permits: 200, ..Leases::default() };
    let node = fleet.join(|builder| builder.limit("limit", rule).mode(Mode::Leased(leases)));
    let mut waited = 0;
    for _ in 0..4_000 {
        let deciding = fleet.nodes[node].node.try_acquire(b"key", 1);
        match deciding.at_once() {
            Ok(decision) => assert!(decision.unwrap().is_granted()),
            Err(_) => waited += 1,
        }
        fleet.run_to(fleet.now_ns() + MS);
    }
    let requests = fleet.nodes[node].wire.requests();
    assert!(waited <= 10, "{waited} calls waited");
    // 1000 calls a second, and leases of 100 ms: some dozens of requests a second, including
    // returns.
    assert!(requests < 400, "{requests} requests for 4000 calls");
}

/// Unused permits are returned before their lease is over.
#[test]
fn what_is_not_used_goes_back() {
    let mut fleet = Fleet::new(10);
    let rule: Rule = SlidingLog::new(100, Duration::from_nanos(3_600 * S)).into();
    let leases =
        Leases { ttl: Duration::from_nanos(100 * MS), max_permits: 50, ..Leases::default() };
    let set_up = |builder: Builder<Wire>| builder.limit("limit", rule).mode(Mode::Leased(leases));
    let (a, b) = (fleet.join(set_up), fleet.join(set_up));
    for _ in 0..60 {
        fleet.call(a, b"key", 1);
        fleet.run_to(fleet.now_ns() + MS / 2);
    }
    let by_a = fleet.granted_since(0);
    fleet.run_to(fleet.now_ns() + S);
    for _ in 0..200 {
        fleet.call(b, b"key", 1);
        fleet.run_to(fleet.now_ns() + 5 * MS);
    }
    assert_eq!(fleet.granted_since(0), 100, "{by_a} of them by the first");
}

/// Keys without borrowed permits are evicted.
#[test]
fn idle_keys_are_evicted() {
    let mut fleet = Fleet::new(11);
    let rule = bucket();
    let leases =
        Leases { ttl: Duration::from_nanos(LEASE_NS), max_permits: UNITS, ..Leases::default() };
    let node = fleet
        .join(|builder| builder.limit("limit", rule).mode(Mode::Leased(leases)).with_max_keys(640));
    for key in 0..5_000_u64 {
        fleet.call(node, &key.to_le_bytes(), 1);
        fleet.run_to(fleet.now_ns() + MS);
    }
    fleet.run_to(fleet.now_ns() + S);
    assert_eq!(fleet.grants.len(), 5_000);
    let by_lease = fleet.grants.iter().filter(|grant| grant.by == DecidedBy::Lease).count();
    assert!(by_lease > 4_900, "{by_lease} of 5000 by leases");
}

/// A limit with far more demand than permits is used up, with fewer requests than permits.
#[test]
fn a_busy_lease_is_not_requested_for_each_permit() {
    for (burst, per_second) in [(1_000, 10_000), (1, 100)] {
        let mut fleet = Fleet::new(12);
        let rate = format!("{per_second}/s").parse().unwrap();
        let rule: Rule = Gcra::new(rate, burst).unwrap().into();
        let leases =
            Leases { ttl: Duration::from_nanos(100 * MS), max_permits: 500, ..Leases::default() };
        for _ in 0..2 {
            fleet.join(|builder| builder.limit("limit", rule).mode(Mode::Leased(leases)));
        }
        let start_ns = fleet.now_ns();
        while fleet.now_ns() < start_ns + 4 * S {
            for node in 0..2 {
                fleet.call(node, b"key", 1);
            }
            fleet.run_to(fleet.now_ns() + 50_000);
        }
        let granted = fleet.granted_since(start_ns + S);
        assert!(granted > 3 * per_second * 9 / 10, "{granted} of {} granted", 3 * per_second);
        let requests: u64 = fleet.nodes.iter().map(|member| member.wire.requests()).sum();
        assert!(requests < 4 * 2 * 410, "{requests} requests");
    }
}

/// A caller that wants few permits does not overtake a waiter for more.
#[test]
fn no_call_overtakes_the_waiters() {
    let mut fleet = Fleet::new(13);
    let rule: Rule = SlidingLog::new(100, Duration::from_nanos(S)).into();
    let node = fleet.join(leased(rule, false));
    for _ in 0..40 {
        fleet.call(node, b"key", 1);
        fleet.run_to(fleet.now_ns() + 3 * MS);
    }
    let limiter = &fleet.nodes[node].node;
    assert!(limiter.try_acquire(b"key", 1).at_once().is_ok(), "there is something left");
    let many = limiter.try_acquire(b"key", 19);
    let one = limiter.try_acquire(b"key", 1);
    let (Err(many), Err(one)) = (many.at_once(), one.at_once()) else { panic!("both wait") };
    fleet.run_to(fleet.now_ns() + 20 * MS);
    assert!(many.wait().unwrap().is_granted());
    let one = one.wait().unwrap();
    assert!(one.is_granted(), "{one:?}");
}

/// A flood of keys that are used once does not evict keys in use.
#[test]
fn keys_in_use_are_kept() {
    let mut fleet = Fleet::new(14);
    let leases =
        Leases { ttl: Duration::from_nanos(LEASE_NS), max_permits: UNITS, ..Leases::default() };
    let node = fleet.join(|builder| {
        builder.limit("limit", bucket()).mode(Mode::Leased(leases)).with_max_keys(640)
    });
    let mut waited = 0;
    for step in 0..4_000_u64 {
        let hot = step % 4;
        let deciding = fleet.nodes[node].node.try_acquire(&[b'h', hot.to_le_bytes()[0]], 1);
        waited += u64::from(deciding.at_once().is_err());
        fleet.call(node, &step.to_le_bytes(), 1);
        fleet.run_to(fleet.now_ns() + MS);
    }
    assert!(waited < 12, "{waited} calls of keys in use waited");
}

/// Many simultaneous waiters are served with few requests, in order.
#[test]
fn many_waiters_are_served_with_few_requests() {
    let mut fleet = Fleet::new(15);
    let rule: Rule = SlidingLog::new(1_000, Duration::from_nanos(S)).into();
    let leases =
        Leases { ttl: Duration::from_nanos(100 * MS), max_permits: 300, ..Leases::default() };
    let node = fleet.join(|builder| builder.limit("limit", rule).mode(Mode::Leased(leases)));
    for _ in 0..600 {
        fleet.call(node, b"key", 1);
    }
    fleet.run_to(fleet.now_ns() + 15 * MS);
    assert_eq!(fleet.grants.len(), 600);
    let requests = fleet.nodes[node].wire.requests();
    assert!(requests <= 8, "{requests} requests");
}
