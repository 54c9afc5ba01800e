//! A stopwatch for real starts: a limiter's callers may start no more often than it promises.
//!
//! A start counts at the limiter's own reading of it, or else at the reading of a clock right
//! after the call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::oracle::Grants;
use rategate::{Clock, Grant, MonotonicClock, SlidingLog};

use crate::ns;

/// The maximum of permits in any window, in the log of these tests.
pub const MAX_PERMITS: u64 = 20;
/// The length of the window.
pub const WINDOW_NS: u64 = 50_000_000;

/// The length of a round, and the maximum number of rounds.
const LAP: Duration = Duration::from_millis(280);
const LAPS: usize = 12;

/// Returns the log of these tests.
#[must_use]
pub fn log() -> SlidingLog {
    log_of(1)
}

/// Returns the log of these tests with all numbers of permits multiplied by `permits`.
#[must_use]
pub fn log_of(permits: u64) -> SlidingLog {
    SlidingLog::new(MAX_PERMITS * permits, Duration::from_nanos(WINDOW_NS))
}

/// The starts of a round, by the limiter's reading, or by the caller's right after the call.
#[derive(Debug)]
pub struct Stopwatch {
    clock: MonotonicClock,
    until: Instant,
    released: Mutex<Grants>,
    passed: Mutex<Grants>,
}

impl Stopwatch {
    fn start() -> Self {
        let until = Instant::now() + LAP;
        let (released, passed) = (Mutex::default(), Mutex::default());
        Self { clock: MonotonicClock::new(), until, released, passed }
    }

    /// Returns `true` while callers are to go on.
    pub fn runs(&self) -> bool {
        Instant::now() < self.until
    }

    /// Records a start that has a grant, at the grant's release instant.
    pub fn took(&self, grant: &Grant) {
        locked(&self.released).add(ns(grant.released_at()), grant.permits());
    }

    /// Records a start that has no grant, at the clock's reading right after the call.
    pub fn passed(&self, permits: u64) {
        let now_ns = self.clock.now_ns();
        locked(&self.passed).add(now_ns, permits);
    }
}

fn locked(starts: &Mutex<Grants>) -> MutexGuard<'_, Grants> {
    starts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets callers race for a [log multiplied by `permits`](log_of) in rounds, each with a limiter
/// of its own.
///
/// By the limiter's readings no window may be over. Where only the callers' clock tells, one
/// round in which at most 2 % are over is enough. Between the limiter's reading and the caller's,
/// a thread may lose its processor, on a busy machine in every round, and its start then looks
/// later than it was. A wrapper that passes callers without their permits has no such round. Nor
/// has one that passes them at promised instants: there, 17 % and more are over.
pub fn race(permits: u64, lap: impl Fn(&Arc<Stopwatch>)) {
    let max_permits = MAX_PERMITS * permits;
    let mut seen = Vec::new();
    for _ in 0..LAPS {
        let watch = Arc::new(Stopwatch::start());
        lap(&watch);
        let (released, passed) = (locked(&watch.released), locked(&watch.passed));
        assert_eq!(released.windows_over(WINDOW_NS, max_permits), 0, "by the limiter's readings");
        let all = released.total() + passed.total();
        let windows = u64::try_from(LAP.as_nanos()).unwrap() / WINDOW_NS;
        assert!(
            all >= max_permits * windows / 4,
            "{all} of {max_permits} in each of {windows} windows"
        );
        let over = passed.windows_over(WINDOW_NS, max_permits);
        if over * 50 <= passed.0.len() {
            return;
        }
        seen.push((over, passed.0.len()));
    }
    panic!("too many windows are over in every round; (over, all) of each: {seen:?}");
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::thread;

    use super::*;
    use rategate::Limiter;

    /// The race catches callers that do not wait in every round, and callers that wait for
    /// instants that others have used.
    #[test]
    fn a_wrapper_that_does_not_wait_is_caught() {
        let not_at_all = |watch: &Arc<Stopwatch>| {
            while watch.runs() {
                watch.passed(1);
                thread::sleep(Duration::from_millis(1));
            }
        };
        assert!(catch_unwind(|| race(1, not_at_all)).is_err());
        let for_another = |watch: &Arc<Stopwatch>| {
            let limiters = [Limiter::new(log()), Limiter::new(log())];
            thread::scope(|scope| {
                for limiter in &limiters {
                    scope.spawn(|| {
                        while watch.runs() {
                            watch.took(&limiter.acquire(1).unwrap());
                        }
                    });
                }
            });
        };
        assert!(catch_unwind(|| race(1, for_another)).is_err());
    }
}
