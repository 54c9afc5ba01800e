//! The debug form of each handle, in one line: the limit and its status.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use rategate::distributed::Distributed;
use rategate::pace::{CatchUp, Dispatcher, Throttle};
use rategate::policy::Mode;
use rategate::store::MemoryStore;
use rategate::{
    AllOf, AsyncLimiter, Concurrency, Gcra, Keyed, Limiter, ManualClock, SlidingLog, TwoTimeline,
};

fn bucket(burst: u64) -> Gcra {
    Gcra::new("10/s".parse().unwrap(), burst).unwrap()
}

/// Returns the debug form, which has to be one line.
fn line(shown: &impl Debug) -> String {
    let line = format!("{shown:?}");
    assert!(!line.contains('\n') && line.len() < 300, "{line}");
    line
}

#[test]
fn a_limiter_tells_its_policy_what_remains_and_how_many_wait() {
    let clock = ManualClock::stepped();
    let limiter = AsyncLimiter::with_clock(bucket(3), clock.clone());
    let threads = limiter.limiter().clone();
    let policy = "policy: Gcra { rate: 10/s, burst: 3 }";
    assert_eq!(line(&threads), format!("Limiter {{ {policy}, remaining: 3, waiting: 0 }}"));
    assert!(threads.try_acquire(2).unwrap().is_granted());
    assert_eq!(line(&limiter), format!("AsyncLimiter {{ {policy}, remaining: 1, waiting: 0 }}"));
    // The status is read behind the lock.
    let mut context = Context::from_waker(Waker::noop());
    let mut patient = pin!(limiter.acquire(3));
    assert!(patient.as_mut().poll(&mut context).is_pending());
    assert_eq!(line(&threads), format!("Limiter {{ {policy}, remaining: 0, waiting: 1 }}"));
    threads.close();
    assert!(line(&threads).ends_with("waiting: 0, closed: true }"), "{threads:?}");
}

#[test]
fn a_changed_limit_and_several_are_shown_as_they_are() {
    let limiter = Limiter::with_clock(bucket(5), ManualClock::new());
    limiter.reconfigure(bucket(3)).unwrap();
    assert!(line(&limiter).contains("burst: 3 }, remaining: 3"), "{limiter:?}");
    let log = SlidingLog::new(2, Duration::from_micros(1));
    let both = Limiter::with_clock(AllOf::default().and(log).and(bucket(1)), ManualClock::new());
    let line = line(&both);
    assert!(line.starts_with("Limiter { policy: [SlidingLog { permits: 2"), "{line}");
    assert!(line.ends_with("remaining: 1, waiting: 0 }"), "{line}");
}

/// A limit without a lock-free form is read behind its lock; a lock that is taken is not waited
/// for.
#[test]
fn a_lock_is_not_waited_for() {
    let limiter = Limiter::with_clock(Concurrency::new(4), ManualClock::new());
    let permit = limiter.permit(3).unwrap();
    assert!(line(&limiter).ends_with("remaining: 1, waiting: 0 }"), "{limiter:?}");
    let start = "Permit { permits: 3, released_at: 0ns, policy: Concurrency";
    assert!(line(&permit).starts_with(start), "{permit:?}");
    let shown = limiter.with_limit(|_| line(&limiter));
    assert_eq!(shown, "Limiter { .. }");
}

#[test]
fn what_is_made_of_a_limiter_shows_it() {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(bucket(1), clock.clone());
    let policy = "policy: Gcra { rate: 10/s, burst: 1 }, remaining: 0, waiting: 0 }";
    assert!(limiter.try_acquire(1).unwrap().is_granted());
    let reservation = limiter.reserve(1).unwrap();
    let own = "permits: 1, promised_ns: 100000000";
    assert_eq!(line(&reservation), format!("Reservation {{ {own}, {policy}"));
    drop(reservation);
    let local = limiter.local().unwrap();
    assert_eq!(line(&local), format!("Local {{ held: 0, batch: 1, {policy}"));
    let reserved = AsyncLimiter::from(limiter.clone()).reserve(1).unwrap();
    assert!(line(&reserved).contains(policy), "{reserved:?}");
    drop(reserved);

    let fast =
        Limiter::with_clock(Gcra::new("10000000/s".parse().unwrap(), 100_000).unwrap(), clock);
    let mut local = fast.local().unwrap();
    assert!(local.try_acquire(1).unwrap().is_granted());
    assert!(line(&local).starts_with("Local { held: 499, batch: 500, policy: Gcra {"), "{local:?}");
}

#[test]
fn what_has_no_limiter_tells_its_numbers() {
    let table: Keyed<str, _> =
        Keyed::with_clock(bucket(2), rategate::keyed::Capacity::default(), ManualClock::new());
    assert!(table.try_acquire("me", 1).unwrap().is_granted());
    let start = "Keyed { policy: Gcra { rate: 10/s, burst: 2 }, keys: 1, room: ";
    assert!(line(&table).starts_with(start), "{table:?}");

    let clock = ManualClock::new();
    let mut throttle = Throttle::new("100/s".parse().unwrap(), clock)
        .with_min_sleep(Duration::from_secs(1))
        .with_catch_up(CatchUp::Unbounded);
    throttle.wait().unwrap();
    let start = "Throttle { rate: 100/s, min_sleep: 1s, catch_up: Unbounded, owed: 10ms";
    assert!(line(&throttle).starts_with(start), "{throttle:?}");
    let timeline = TwoTimeline::new("5/s".parse().unwrap(), Mode::Strict, None);
    assert!(line(&timeline).contains("5/s") && line(&timeline).contains("Strict"));

    let store = Arc::new(MemoryStore::new());
    let shared = Distributed::builder(store).limit("all", bucket(2)).build().unwrap();
    let limits = "mode: exact, limits: {\"all\": Bucket(Gcra { rate: 10/s, burst: 2 })}";
    assert!(line(&shared).contains(limits), "{shared:?}");
}

#[test]
fn a_dispatcher_shows_its_limiter_while_its_thread_has_it() {
    let limiter = Limiter::new(bucket(4));
    let dispatcher = Dispatcher::new(limiter.clone(), 8).unwrap();
    let shown = "Dispatcher { policy: Gcra { rate: 10/s, burst: 4 }, remaining: 4, waiting: 0 }";
    assert_eq!(line(&dispatcher), shown);
    drop(limiter);
    assert!(line(&dispatcher).starts_with("Dispatcher { "), "{dispatcher:?}");
}
