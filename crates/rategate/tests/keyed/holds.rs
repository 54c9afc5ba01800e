//! Tests of what keys hold without a limiter of their own.

use std::mem::forget;
use std::time::Duration;

use rategate::charge::{Charged, Committed, Debt, Settled};
use rategate::error::KeyedError;
use rategate::keyed::{
    Capacity, Hashing, JointDecision, Overflow, try_hold_all, try_hold_all_with_status,
};
use rategate::policy::Anchor;
use rategate::{AnyPolicy, Concurrency, FixedWindow, Gcra, Keyed, ManualClock, SlidingLog};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

fn keyed(policy: impl Into<AnyPolicy>, clock: &ManualClock) -> Keyed<u64, ManualClock> {
    Keyed::with_clock(policy, Capacity::default(), clock.clone())
}

/// Holds that are decided together return the status that each leaves, as another look finds it.
#[test]
fn holds_of_several_keys_return_the_status_that_they_leave() {
    let clock = ManualClock::new();
    let tokens = keyed(Gcra::per_hour(1000).burst(1000), &clock);
    assert!(tokens.try_acquire(&2, 100).unwrap().is_granted());
    let limiter = tokens.limiter(&3).unwrap();
    let parts = [(1, 400), (2, 300), (3, 200)];
    let estimates = parts.each_ref().map(|(key, permits)| tokens.estimate(key, *permits));
    let JointDecision::Granted(held) = try_hold_all_with_status(&estimates, MINUTE).unwrap() else {
        panic!("all fit");
    };
    for ((key, permits), (hold, status)) in parts.iter().zip(&held) {
        assert_eq!(hold.permits(), *permits);
        // A key with a limiter of its own has none.
        assert_eq!(*status, (*key != 3).then(|| tokens.status(key).unwrap()));
    }
    assert_eq!(limiter.remaining(), Ok(800));
    let more = [tokens.estimate(&1, 1), tokens.estimate(&2, 700)];
    let denied = try_hold_all_with_status(&more, MINUTE).unwrap();
    assert!(matches!(denied, JointDecision::Denied { by: 1, .. }), "{denied:?}");
}

/// Holds that end by themselves are no longer counted among the bytes of the table.
#[test]
fn holds_that_end_by_themselves_leave_no_bytes() {
    let clock = ManualClock::new();
    let tokens = keyed(Gcra::per_hour(1000).burst(1000), &clock);
    let mut empty = None;
    for _ in 0..5 {
        let before = tokens.bytes();
        forget(tokens.try_hold(&1, 400, MINUTE).unwrap().unwrap());
        assert!(tokens.bytes() > before);
        clock.advance(MINUTE);
        assert!(tokens.try_acquire(&2, 1).unwrap().is_granted());
        tokens.retain_recent();
        clock.advance(DAY);
        tokens.retain_recent();
        // The rows that the first round made stay.
        assert_eq!((tokens.bytes(), tokens.len()), (*empty.get_or_insert(tokens.bytes()), 0));
    }
}

/// The end of a hold leaves its key in the tier that it has by now.
#[test]
fn the_end_of_a_hold_leaves_the_tier_of_its_key() {
    let clock = ManualClock::new();
    let is_paid = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let tier = std::sync::Arc::clone(&is_paid);
    let tier_of = move |_: &u64| usize::from(tier.load(std::sync::atomic::Ordering::Relaxed));
    let window = |permits, period| FixedWindow::new(permits, period, Anchor::Epoch);
    let policies = [window(10, 60 * MINUTE), window(1000, MINUTE)];
    let (capacity, hashing) = (Capacity::default(), Hashing::FloodSafe);
    let calls: Keyed<u64, _> =
        Keyed::with_tiers(policies, tier_of, capacity, hashing, clock.clone()).unwrap();
    let hold = calls.try_hold(&1, 5, MINUTE).unwrap().unwrap();
    is_paid.store(false, std::sync::atomic::Ordering::Relaxed);
    assert!(calls.try_acquire(&1, 5).unwrap().is_granted());
    drop(hold);
    clock.advance(2 * MINUTE);
    assert!(calls.remaining(&1).unwrap() <= 5, "the hour has not ended");
}

/// A hold of a key that has been reset ends no other one, even where both end together.
#[test]
fn a_hold_from_before_a_reset_ends_no_other() {
    let clock = ManualClock::new();
    let tokens = keyed(Gcra::per_second(10).burst(10), &clock);
    let before = tokens.try_hold(&1, 5, Duration::MAX).unwrap().unwrap();
    clock.advance(Duration::from_secs(1));
    assert!(tokens.reset(&1).unwrap());
    tokens.retain_recent();
    let after = tokens.try_hold(&1, 10, Duration::MAX).unwrap().unwrap();
    drop(before);
    assert_eq!(tokens.remaining(&1), Ok(0));
    assert_eq!(after.commit(10), Ok(Committed::InTime(Settled::Even)));
}

/// A late commit of operations in flight says what a limiter says.
#[test]
fn a_late_commit_of_operations_in_flight_has_the_status_of_the_limit() {
    let clock = ManualClock::new();
    let flights = keyed(Concurrency::new(2), &clock);
    let hold = flights.try_hold(&1, 1, MINUTE).unwrap().unwrap();
    clock.advance(2 * MINUTE);
    let (committed, status) = hold.commit_with_status(1).unwrap();
    assert_eq!(committed, Committed::Late(Charged::default()));
    assert_eq!((status.remaining, status.capacity), (2, 2));
}

/// Debts of holds end as the table's do, with a limiter of the key and without.
#[test]
fn the_debt_of_a_hold_ends_by_the_terms_of_the_table() {
    for (before, after) in [(false, false), (true, false), (false, true)] {
        let clock = ManualClock::new();
        let window = FixedWindow::new(10, MINUTE, Anchor::Epoch);
        let calls = keyed(window, &clock).with_debt(Debt::CARRIED);
        let _before = before.then(|| calls.limiter(&1).unwrap());
        let hold = calls.try_hold(&1, 5, Duration::from_secs(30)).unwrap().unwrap();
        let _after = after.then(|| calls.limiter(&1).unwrap());
        assert_eq!(
            hold.commit(30),
            Ok(Committed::InTime(Settled::Owed { permits: 25, forgiven: 0 }))
        );
        clock.advance(MINUTE);
        assert_eq!(calls.remaining(&1), Ok(0), "20 of a carried debt, and 10 are paid");
    }
}

/// A status names a debt that is kept as promises, also where some permits fit before them.
#[test]
fn a_status_names_a_debt_in_promises() {
    let clock = ManualClock::new();
    let log = keyed(SlidingLog::new(10, MINUTE), &clock).with_debt(Debt::CARRIED);
    assert!(log.try_acquire(&1, 7).unwrap().is_granted());
    let hold = log.try_hold(&1, 3, MINUTE).unwrap().unwrap();
    clock.advance(Duration::from_secs(10));
    let (charged, _) = log.charge_with_status(&1, 5).unwrap();
    assert_eq!(charged.debt, 5);
    drop(hold);
    let status = log.status(&1).unwrap();
    assert_eq!((status.remaining, status.debt), (3, 5));
    assert_eq!(status.debt_ends_in, Some(Duration::from_secs(50)));
}

/// Holds of several keys find no memory where those of one do not.
#[test]
fn holds_of_several_keys_are_bounded_by_the_bytes() {
    let clock = ManualClock::new();
    let capacity = Capacity { max_bytes: 5_000, overflow: Overflow::Refuse, ..Capacity::default() };
    let tokens: Keyed<u64, _> =
        Keyed::with_clock(Gcra::per_hour(1_000).burst(1_000_000), capacity, clock);
    let mut holds = Vec::new();
    let error = loop {
        match try_hold_all(&[tokens.estimate(&1, 1), tokens.estimate(&2, 1)], MINUTE) {
            Ok(JointDecision::Granted(held)) => holds.push(held),
            Ok(denied) => panic!("{denied:?}"),
            Err(error) => break error,
        }
        assert!(holds.len() < 100, "no bound is met");
    };
    assert_eq!(error.error, KeyedError::TableFull);
    drop(holds);
    assert!(tokens.try_hold(&1, 1, MINUTE).unwrap().is_ok(), "there is memory again");
}
