//! Charges of limits that processes share: what was used already is counted in the store.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::charge::{Charged, Debt};
use rategate::distributed::{Decision, Distributed};
use rategate::error::ErrorKind;
use rategate::policy::Anchor;
use rategate::store::{MemoryStore, Rule, StoreError};
use rategate::{Concurrency, Error, FixedWindow, Gcra, ManualClock, SlidingLog};

use crate::distributed::nonzero;

fn store(clock: &ManualClock) -> Arc<MemoryStore<ManualClock>> {
    Arc::new(MemoryStore::with_clock(clock.clone()))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Two nodes share a limit. What one of them reports is a debt for both.
#[test]
fn a_charge_counts_for_all_nodes() {
    let clock = ManualClock::stepped();
    let store = store(&clock);
    let node = || {
        let builder = Distributed::builder(Arc::clone(&store)).with_clock(clock.clone());
        builder.limit("tokens", Gcra::per_second(1).burst(10)).build().unwrap()
    };
    let (one, other) = (node(), node());
    let reply = one.charge(b"k", nonzero(25)).wait().unwrap();
    assert_eq!(reply.charged, Charged { booked: 25, forgiven: 0, debt: 15 });
    assert_eq!((reply.remaining, reply.retry_after_ns), (0, None), "25 never pass together");
    let Decision::Denied(denial) = other.try_acquire(b"k", 1).wait().unwrap() else {
        panic!("granted in debt")
    };
    assert_eq!((denial.debt, denial.retry_after), (15, Some(seconds(16))));
    clock.advance(Duration::from_secs(16));
    assert!(other.try_acquire(b"k", 1).wait().unwrap().is_granted());
    // Other keys owe nothing.
    assert_eq!(one.try_acquire(b"other", 1).wait().unwrap().remaining(), Some(9));
}

/// A carried debt of a window is paid by later windows, up to the bound of the terms.
#[test]
fn debts_end_by_the_terms_of_the_limiter() {
    let clock = ManualClock::stepped();
    let window = FixedWindow::new(10, Duration::from_secs(60), Anchor::Epoch);
    let limiter = Distributed::builder(store(&clock))
        .with_clock(clock.clone())
        .limit("window", window)
        .with_debt(Debt::CARRIED.at_most(Duration::from_secs(120)))
        .build()
        .unwrap();
    let charged = limiter.charge(b"k", nonzero(50)).wait().unwrap().charged;
    assert_eq!(charged, Charged { booked: 30, forgiven: 20, debt: 20 });
    let Decision::Denied(denial) = limiter.try_acquire_or_charge(b"k", 0).wait().unwrap() else {
        panic!("granted in debt")
    };
    assert_eq!((denial.debt, denial.retry_after), (20, Some(seconds(120))));
    clock.advance(Duration::from_secs(120));
    assert!(limiter.try_acquire_or_charge(b"k", 0).wait().unwrap().is_granted());
    assert!(!limiter.try_acquire(b"k", 1).wait().unwrap().is_granted(), "full, and no debt");
}

/// A request that counts in any case is granted within the limit, and counts beyond it.
#[test]
fn a_request_counts_in_any_case() {
    let clock = ManualClock::stepped();
    let builder = Distributed::builder(store(&clock)).with_clock(clock.clone());
    let log = SlidingLog::new(3, Duration::from_secs(10));
    let limiter = builder.limit("log", log).build().unwrap();
    let ask = |permits| limiter.try_acquire_or_charge(b"k", permits).wait().unwrap();
    assert_eq!(ask(3).remaining(), Some(0));
    clock.advance(Duration::from_secs(4));
    let Decision::Denied(denial) = ask(2) else { panic!("granted in debt") };
    assert_eq!((denial.debt, denial.retry_after), (2, Some(seconds(10))), "until both pass again");
    clock.advance(Duration::from_secs(6));
    assert_eq!(ask(1).remaining(), Some(0));
}

#[test]
fn limits_that_take_no_charge_say_so() {
    let clock = ManualClock::stepped();
    let builder = || Distributed::builder(store(&clock)).with_clock(clock.clone());
    let in_flight = Rule::InFlight(Concurrency::new(3), NonZeroU64::MIN);
    let limiter = builder().limit("c", in_flight).build().unwrap();
    let refused = limiter.charge(b"k", nonzero(1)).wait().unwrap_err();
    assert_eq!(refused, StoreError::CountsInFlight);
    assert_eq!(Error::from(refused.clone()).kind(), ErrorKind::Never);
    assert_eq!(refused.to_string(), rategate::error::ChargeError::CountsInFlight.to_string());
    assert_eq!(limiter.try_acquire_or_charge(b"k", 1).wait(), Err(refused));
    // Beside another limit, only that one is charged.
    let both = builder().limit("c", in_flight).limit("b", Gcra::per_second(1).burst(1));
    let charged = both.build().unwrap().charge(b"k", nonzero(4)).wait().unwrap().charged;
    assert_eq!(charged.debt, 3);
}
