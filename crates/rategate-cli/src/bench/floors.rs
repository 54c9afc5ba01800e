//! What the machine itself takes for the steps that no shared limiter can do without.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::harness::Contender;

/// One reading of the system's monotonic clock.
#[must_use]
pub fn instant() -> Contender<'static> {
    Contender::new("one Instant", read_instant)
}

/// One compare-and-swap that succeeds, on a line that all threads share.
#[must_use]
pub fn swap() -> Contender<'static> {
    let line = Line::default();
    Contender::new("one swap", move || line.swap(1))
}

/// One addition, on a line that all threads share.
#[must_use]
pub fn add() -> Contender<'static> {
    let line = Line::default();
    Contender::new("one add", move || line.0.fetch_add(1, Ordering::AcqRel) != u64::MAX)
}

/// What a grant takes at the least: one reading of the clock that `read` reads, then a swap.
#[must_use]
pub fn reading_and_swap(
    name: &str,
    read: impl Fn() -> u64 + Send + Sync + 'static,
) -> Contender<'static> {
    let line = Line::default();
    Contender::new(name, move || line.swap(read() | 1))
}

/// The same with the clock of the standard library.
#[must_use]
pub fn instant_and_swap() -> Contender<'static> {
    reading_and_swap("one Instant and swap", || u64::from(read_instant()))
}

/// Nothing else lives on its lines of the cache, nor on the pair that is fetched along.
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
