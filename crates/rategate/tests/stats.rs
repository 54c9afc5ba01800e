//! The counts of limiters and of tables of keys.

use rategate::stats::{Counts, Detail, KeyStats, MAX_NAME_BYTES, Outcome};
use rategate::wait::{CancelToken, QueueBounds};
use rategate::{
    AcquireError, AllOf, AsyncLimiter, Clock, Concurrency, Gcra, Limiter, ManualClock, SlidingLog,
};
use std::cell::Cell;
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

const S: u64 = 1_000_000_000;
const FAR: Outcome = Outcome::Granted { is_near: false };
const NEAR: Outcome = Outcome::Granted { is_near: true };
const DENIED: Outcome = Outcome::Denied { retry_after: None };

fn log(permits: u64) -> Limiter<ManualClock> {
    let log = SlidingLog::new(permits, Duration::from_nanos(S));
    Limiter::with_clock(log, ManualClock::stepped()).with_stats("log")
}

fn bucket(burst: u64) -> Limiter<ManualClock> {
    let bucket = Gcra::new("1/s".parse().unwrap(), burst).unwrap();
    Limiter::with_clock(bucket, ManualClock::stepped()).with_stats("bucket")
}

fn counts<C: Clock>(limiter: &Limiter<C>) -> Counts {
    limiter.stats().unwrap().counts()
}

/// Returns the granted calls and permits, the near calls, and the denied calls and permits.
fn five<C: Clock>(limiter: &Limiter<C>) -> [u64; 5] {
    let Counts { granted_calls, granted_permits, near_calls, denied_calls, denied_permits, .. } =
        counts(limiter);
    [granted_calls, granted_permits, near_calls, denied_calls, denied_permits]
}

#[test]
fn nothing_is_counted_unless_enabled() {
    let limiter = Limiter::new(SlidingLog::new(1, Duration::from_nanos(S)));
    assert!(limiter.stats().is_none());
    let counted = limiter.clone().with_stats("mine");
    // All clones are one limit, and the first name stays.
    assert_eq!(limiter.clone().with_stats("other").stats().unwrap().name(), "mine");
    let _ = limiter.try_acquire(1).unwrap();
    assert_eq!(five(&counted), [1, 1, 1, 0, 0]);
    let named =
        Limiter::new(SlidingLog::new(1, Duration::from_nanos(S))).with_stats(&"ä".repeat(100));
    assert_eq!(named.stats().unwrap().name(), "ä".repeat(MAX_NAME_BYTES / 2));
}

/// A try on the lock-free state and one through the lock are counted alike.
#[test]
fn tries_are_counted() {
    let concurrency = Concurrency::new(20);
    tries(&Limiter::with_clock(concurrency, ManualClock::stepped()).with_stats("locked"));
    tries(&log(20));
    tries(&bucket(20));
}

fn tries(limiter: &Limiter<ManualClock>) {
    for permits in [1, 17, 0, 1, 3, 1, 1, 21] {
        let _ = limiter.try_acquire(permits);
    }
    // Permits left: 19, 2, 2, 1, denied, 0, denied. Near is less than a tenth of 20, which is
    // less than 2. A call beyond the capacity is no decision of the limit.
    assert_eq!(five(limiter), [5, 20, 2, 2, 4]);
    let _ = (limiter.peek(1).unwrap(), limiter.remaining().unwrap());
    limiter.close();
    assert!(limiter.try_acquire(1).is_err());
    assert_eq!(five(limiter), [5, 20, 2, 2, 4]);
}

/// Exactly a tenth left is not near, and one less is.
#[test]
fn a_tenth_is_of_the_numbers_in_force() {
    for (limit, first_near) in [(1, 0), (9, 0), (10, 0), (11, 1), (100, 9), (101, 10)] {
        let limiter = bucket(limit);
        let far = limit - first_near - 1;
        for call in 0..limit {
            assert_eq!(counts(&limiter).near_calls, call.saturating_sub(far), "{limit}");
            let decision = limiter.try_acquire(1).unwrap();
            let remaining = limit - call - 1;
            let outcome = Outcome::of(&decision, || remaining, limit);
            assert_eq!(outcome, Outcome::granted(remaining, limit));
        }
        assert_eq!(counts(&limiter).near_calls, first_near + 1, "{limit}");
    }
    let limiter = bucket(100);
    let _ = limiter.try_acquire(92).unwrap();
    limiter.reconfigure(Gcra::new("1/s".parse().unwrap(), 51).unwrap()).unwrap();
    let _ = limiter.try_acquire(1).unwrap();
    assert_eq!(counts(&limiter).near_calls, 1, "7 left of 51 are no tenth, 8 of 100 were");
    let _ = limiter.try_acquire(2).unwrap();
    assert_eq!(counts(&limiter).near_calls, 2, "5 of 51");
    let both = Limiter::with_clock(
        AllOf::default()
            .and(Gcra::per_second(1).burst(50))
            .and(SlidingLog::new(20, Duration::from_secs(1))),
        ManualClock::stepped(),
    )
    .with_stats("both");
    let _ = (both.try_acquire(17).unwrap(), both.try_acquire(1).unwrap());
    assert_eq!(counts(&both).near_calls, 0);
    let _ = both.try_acquire(1).unwrap();
    assert_eq!(counts(&both).near_calls, 1, "one of 20");
}

#[test]
fn waits_are_counted_by_how_they_end() {
    let limiter =
        Limiter::with_clock(SlidingLog::new(2, Duration::from_nanos(S)), ManualClock::new());
    let limiter = limiter.with_stats("waits");
    limiter.acquire(2).unwrap();
    limiter.acquire(1).unwrap();
    // Near is judged at the instant of taking: one more could start then.
    assert_eq!(five(&limiter), [2, 3, 1, 0, 0]);
    limiter.acquire(1).unwrap();
    assert!(matches!(
        limiter.acquire_within(1, Duration::from_millis(999)),
        Err(AcquireError::TooLong(_))
    ));
    assert_eq!(five(&limiter), [3, 4, 2, 1, 1]);
    assert!(matches!(limiter.acquire(3), Err(AcquireError::ExceedsCapacity(_))));
    let cancel = CancelToken::new();
    cancel.cancel();
    assert_eq!(limiter.acquire_unless(1, &cancel), Err(AcquireError::Interrupted));
    assert_eq!(five(&limiter), [3, 4, 2, 1, 1]);
    limiter.reserve(2).unwrap().cancel();
    assert!(limiter.reserve_within(2, Duration::from_millis(1)).is_err());
    assert_eq!(five(&limiter), [4, 6, 3, 2, 3]);
    assert!(limiter.try_permit(1).unwrap().is_err());
    assert_eq!(five(&limiter), [4, 6, 3, 3, 4]);
    limiter.close();
    assert_eq!(limiter.acquire(1), Err(AcquireError::Closed));
    assert_eq!(five(&limiter), [4, 6, 3, 3, 4]);
}

#[test]
fn tasks_are_counted_as_threads_are() {
    let limiter = log(1);
    let tasks = AsyncLimiter::from(limiter.clone());
    limiter.bound_queue(QueueBounds::new(1)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let (mut first, mut second) = (pin!(tasks.acquire(1)), pin!(tasks.acquire(1)));
    assert!(first.as_mut().poll(&mut context).is_ready());
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert_eq!(five(&limiter), [1, 1, 1, 0, 0]);
    let full = pin!(tasks.acquire(1)).poll(&mut context);
    assert_eq!(full, Poll::Ready(Err(AcquireError::QueueFull)));
    assert_eq!(five(&limiter), [1, 1, 1, 1, 1]);
    drop(tasks.acquire_owned(1));
    limiter.close();
    assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(Err(AcquireError::Closed)));
    assert_eq!(five(&limiter), [1, 1, 1, 1, 1]);
}

/// Each call of a handle is counted once, from its batch, from a new batch or from the limiter. A
/// wait after a denial is not denied.
#[test]
fn a_handle_tells_of_its_batches() {
    let clock = ManualClock::new();
    let bucket = Gcra::new("1000000000/s".parse().unwrap(), 10_000).unwrap();
    let limiter = Limiter::with_clock(bucket, clock.clone()).with_stats("hand");
    let mut local = limiter.local().unwrap();
    let batch = local.batch();
    assert!(batch > 100);
    let mut taken = 0;
    for call in 0..50 {
        assert!(local.try_acquire(1 + call % 2).unwrap().is_granted());
        taken += 1 + call % 2;
    }
    assert!(local.try_acquire(batch).unwrap().is_granted());
    assert_eq!(five(&limiter)[..2], [1, batch], "the handle has reported nothing yet");
    drop(local);
    assert_eq!(five(&limiter), [51, taken + batch, 0, 0, 0]);

    let limiter =
        Limiter::with_clock(SlidingLog::new(1, Duration::from_nanos(S)), clock).with_stats("small");
    let mut local = limiter.local().unwrap();
    local.acquire(1).unwrap();
    local.acquire(1).unwrap();
    assert!(!local.try_acquire(1).unwrap().is_granted());
    drop(local);
    assert_eq!(five(&limiter), [2, 2, 2, 1, 1]);
}

/// Striped counters lose nothing, with more threads than stripes.
#[test]
fn threads_lose_nothing() {
    let limiter = bucket(1_000_000);
    thread::scope(|scope| {
        for thread in 0..8 {
            let limiter = &limiter;
            scope.spawn(move || {
                for _ in 0..5_000 {
                    let _ = limiter.try_acquire(thread).unwrap();
                }
            });
        }
    });
    assert_eq!(five(&limiter), [40_000, 140_000, 0, 0, 0]);
}

fn names<Id>(ranking: &rategate::stats::Ranking<Id>) -> Vec<(Option<&str>, u64, u64)> {
    let ranked = ranking.ranked.iter();
    ranked.map(|ranked| (ranked.name.as_deref(), ranked.count, ranked.error)).collect()
}

#[test]
fn each_outcome_has_its_ranking() {
    let stats = KeyStats::new("table", Detail::exact());
    for (id, permits, outcome) in [
        (1_u128, 10, FAR),
        (2, 1, NEAR),
        (2, 1, NEAR),
        (3, 7, DENIED),
        (3, 7, DENIED),
        (1, 1, DENIED),
    ] {
        stats.observe_named(id, permits, outcome, || format!("key {id}"));
    }
    let report = stats.report();
    assert_eq!((&*report.limit, report.skipped_calls), ("table", 0));
    assert_eq!(names(&report.denied), [(Some("key 3"), 2, 0), (None, 1, 0)]);
    assert_eq!(names(&report.used), [(None, 10, 0), (Some("key 2"), 2, 0)]);
    assert_eq!(names(&report.near), [(Some("key 2"), 2, 0)]);
    let Counts { granted_calls, granted_permits, near_calls, denied_permits, .. } = report.counts;
    assert_eq!((granted_calls, granted_permits, near_calls, denied_permits), (3, 12, 2, 15));
    let text = report.to_string();
    assert!(text.starts_with("table: granted 3 calls of 12 permits"), "{text}");
    assert!(text.contains("key 3") && text.contains("denied, of 3 calls"), "{text}");
}

/// A name is requested once its key has been seen before, only once, and while no lock is held.
#[test]
fn a_name_is_requested_once() {
    let stats = KeyStats::new("table", Detail::exact());
    let calls = Cell::new(0);
    for _ in 0..5 {
        stats.observe_named(7_u64, 1, FAR, || {
            calls.set(calls.get() + 1);
            // The closure that names a key may use the statistics meanwhile.
            assert_eq!(stats.report().skipped_calls, 0);
            "seven".repeat(100)
        });
    }
    assert_eq!(calls.get(), 1);
    assert_eq!(stats.report().used.ranked[0].name.as_ref().unwrap().len(), MAX_NAME_BYTES);
}

#[test]
fn a_key_that_is_pushed_out_loses_its_name() {
    let stats = KeyStats::new("table", Detail { max_keys: 1, every: 1 });
    stats.observe_named(1_u64, 1, FAR, || "one");
    stats.observe_named(1_u64, 1, FAR, || "one");
    stats.observe_named(2_u64, 1, FAR, || "two");
    assert_eq!(names(&stats.report().used), [(None, 3, 2)]);
    stats.observe_named(2_u64, 1, FAR, || "two");
    assert_eq!(names(&stats.report().used), [(Some("two"), 4, 2)]);
}

#[test]
fn taking_begins_anew() {
    let stats = KeyStats::new("table", Detail::exact());
    stats.observe(1_u64, 1, DENIED);
    assert_eq!(stats.report().denied.total, 1);
    assert_eq!(stats.take().denied.total, 1);
    stats.observe(2_u64, 1, DENIED);
    let report = stats.report();
    assert_eq!((report.denied.total, report.denied.ranked[0].key), (1, 2));
    assert_eq!(report.counts.denied_calls, 2);
}

/// With a sample of one call in 16, the shares of keys that alternate are right to within chance.
#[test]
fn samples_stand_for_all() {
    let stats = KeyStats::new("table", Detail { every: 16, ..Detail::default() });
    for call in 0..160_000_u64 {
        // One key has half of the calls, and 15 keys have the others in rotation.
        let id = if call % 2 == 0 { 0 } else { 1 + call % 16 };
        stats.observe(id, 3, FAR);
    }
    let report = stats.report();
    assert_eq!((report.counts.granted_permits, report.every), (480_000, 16));
    // Five standard deviations: those of 5 000 samples of 48 permits, and of 625.
    let heaviest = &report.used.ranked[0];
    assert_eq!(heaviest.key, 0);
    assert!(heaviest.count.abs_diff(240_000) < 17_000, "{}", heaviest.count);
    assert_eq!(report.used.ranked.len(), 9);
    for ranked in &report.used.ranked[1..] {
        assert!(ranked.count.abs_diff(30_000) < 6_000, "{ranked:?}");
    }
}

/// Observations of many threads add up, together with those that were skipped.
#[test]
fn threads_share_the_rankings() {
    let stats = KeyStats::new("table", Detail { max_keys: 4, every: 1 });
    let start = Barrier::new(6);
    thread::scope(|scope| {
        for thread in 0..6_u64 {
            let (stats, start) = (&stats, &start);
            scope.spawn(move || {
                start.wait();
                for call in 0..2_000 {
                    let id = if call % 3 == 0 { 99 } else { 10 * thread + call % 10 };
                    stats.observe_named(id, 2, DENIED, || id.to_string());
                }
            });
        }
    });
    let report = stats.report();
    assert_eq!(report.counts.denied_calls, 12_000);
    assert_eq!(report.denied.total + report.skipped_calls, 12_000);
    assert!(report.denied.floor <= report.denied.total / 4);
    assert_eq!(report.denied.ranked[0].key, 99, "{report}");
}

#[test]
fn overflows_are_counted() {
    let stats: KeyStats<u64> = KeyStats::new("table", Detail::default());
    (0..5).for_each(|now_ns| stats.overflowed(Duration::from_nanos(now_ns)));
    assert_eq!(stats.counts().overflows, 5);
}

/// A key from outside cannot add lines of its own to a report.
#[test]
fn a_report_escapes_names() {
    let stats = KeyStats::new("ta\nble", Detail::exact());
    stats.observe_named(1_u64, 1, DENIED, || "a\nb\u{1b}[2J");
    stats.observe_named(1_u64, 1, DENIED, || "a\nb\u{1b}[2J");
    let text = stats.report().to_string();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains(r"ta\nble") && text.contains(r"a\nb\u{1b}[2J"), "{text}");
}
