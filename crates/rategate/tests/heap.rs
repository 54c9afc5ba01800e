//! What limiters take of the heap: counted by the allocator, and held to what `docs/limits.md` says.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

use std::alloc::System;
use std::hint::black_box;

use rategate::{
    Anchor, AsyncLimiter, Clock, Concurrency, Concurrent, FixedWindow, Gcra, Limiter, Mode,
    SlidingLog, TwoTimeline,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns what `make` leaves on the heap, in bytes, and the value.
fn bytes_of<T>(make: impl FnOnce() -> T) -> (usize, T) {
    let region = Region::new(ALLOCATOR);
    let value = black_box(make());
    let change = region.change();
    (change.bytes_allocated - change.bytes_deallocated, value)
}

/// Returns what a limiter takes that has granted and denied, and nothing else.
fn bytes_of_idle<L: Concurrent, C: Clock>(make: impl FnOnce() -> Limiter<L, C>) -> usize {
    let make = || {
        let limiter = make();
        assert!(limiter.try_acquire(1).unwrap().is_granted());
        let mut tries = (0..10_000).map(|_| limiter.try_acquire(1).unwrap());
        assert!(!tries.all(|tried| tried.is_granted()));
        assert!(!limiter.is_closed() && limiter.stats().is_none());
        limiter
    };
    bytes_of(make).0
}

fn bucket() -> Gcra {
    Gcra::new("10/s".parse().unwrap(), 10).unwrap()
}

fn log(permits: u64) -> SlidingLog {
    SlidingLog::new(permits, 1_000_000_000_000).unwrap()
}

/// One test, because the allocator counts for the whole process.
#[test]
fn idle_limiters_are_small() {
    // What the process has for all limiters.
    drop(Limiter::new(bucket()));
    assert!(bytes_of_idle(|| Limiter::new(bucket())) <= 256);
    let (task, limiter) = bytes_of(|| {
        let limiter = AsyncLimiter::new(bucket());
        assert!(limiter.try_acquire(10).unwrap().is_granted());
        limiter
    });
    assert!(task <= 256, "{task}");
    // What a wait needs comes with the first one, and once.
    let wait = || assert!(limiter.limiter().acquire(1).is_ok());
    let ((first, ()), (second, ())) = (bytes_of(wait), bytes_of(wait));
    assert!((1_000..=2_048).contains(&first) && second == 0, "{first} {second}");

    let concurrency = bytes_of_idle(|| Limiter::new(Concurrency::new(5).unwrap()));
    assert!(concurrency <= 256, "{concurrency}");
    let window = FixedWindow::new(5, 1_000_000_000_000, Anchor::Epoch).unwrap();
    let window = bytes_of_idle(|| Limiter::new(window));
    assert!(window <= 336, "{window}");
    let average = TwoTimeline::new("10/s".parse().unwrap(), Mode::Average, None);
    let average = bytes_of_idle(|| Limiter::new(average));
    assert!(average <= 1_280, "{average}");
    for permits in [1, 10, 1_000] {
        let bytes = bytes_of_idle(|| Limiter::new(log(permits)));
        let most = 768 + 8 * usize::try_from(permits).unwrap().next_power_of_two();
        assert!(bytes <= most, "{permits} permits: {bytes}");
    }
    let both = bytes_of_idle(|| Limiter::all_of([bucket().into(), bucket().into()]));
    assert!(both <= 4_096, "{both}");
}
