//! Exact mode, in which the store alone decides.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::SlidingLog;
use rategate::distributed::{DecidedBy, Decision, DecisionFuture, Distributed};
use rategate::error::ExceedsCapacity;
use rategate::error::SetupError;
use rategate::store::{Key, LeaseId, MemoryStore, Rule, Store, StoreError, StoreExt, Verdict};
use rategate::{Concurrency, Gcra};
use rategate_testkit::ns;

use crate::distributed::fleet::Fleet;
use crate::distributed::wire::LinkState;
use crate::distributed::{MS, S, nonzero};

/// S3.17: all nodes share one state, and no node asks another.
#[test]
fn nodes_share_what_the_store_has() {
    let mut fleet = Fleet::new(1);
    for _ in 0..4 {
        fleet.join(|builder| {
            builder.limit("log", SlidingLog::new(50, Duration::from_nanos(100 * MS)))
        });
    }
    let start_ns = fleet.now_ns();
    for step in 0..4_000 {
        let node = fleet.random.usize(..4);
        fleet.call(node, b"key", 1);
        fleet.run_to(start_ns + step * 250_000);
    }
    // On the store's clock the ceiling is exact; on the callers' it moves by a reply's delay.
    assert!(fleet.max_in(98 * MS, |_| true) <= 50);
    assert!(fleet.granted_since(start_ns) >= 9 * 50);
    assert!(fleet.grants.iter().all(|grant| grant.by == DecidedBy::Store));
}

#[test]
fn a_denial_says_when_and_is_right() {
    let mut fleet = Fleet::new(2);
    let node =
        fleet.join(|builder| builder.limit("one", Gcra::new("1/s".parse().unwrap(), 1).unwrap()));
    fleet.call(node, b"key", 1);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    fleet.call(node, b"key", 1);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    let (denied_ns, decision) = fleet.denials.pop().unwrap();
    let Decision::Denied(denial) = decision else { panic!("{decision:?}") };
    fleet.run_to(denied_ns + ns(denial.retry_after.unwrap()));
    fleet.call(node, b"key", 1);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    assert_eq!(fleet.grants.len(), 2);
}

/// A call that is dropped before its reply has used nothing.
#[test]
fn a_dropped_call_takes_nothing() {
    let mut fleet = Fleet::new(3);
    let rate = "1/h".parse().unwrap();
    let node = fleet.join(|builder| builder.limit("one", Gcra::new(rate, 1).unwrap()));
    drop(fleet.nodes[node].node.try_acquire(b"key", 1));
    fleet.run_to(fleet.now_ns() + 10 * MS);
    fleet.call(node, b"key", 1);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    assert_eq!(fleet.grants.len(), 1);
}

/// A call that is dropped after its reply, but before its next poll, has used nothing.
#[test]
fn a_call_dropped_after_its_answer_takes_nothing() {
    let mut fleet = Fleet::new(3);
    let rate = "1/h".parse().unwrap();
    let node = fleet.join(|builder| builder.limit("one", Gcra::new(rate, 1).unwrap()));
    let deciding = fleet.nodes[node].node.try_acquire(b"key", 1);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    drop(deciding);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    fleet.call(node, b"key", 1);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    assert_eq!(fleet.grants.len(), 1);
}

/// Permits held under a name are free at once after a drop, not at the end of the lease.
#[test]
fn a_hold_dropped_after_its_answer_has_ended() {
    let store = Arc::new(MemoryStore::new());
    let rule = Rule::InFlight(Concurrency::new(1), nonzero(3_600 * S));
    let limiter = Distributed::builder(store).limit("one", rule).build().unwrap();
    drop(limiter.hold(b"key", 1, LeaseId([1; 16])));
    let again = limiter.hold(b"key", 1, LeaseId([2; 16])).wait().unwrap();
    assert!(again.is_granted());
    let third = limiter.hold(b"key", 1, LeaseId([3; 16])).wait().unwrap();
    assert!(!third.is_granted(), "a permit that was taken is not returned");
}

/// Permits are renewed as long as their guard lives, even while a third of the renewals is lost.
/// They are free when it is dropped, and nothing of it is left.
#[test]
fn a_guard_keeps_permits_in_flight() {
    let mut fleet = Fleet::new(7);
    let length_ns = 300 * MS;
    let rule = Rule::InFlight(Concurrency::new(1), nonzero(length_ns));
    let node = fleet.join(move |builder| builder.limit("one", rule));
    let hold = |fleet: &mut Fleet, name: u8| {
        let lease_decision = fleet.nodes[node].node.hold(b"key", 1, LeaseId([name; 16]));
        fleet.run_to(fleet.now_ns() + 5 * MS);
        lease_decision.wait().unwrap().is_granted()
    };
    assert!(hold(&mut fleet, 1));
    let guard = fleet.nodes[node].node.keep(b"key", nonzero(1), LeaseId([1; 16]));
    for step in 0..20 {
        fleet.set_all(if step % 3 == 1 {
            LinkState::RequestsLost
        } else {
            LinkState::Open { max_delay_ns: MS }
        });
        fleet.run_to(fleet.now_ns() + 100 * MS);
        fleet.set_all(LinkState::Open { max_delay_ns: MS });
        fleet.run_to(fleet.now_ns() + 5 * MS);
        assert!(!hold(&mut fleet, 2), "after {step} steps");
    }
    drop(guard);
    fleet.run_to(fleet.now_ns() + 5 * MS);
    assert!(hold(&mut fleet, 3));
    let requests = fleet.nodes[node].wire.requests();
    fleet.run_to(fleet.now_ns() + 10 * length_ns);
    assert_eq!(fleet.nodes[node].wire.requests(), requests, "no renewal follows the drop");
    assert!(hold(&mut fleet, 4), "without a guard the lease ends");
}

/// A request to the store itself that is dropped after its reply takes nothing.
#[test]
fn a_request_dropped_after_its_reply_takes_nothing() {
    let store = Arc::new(MemoryStore::new());
    let one = Rule::from(Gcra::new("1/h".parse().unwrap(), 1).unwrap());
    let (plan, key) = (Arc::new(store.plan(&[("one", one)]).unwrap()), Key::from(&b"key"[..]));
    drop(store.decide(&plan, &key, nonzero(1)));
    drop(store.debit(&plan, &key, nonzero(1)));
    let Verdict::Granted(grant) = store.decide(&plan, &key, nonzero(1)).wait().unwrap() else {
        panic!("none of it was taken")
    };
    assert_eq!(grant.remaining, 0);
}

#[test]
fn permits_come_back() {
    let mut fleet = Fleet::new(4);
    let rate = "1/h".parse().unwrap();
    let node = fleet.join(|builder| builder.limit("five", Gcra::new(rate, 5).unwrap()));
    let deciding = fleet.nodes[node].node.try_acquire(b"key", 5);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    let Ok(Decision::Granted(grant)) = deciding.wait() else { panic!("five of five") };
    fleet.nodes[node].node.refund(b"key", nonzero(3), grant);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    for _ in 0..4 {
        fleet.call(node, b"key", 1);
    }
    fleet.run_to(fleet.now_ns() + 10 * MS);
    assert_eq!((fleet.grants.len(), fleet.denials.len()), (3, 1));
}

#[test]
fn permits_in_flight_are_held_by_name() {
    let mut fleet = Fleet::new(5);
    let rule = Rule::InFlight(Concurrency::new(1), nonzero(S));
    for _ in 0..2 {
        fleet.join(|builder| builder.limit("f", rule));
    }
    let (first, second) = (LeaseId([1; 16]), LeaseId([2; 16]));
    let hold = |fleet: &mut Fleet, node: usize, name: LeaseId| {
        let deciding = fleet.nodes[node].node.hold(b"key", 1, name);
        fleet.run_to(fleet.now_ns() + 10 * MS);
        deciding.wait().unwrap().is_granted()
    };
    assert!(hold(&mut fleet, 0, first));
    assert!(!hold(&mut fleet, 1, second));
    // The permit is held for as long as its lease is renewed.
    for _ in 0..3 {
        fleet.run_to(fleet.now_ns() + 700 * MS);
        let renewed = fleet.nodes[0].node.renew(b"key", NonZeroU64::MIN, first);
        fleet.run_to(fleet.now_ns() + 10 * MS);
        assert_eq!(renewed.wait(), Ok(1));
        assert!(!hold(&mut fleet, 1, second));
    }
    // The release takes effect with or without a waiter for its reply.
    for found in [1, 0] {
        let released = fleet.nodes[0].node.release(b"key", NonZeroU64::MIN, first);
        fleet.run_to(fleet.now_ns() + 10 * MS);
        assert_eq!(released.wait(), Ok(found));
    }
    assert!(hold(&mut fleet, 1, second));
    drop(fleet.nodes[1].node.release(b"key", NonZeroU64::MIN, second));
    fleet.run_to(fleet.now_ns() + 10 * MS);
    assert!(hold(&mut fleet, 0, first));
}

#[test]
fn invalid_requests_are_refused() {
    let mut fleet = Fleet::new(6);
    let bucket = Gcra::new("10/s".parse().unwrap(), 5).unwrap();
    fleet.join(|builder| builder.limit("a", bucket));
    fleet.join(|builder| builder.limit("f", Rule::InFlight(Concurrency::new(1), nonzero(S))));
    let now = |deciding: DecisionFuture| deciding.at_once().unwrap();
    let (plain, lease_decision) = (&fleet.nodes[0].node, &fleet.nodes[1].node);
    let too_many = now(plain.try_acquire(b"key", 6));
    assert_eq!(too_many, Err(StoreError::Exceeds(ExceedsCapacity::new(6, 5))));
    assert!(matches!(now(plain.try_acquire(b"key", u64::MAX)), Err(StoreError::Exceeds(_))));
    assert!(matches!(
        now(plain.hold(b"key", 1, LeaseId([0; 16]))),
        Err(StoreError::InvalidRequest(_))
    ));
    let none = now(plain.try_acquire(b"key", 0)).unwrap();
    assert!(none.is_granted() && none.by() == DecidedBy::NoPermits);
    let nameless = lease_decision.try_acquire(b"key", 1);
    fleet.run_to(fleet.now_ns() + 10 * MS);
    assert!(matches!(nameless.wait(), Err(StoreError::InvalidRequest(_))));
}

#[test]
fn nonsense_is_refused_when_it_is_set_up() {
    use rategate::distributed::{Distributed, Leases, Mode, OnUnavailable};
    use rategate::store::MemoryStore;
    use std::sync::Arc;

    let builder = || Distributed::builder(Arc::new(MemoryStore::new()));
    let bucket = Gcra::new("10/s".parse().unwrap(), 5).unwrap();
    let in_flight = Rule::InFlight(Concurrency::new(1), nonzero(S));
    assert_eq!(builder().build().unwrap_err(), SetupError::NoLimit);
    assert!(matches!(
        builder().limit("a b", bucket).build(),
        Err(SetupError::Plan(error)) if error.label.as_deref() == Some("a b")
    ));
    let leases = Leases { ttl: Duration::from_nanos(S), max_permits: 10, ..Leases::default() };
    let guarded =
        builder().limit("a", bucket).mode(Mode::Leased(Leases { guard: true, ..leases })).build();
    assert!(matches!(guarded, Err(SetupError::Guard { .. })), "{guarded:?}");
    assert!(builder().limit("a", bucket).mode(Mode::Leased(leases)).build().is_ok());
    let refused = builder().limit("f", in_flight).mode(Mode::Leased(leases)).build().unwrap_err();
    assert_eq!(refused, SetupError::InFlight { label: "f".to_owned() });
    assert!(
        builder().limit("f", in_flight).on_unavailable(OnUnavailable::local(1)).build().is_err()
    );
}
