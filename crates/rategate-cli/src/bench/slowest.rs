//! The slowest of many requests, each timed by itself.
//!
//! Callers with a deadline depend on the worst case, not on the average.

use std::sync::Barrier;
use std::thread;

use rategate::{Clock, MonotonicClock};

use super::engines::{self, Answer, Made};

/// More threads than a machine has cores, so that some are preempted in the middle of a request.
const THREADS: usize = 50;
const CALLS: usize = 20_000;

/// The durations of calls, of all threads together.
pub(super) struct Slowest {
    pub(super) by: &'static str,
    pub(super) threads: usize,
    pub(super) calls: usize,
    /// The duration that one call in ten thousand exceeds.
    pub(super) rare_ns: u64,
    pub(super) max_ns: u64,
}

/// Measures all cases, beginning with the reference: nothing between two readings of the clock.
pub(super) fn all() -> Made<Vec<Slowest>> {
    let gcra = engines::gcra(Answer::Granted)?;
    let log = engines::log(100, Answer::Granted)?;
    let average = engines::two_timeline(rategate::policy::Mode::Average, Answer::Granted)?;
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
    let (rare_ns, max_ns) = (at(rare), at(calls.saturating_sub(1)));
    Slowest { by, threads: THREADS, calls, rare_ns, max_ns }
}
