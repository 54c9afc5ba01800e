//! Fallbacks while the store is unavailable: they start within the budget, and one reply ends
//! them.

use std::time::Duration;

use rategate::distributed::{
    Builder, DecidedBy, Decision, Leases, Mode, OnUnavailable, StoreStatus,
};
use rategate::{Gcra, SlidingLog};

use crate::distributed::fleet::Fleet;
use crate::distributed::wire::{LinkState, Wire};
use crate::distributed::{MS, S};

fn limited(builder: Builder<Wire>) -> Builder<Wire> {
    builder.limit("log", SlidingLog::new(100, Duration::from_nanos(S)))
}

/// Makes one call each millisecond for `ms` milliseconds, and lets the rest finish.
fn call_for(fleet: &mut Fleet, node: usize, ms: u64) {
    for _ in 0..ms {
        fleet.call(node, b"key", 1);
        fleet.run_to(fleet.now_ns() + MS);
    }
    fleet.run_to(fleet.now_ns() + 20 * MS);
}

#[test]
fn no_call_passes_unless_configured() {
    for link_state in [LinkState::RequestsLost, LinkState::RepliesLost, LinkState::Refused] {
        let mut fleet = Fleet::new(1);
        let node = fleet.join(limited);
        fleet.set_all(link_state);
        call_for(&mut fleet, node, 500);
        assert_eq!(fleet.grants.len(), 0, "{link_state:?}");
        assert_eq!(fleet.denials.len(), 500);
        // Each denial has a retry time, even before the breaker opens, and never beyond the
        // longest pause.
        for (at_ns, decision) in &fleet.denials {
            let Decision::Denied(denial) = decision else { panic!("{decision:?}") };
            let wait = denial.retry_after;
            assert!(
                wait.is_some_and(|wait| wait <= Duration::from_secs(5)),
                "{link_state:?}, {at_ns}: {denial:?}"
            );
        }
        assert_eq!(fleet.nodes[node].node.health().store_status, StoreStatus::Unavailable);
        assert!(fleet.nodes[node].node.health().last_unavailable.is_some());
        // Five failures in a row open the breaker, then a probe follows now and then. With a
        // silent store each failure takes a budget, in which there is a request each millisecond.
        let requests = fleet.nodes[node].wire.requests();
        let max_granted = if link_state == LinkState::Refused { 12 } else { 5 * 20 + 8 };
        assert!(requests < max_granted, "{link_state:?}: {requests} requests");
    }
}

/// Simultaneous failures count as one, so a store that paused for a moment is tried again at
/// once.
#[test]
fn a_pausing_store_is_retried() {
    let mut fleet = Fleet::new(9);
    let node = fleet.join(limited);
    fleet.set_all(LinkState::RequestsLost);
    for _ in 0..50 {
        fleet.call(node, b"key", 1);
    }
    fleet.run_to(fleet.now_ns() + 21 * MS);
    assert_eq!(fleet.denials.len(), 50);
    fleet.set_all(LinkState::Open { max_delay_ns: MS });
    assert_eq!(fleet.nodes[node].node.health().store_status, StoreStatus::Healthy);
    call_for(&mut fleet, node, 20);
    assert_eq!(fleet.grants.len(), 20);
}

/// No lease is requested from an unavailable store either.
#[test]
fn an_unavailable_store_gets_no_lease_requests() {
    let mut fleet = Fleet::new(7);
    let leases =
        Leases { ttl: Duration::from_nanos(100 * MS), max_permits: 20, ..Leases::default() };
    let node = fleet.join(|builder| limited(builder).mode(Mode::Leased(leases)));
    fleet.set_all(LinkState::Refused);
    call_for(&mut fleet, node, 500);
    assert_eq!(fleet.denials.len(), 500);
    let requests = fleet.nodes[node].wire.requests();
    assert!(requests < 12, "{requests} requests");
}

#[test]
fn every_call_passes_if_configured() {
    let mut fleet = Fleet::new(2);
    let node = fleet.join(|builder| limited(builder).on_unavailable(OnUnavailable::Admit));
    fleet.set_all(LinkState::Refused);
    call_for(&mut fleet, node, 500);
    assert_eq!(fleet.grants.len(), 500);
    assert!(fleet.grants.iter().all(|grant| grant.by == DecidedBy::Fallback));
}

#[test]
fn local_limits_are_partitions_of_the_limit() {
    let mut fleet = Fleet::new(3);
    for _ in 0..3 {
        fleet.join(|builder| limited(builder).on_unavailable(OnUnavailable::local(3)));
    }
    fleet.set_all(LinkState::Refused);
    // An earlier process may have used all of it.
    let start_ns = fleet.now_ns();
    for node in 0..3 {
        fleet.call(node, b"key", 1);
    }
    assert_eq!((fleet.grants.len(), fleet.denials.len()), (0, 3));
    fleet.run_to(start_ns + S + MS);
    for _ in 0..3_000 {
        let node = fleet.random.usize(..3);
        fleet.call(node, b"key", 1);
        fleet.run_to(fleet.now_ns() + MS);
    }
    // Each node has 33.
    assert_eq!(fleet.max_in(S, |_| true), 99);
    assert!(fleet.granted_since(0) >= 2 * 99);
}

#[test]
fn one_reply_ends_the_fallback() {
    let mut fleet = Fleet::new(4);
    let node = fleet.join(limited);
    fleet.set_all(LinkState::RequestsLost);
    call_for(&mut fleet, node, 300);
    fleet.set_all(LinkState::Open { max_delay_ns: MS });
    let back_ns = fleet.now_ns();
    call_for(&mut fleet, node, 1_000);
    assert_eq!(fleet.nodes[node].node.health().store_status, StoreStatus::Healthy);
    let first = fleet.grants.iter().find(|grant| grant.at_ns > back_ns).unwrap();
    // The longest pause by then is 200 ms or 400 ms.
    assert!(first.at_ns < back_ns + 450 * MS, "{} ms", (first.at_ns - back_ns) / MS);
    assert_eq!(fleet.nodes[node].node.counts().changes, 2);
    assert!(fleet.nodes[node].node.counts().fallback.denied >= 300);
}

/// Borrowed permits are used up first, and no longer than their lease.
#[test]
fn borrowed_permits_outlive_the_store_for_one_lease() {
    let mut fleet = Fleet::new(5);
    let rule = Gcra::new("1000/s".parse().unwrap(), 1_000).unwrap();
    let leases =
        Leases { ttl: Duration::from_nanos(100 * MS), max_permits: 100, ..Leases::default() };
    let node = fleet.join(|builder| builder.limit("a", rule).mode(Mode::Leased(leases)));
    for _ in 0..500 {
        fleet.call(node, b"key", 1);
        fleet.run_to(fleet.now_ns() + MS);
    }
    let lost_ns = fleet.now_ns();
    fleet.set_all(LinkState::RequestsLost);
    call_for(&mut fleet, node, 500);
    let last = fleet.grants.last().unwrap();
    assert!(last.at_ns > lost_ns + 10 * MS, "{} ms", (last.at_ns - lost_ns) / MS);
    assert!(last.at_ns < lost_ns + 100 * MS, "{} ms", (last.at_ns - lost_ns) / MS);
}

/// A store that takes over without the last second's state grants nothing until a window has
/// passed. With a quarantine the limit holds over the failover, and without one it does not.
#[test]
fn a_quarantine_keeps_the_limit_over_a_failover() {
    for (is_quarantined, max_expected) in [(true, 100), (false, 200)] {
        let mut fleet = Fleet::new(6);
        // The first start is that of a store that may have lost state too.
        let node = fleet.join(|builder| {
            let builder = limited(builder);
            if is_quarantined { builder.with_quarantine() } else { builder }
        });
        fleet.run_to(fleet.now_ns() + 2 * S);
        call_for(&mut fleet, node, 50);
        let image = fleet.store.image();
        call_for(&mut fleet, node, 200);
        fleet.store.rewind(&image);
        call_for(&mut fleet, node, 400);
        let expected = if is_quarantined { StoreStatus::Quarantined } else { StoreStatus::Healthy };
        assert_eq!(fleet.nodes[node].node.health().store_status, expected);
        call_for(&mut fleet, node, 2_000);
        // On the callers' clock a grant is late by its reply's delay.
        let max_granted = fleet.max_in(S - 2 * MS, |_| true);
        assert!(max_granted <= max_expected, "{max_granted}");
        assert!(is_quarantined || max_granted > 100, "the failover costs nothing: {max_granted}");
        assert_eq!(fleet.nodes[node].node.health().store_status, StoreStatus::Healthy);
    }
}
