//! The heap use of limiters, counted by the allocator and compared with `docs/limits.md`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

use std::alloc::System;
use std::hint::black_box;
use std::time::Duration;

use rategate::policy::{Anchor, LimiterPolicy, Mode};
use rategate::{
    AllOf, AsyncLimiter, Clock, Concurrency, FixedWindow, Gcra, Limiter, ManualClock, SlidingLog,
    TwoTimeline,
};
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
fn bytes_of_idle<P: LimiterPolicy, C: Clock>(make: impl Fn() -> Limiter<P, C>) -> i64 {
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

/// The limiters are in one test, because the allocator counts for the whole process.
#[test]
fn idle_limiters_are_small() {
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

    let concurrency = bytes_of_idle(|| Limiter::new(Concurrency::new(5)));
    assert!(concurrency <= 256, "{concurrency}");
    let window = FixedWindow::new(5, Duration::from_secs(1000), Anchor::Epoch);
    let window = bytes_of_idle(|| Limiter::new(window));
    assert!(window <= 336, "{window}");
    let average = TwoTimeline::new("10/s".parse().unwrap(), Mode::Average, None);
    let average = bytes_of_idle(|| Limiter::new(average));
    assert!(average <= 1_280, "{average}");
    for permits in [1, 10, 1_000] {
        let bytes = bytes_of_idle(|| Limiter::new(log(permits)));
        let max_heap_bytes = 768 + 8 * i64::try_from(permits.next_power_of_two()).unwrap();
        assert!(bytes <= max_heap_bytes, "{permits} permits: {bytes}");
    }
    let both = bytes_of_idle(|| Limiter::new(AllOf::default().and(bucket()).and(bucket())));
    assert!(both <= 4_096, "{both}");
}
