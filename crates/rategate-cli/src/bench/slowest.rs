//! The slowest of many tries, each timed by itself: callers with a deadline are served by the worst
//! case, not by the average.

use std::sync::Barrier;
use std::thread;

use rategate::{Clock, MonotonicClock};

use super::engines::{self, Answer, Made};

/// More than any machine has cores for, so that threads are taken off them in the middle of a try.
const THREADS: usize = 50;
const CALLS: usize = 20_000;

/// How long calls took, from before to after, of all threads together.
pub(super) struct Slowest {
    pub(super) by: &'static str,
    pub(super) threads: usize,
    pub(super) calls: usize,
    /// One in ten thousand took longer.
    pub(super) rare_ns: u64,
    pub(super) most_ns: u64,
}

/// What there is to compare with first: nothing at all between two readings of the clock.
pub(super) fn all() -> Made<Vec<Slowest>> {
    let gcra = engines::gcra(Answer::Granted)?;
    let log = engines::log(100, Answer::Granted)?;
    let average = engines::two_timeline(rategate::Mode::Average, Answer::Granted)?;
    Ok(vec![
        timed("nothing", || true),
        timed("gcra", || engines::try_one(&gcra)),
        timed("sliding log of 100", || engines::try_one(&log)),
        timed("two-timeline average", || engines::try_one(&average)),
    ])
}

fn timed(by: &'static str, call: impl Fn() -> bool + Sync) -> Slowest {
    let (clock, start) = (MonotonicClock::new(), Barrier::new(THREADS));
    let one_thread = || {
        let mut took_ns = Vec::with_capacity(CALLS);
        start.wait();
        for _ in 0..CALLS {
            let before_ns = clock.now_ns();
            std::hint::black_box(call());
            took_ns.push(clock.now_ns().saturating_sub(before_ns));
        }
        took_ns
    };
    let mut took_ns: Vec<u64> = thread::scope(|scope| {
        let running: Vec<_> = (0..THREADS).map(|_| scope.spawn(one_thread)).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    took_ns.sort_unstable();
    let calls = took_ns.len();
    let rare = calls.saturating_sub(1).saturating_sub(calls.wrapping_div(10_000));
    let at = |index: usize| took_ns.get(index).copied().unwrap_or(0);
    let (rare_ns, most_ns) = (at(rare), at(calls.saturating_sub(1)));
    Slowest { by, threads: THREADS, calls, rare_ns, most_ns }
}
