//! The machine's own cost of the steps that every shared limiter needs.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::harness::Contender;

/// Measures one reading of the system's monotonic clock.
#[must_use]
pub fn instant() -> Contender<'static> {
    Contender::new("one Instant", read_instant)
}

/// Measures one compare-and-swap that succeeds, on a cache line that all threads share.
#[must_use]
pub fn swap() -> Contender<'static> {
    let line = Line::default();
    Contender::new("one swap", move || line.swap(1))
}

/// Measures one addition, on a cache line that all threads share.
#[must_use]
pub fn add() -> Contender<'static> {
    let line = Line::default();
    Contender::new("one add", move || line.0.fetch_add(1, Ordering::AcqRel) != u64::MAX)
}

/// Measures the minimum cost of a grant: one reading of the clock by `read`, then a swap.
#[must_use]
pub fn reading_and_swap(
    name: &str,
    read: impl Fn() -> u64 + Send + Sync + 'static,
) -> Contender<'static> {
    let line = Line::default();
    Contender::new(name, move || line.swap(read() | 1))
}

/// Measures the minimum cost of a grant with the clock of the standard library.
#[must_use]
pub fn instant_and_swap() -> Contender<'static> {
    reading_and_swap("one Instant and swap", || u64::from(read_instant()))
}

/// A counter alone on its cache lines, including the one that is prefetched with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    /// Adds by compare-and-swap, until that succeeds.
    fn swap(&self, step: u64) -> bool {
        let mut seen = self.0.load(Ordering::Acquire);
        while let Err(newer) = self.0.compare_exchange_weak(
            seen,
            seen.wrapping_add(step),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            seen = newer;
        }
        true
    }
}

fn read_instant() -> bool {
    black_box(Instant::now());
    true
}
