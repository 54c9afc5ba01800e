//! The memory of an idle limiter, counted by the allocator.

use std::alloc::System;
use std::hint::black_box;
use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use rategate::{Gcra, Limiter, Rate};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The number of limiters: what the first one sets up for all is not counted.
const LIMITERS: usize = 1_000;

fn main() {
    let limit = Gcra::new(Rate::per_second(10), 10).expect("a valid limit");
    let quota = Quota::per_second(NonZeroU32::new(10).expect("not zero"));
    let ours = bytes_of(|| {
        let limiter = Limiter::new(limit);
        assert!(limiter.try_acquire(1).is_ok_and(|decision| decision.is_granted()));
        limiter
    });
    let rival = bytes_of(|| {
        let limiter = RateLimiter::direct(quota);
        assert!(limiter.check().is_ok());
        limiter
    });
    let sizes = [size_of::<Limiter<Gcra>>(), size_of::<DefaultDirectRateLimiter>()];
    println!("| {:<39} | {:>9} | {:>9} |", "memory", "ours", "governor");
    println!("|{0:-<41}|{0:-<11}|{0:-<11}|", "");
    println!("| {:<39} | {:>9} | {:>9} |", "size of a limiter, bytes", sizes[0], sizes[1]);
    println!("| {:<39} | {ours:>9} | {rival:>9} |", "its heap after a grant, bytes");
}

/// Returns the bytes that each limiter leaves on the heap.
fn bytes_of<T>(make: impl Fn() -> T) -> usize {
    drop(black_box(make()));
    let mut limiters: Vec<T> = Vec::with_capacity(LIMITERS);
    let region = Region::new(ALLOCATOR);
    limiters.extend((0..LIMITERS).map(|_| make()));
    let stats = region.change();
    drop(black_box(limiters));
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) / LIMITERS
}
