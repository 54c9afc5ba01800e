//! The heap use of limiters, counted by the allocator and compared with `docs/limits.md`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

use std::alloc::System;
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Duration;

use rategate::adaptive::{Adaptation, Bounds, Method};
use rategate::error::KeyedError;
use rategate::keyed::{Capacity, Hashing, Overflow};
use rategate::policy::{Anchor, Mode};
use rategate::{
    AdaptiveConcurrency, AdaptiveRate, AllOf, AnyPolicy, AsyncLimiter, Clock, Concurrency,
    FixedWindow, Gcra, Keyed, Limiter, ManualClock, Rate, SlidingLog, SlowStart, TwoTimeline,
    WarmUp,
};
use rategate_core::holds::HoldVerdict;
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Verdict;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The number of times that each is made: few of them include other allocations, such as the
/// counter's calibration.
const TIMES: usize = 15;

/// Returns the bytes that `make` typically leaves on the heap.
fn bytes_of<T>(make: impl Fn() -> T) -> i64 {
    let left = |stats: Stats| {
        let [came, went] = [stats.bytes_allocated, stats.bytes_deallocated].map(i64::try_from);
        came.unwrap() - went.unwrap()
    };
    let mut all: Vec<i64> = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let region = Region::new(ALLOCATOR);
        let value = black_box(make());
        let bytes = left(region.change());
        drop(value);
        all.push(bytes);
    }
    all.sort_unstable();
    all[TIMES / 2]
}

/// Returns the bytes of a limiter that has granted and denied, and nothing else.
fn bytes_of_idle<C: Clock>(make: impl Fn() -> Limiter<C>) -> i64 {
    bytes_of(|| {
        let limiter = make();
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let mut tries = (0..2_000).map(|_| limiter.try_acquire(1).unwrap());
        assert!(!tries.all(|tried| tried.is_granted()));
        assert!(!limiter.is_closed() && limiter.stats().is_none());
        limiter
    })
}

fn bucket() -> Gcra {
    Gcra::new("10/s".parse().unwrap(), 10).unwrap()
}

fn log(permits: u64) -> SlidingLog {
    SlidingLog::new(permits, Duration::from_secs(1000))
}

/// The allocator counts for the whole process, so that one test at a time may count.
static COUNTING: Mutex<()> = Mutex::new(());

#[test]
fn idle_limiters_are_small() {
    let _counting = COUNTING.lock();
    // This creates the parts that all limiters of the process share.
    drop(Limiter::new(bucket()));
    let threads = bytes_of_idle(|| Limiter::new(bucket()));
    assert!(threads <= 256, "{threads}");
    let tasks = bytes_of(|| {
        let limiter = AsyncLimiter::new(bucket());
        assert!(limiter.try_acquire(10).unwrap().is_granted());
        limiter
    });
    assert!(tasks <= 256, "{tasks}");
    // The state for waits is made with the first one, and only once.
    let waited = |waits: usize| {
        bytes_of(move || {
            let limiter = Limiter::with_clock(bucket(), ManualClock::new());
            assert!(limiter.try_acquire(10).unwrap().is_granted());
            (0..waits).for_each(|_| assert!(limiter.acquire(1).is_ok()));
            limiter
        })
    };
    let [none, one, many] = [0, 1, 50].map(waited);
    assert!((1_000..=2_048).contains(&(one - none)) && many == one, "{none} {one} {many}");

    let window = FixedWindow::new(5, Duration::from_secs(1000), Anchor::Epoch);
    let average = TwoTimeline::new("10/s".parse().unwrap(), Mode::Average, None);
    let warm_up = WarmUp::new("10/s".parse().unwrap(), Duration::from_secs(10)).unwrap();
    let slow = SlowStart::new(bucket(), Duration::from_secs(10)).unwrap();
    let most: [(AnyPolicy, i64); 5] = [
        (window.into(), 256),
        (Concurrency::new(5).into(), 528),
        (warm_up.into(), 608),
        (slow.into(), 800),
        (average.into(), 1_152),
    ];
    for (policy, max) in most {
        let bytes = bytes_of_idle(|| Limiter::new(policy));
        assert!(bytes <= max, "{policy:?}: {bytes}");
    }
    for permits in [1, 10, 1_000] {
        let bytes = bytes_of_idle(|| Limiter::new(log(permits)));
        let max_heap_bytes = 640 + 8 * i64::try_from(permits.next_power_of_two()).unwrap();
        assert!(bytes <= max_heap_bytes, "{permits} permits: {bytes}");
    }
    let both = bytes_of_idle(|| Limiter::new(AllOf::default().and(bucket()).and(bucket())));
    assert!(both <= 768, "{both}");
}

/// An operation under a limit that follows measurements allocates nothing, whether it is served,
/// dropped or denied.
#[test]
fn operations_that_are_measured_allocate_nothing() {
    fn operate(limiter: &Limiter<ManualClock>, clock: &ManualClock) {
        for nth in 0..2_000_u64 {
            clock.advance(Duration::from_millis(nth % 40));
            let permits: [_; 3] = std::array::from_fn(|_| limiter.try_permit(1).unwrap().ok());
            clock.advance(Duration::from_millis(1 + nth % 7));
            for permit in permits.into_iter().flatten() {
                if nth % 50 == 0 { permit.dropped() } else { permit.served() }
            }
        }
    }
    fn allocations(policy: impl Into<AnyPolicy>) -> usize {
        let clock = ManualClock::new();
        let limiter = Limiter::with_clock(policy.into(), clock.clone());
        // The first operations make what the limiter needs.
        operate(&limiter, &clock);
        let region = Region::new(ALLOCATOR);
        operate(&limiter, &clock);
        region.change().allocations
    }
    let _counting = COUNTING.lock();
    for method in [Method::Knee, Method::Aimd] {
        let adaptation = Adaptation::new(Bounds::new(1, 2, 100)).with_method(method);
        assert_eq!(allocations(AdaptiveConcurrency::following(adaptation)), 0, "{method:?}");
    }
    let [floor, ceiling] = [1, 100].map(Rate::per_second);
    assert_eq!(allocations(AdaptiveRate::new(floor, ceiling)), 0);
}

/// Returns a limit with as many holds, a grant behind each where there are grants `between`, and
/// with ends in the order of the holds or against it.
fn holding(policy: impl Into<AllOf>, count: u64, between: bool, falling: bool) -> Ledger {
    let mut limit = Ledger::new(policy, 0);
    for number in 0..count {
        let ttl_ns = 600_000_000_000 - if falling { 2_000 * number } else { 0 };
        let held = limit.try_hold(1_000 * number, 1, ttl_ns).unwrap();
        assert!(matches!(held, HoldVerdict::Held(_)));
        if between {
            let granted = limit.try_acquire(1_000 * number + 500, 1).unwrap();
            assert!(matches!(granted, Verdict::Granted(_)));
        }
    }
    limit
}

/// A table of keys is bounded by what their holds count.
#[test]
fn holds_take_no_more_than_they_count() {
    let _counting = COUNTING.lock();
    let bucket = Gcra::new("1000/s".parse().unwrap(), 1_000_000).unwrap();
    let window = FixedWindow::new(1_000_000, Duration::from_secs(3_600), Anchor::Epoch);
    let orders = [(false, false), (false, true), (true, false), (true, true)];
    for count in (1..=150).chain([1_000, 10_000]) {
        for (between, falling) in orders {
            let counted = holding(bucket, count, between, falling).held_bytes();
            let counted = i64::try_from(counted).unwrap();
            let taken = [
                bytes_of(|| holding(bucket, count, between, falling)),
                bytes_of(|| holding(window, count, between, falling)),
                bytes_of(|| holding(Concurrency::new(1_000_000), count, between, falling)),
            ];
            let what = format!("{count} holds: {taken:?}, counted {counted}");
            assert!(taken.iter().all(|taken| (1..=counted).contains(taken)), "{what}");
            // What counts more keeps keys out that would fit.
            assert!(taken.iter().all(|taken| counted <= 2 * taken), "{what}");
        }
    }
}

/// With one hold each, as many keys fit in the memory of a table as `docs/limits.md` says.
#[test]
fn keys_with_holds_fill_the_memory_of_a_table_and_no_more() {
    let _counting = COUNTING.lock();
    let capacity = Capacity::for_keys(1_000_000).or_else(Overflow::Refuse);
    let clock = ManualClock::new();
    let policy = AnyPolicy::from(bucket());
    let keyed = Keyed::<[u8], _>::with_hashing(policy, capacity, Hashing::FloodSafe, clock);
    let hold = |key: u64| keyed.try_hold(&key.to_be_bytes(), 1, Duration::from_secs(600));
    // The slots for all keys are there from the first one on, and are bounded by the keys.
    let mut holds = Vec::with_capacity(100_000);
    holds.push(hold(0));
    let region = Region::new(ALLOCATOR);
    let full_at = (1..100_000).find(|key| {
        holds.push(hold(*key));
        matches!(holds.last(), Some(Err(KeyedError::TableFull)))
    });
    let taken = region.change();
    let taken = taken.bytes_allocated - taken.bytes_deallocated;
    assert!((75_800..76_800).contains(&full_at.unwrap()), "{full_at:?}");
    // What the holds count is no less than what they take, rows included.
    assert!(taken <= 64 << 20, "{taken}");
}
