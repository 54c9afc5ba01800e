//! The machine's floors with the cheapest clock there is: the processor's own counter.

use std::hint::black_box;

use quanta::Clock;
use rategate_bench::floors::reading_and_swap;
use rategate_bench::harness::Contender;

pub(crate) use rategate_bench::floors::{add, instant, swap};

/// Reads the processor's counter, unscaled.
pub(crate) fn counter() -> Contender<'static> {
    let clock = Clock::new();
    Contender::new("one counter", move || black_box(clock.raw()) != 0)
}

/// Reads the counter and swaps a word: the least that a grant takes, to know the time and to
/// leave a mark.
pub(crate) fn counter_and_swap() -> Contender<'static> {
    let clock = Clock::new();
    reading_and_swap("one counter and swap", move || clock.raw())
}
