//! The waits for a limiter's starts, with a precision and a record of when the last wake was due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{CancelToken, Precision, Wait, Wake};
use crate::clock::Clock;

/// The distance of wakes below which [`Precision::Auto`] coalesces them.
const CLOSE_NS: u64 = 400_000;

/// The lateness below which a limit is waited for with a last spin, if it makes up for less.
pub(crate) const EARLY_NS: u64 = 60_000;

/// The minimum time between two wakes that are coalesced.
pub(crate) const GATHER_NS: u64 = 1_000_000;

/// Waits with a [`Precision`], for all threads that share a limit.
#[derive(Debug)]
pub(crate) struct Waiter {
    precision: Precision,
    /// The longest delay of a coalesced wake.
    ///
    /// It is [`GATHER_NS`], or less for a limit that cannot make up for that much.
    gather_ns: u64,
    /// `true` if the lateness of a wake is lost to the limit.
    is_early: bool,
    /// The time after its start at which such a wait ends.
    margin_ns: u64,
    /// The instant at which the last wake was due; zero before the first.
    ///
    /// The instant at which it really came is of no use: one late wake would bring the next start
    /// closer, have it coalesced, and that the one after it. This is a hint and orders nothing,
    /// so relaxed suffices.
    last_wake_ns: Arc<AtomicU64>,
}

impl Waiter {
    /// Creates a waiter that coalesces wakes over at most `gather_ns`; with zero, it never does.
    pub(crate) fn new(precision: Precision, gather_ns: u64) -> Self {
        let gather_ns = gather_ns.min(GATHER_NS);
        Self { precision, gather_ns, is_early: false, margin_ns: 0, last_wake_ns: Arc::default() }
    }

    /// Returns this waiter for a limit that makes up for so little that no wake should be late.
    ///
    /// Its waits end `margin_ns` late, so that callers have the time to read their clocks. One
    /// that spins for the sake of the rate is late by an eighth of that.
    pub(crate) fn taking(self, takes: bool, margin_ns: u64) -> Self {
        let margin_ns = if self.precision == Precision::Spin { margin_ns >> 3 } else { margin_ns };
        Self { is_early: takes && self.gather_ns < EARLY_NS, margin_ns, ..self }
    }

    /// Returns a waiter with another precision, for the same limit.
    pub(crate) fn as_to(&self, precision: Precision, gather_ns: u64) -> Self {
        let last_wake_ns = Arc::clone(&self.last_wake_ns);
        Self { last_wake_ns, ..Self::new(precision, gather_ns) }
    }

    /// Blocks until `clock` shows `until_ns` or more, or `cancel` is raised.
    ///
    /// Never ends early; late by `gather_ns` at most, and by the lateness of the clock's own
    /// waits.
    pub(crate) fn wait<C: Clock>(&self, clock: &C, until_ns: u64, cancel: &CancelToken) -> Wake {
        if cancel.is_cancelled() {
            return Wake::Cancelled;
        }
        // An instant that is due needs no wake, and moves no other.
        if clock.now_ns() >= until_ns {
            return Wake::Due;
        }
        let wait = self.planned(until_ns);
        let wake = clock.wait_as(wait, cancel);
        if wake == Wake::Due {
            self.woken(wait.wake_ns());
        }
        wake
    }

    /// Records a wake that was due at `wake_ns`.
    pub(crate) fn woken(&self, wake_ns: u64) {
        self.last_wake_ns.fetch_max(wake_ns, Ordering::Relaxed);
    }

    /// Returns the wait for `until_ns`.
    pub(crate) fn planned(&self, until_ns: u64) -> Wait {
        let last_wake_ns = self.last_wake_ns.load(Ordering::Relaxed);
        // A lone wait, however short, needs no coalescing.
        let close = last_wake_ns > 0 && until_ns.saturating_sub(last_wake_ns) < CLOSE_NS;
        match self.precision {
            // A limit that makes up for less than the lateness of a plain sleep would lose some
            // of its rate.
            Precision::Auto if !close || self.gather_ns < CLOSE_NS => {
                Wait::exactly(until_ns, Precision::Precise).early(self.early())
            }
            Precision::Auto | Precision::Coalesced => self.gathered(until_ns, last_wake_ns),
            exact @ (Precision::Precise | Precision::Spin) => {
                Wait::exactly(until_ns, exact).early(self.early())
            }
        }
    }

    fn early(&self) -> Option<u64> {
        self.is_early.then_some(self.margin_ns)
    }

    fn gathered(&self, until_ns: u64, last_wake_ns: u64) -> Wait {
        let next_ns = match last_wake_ns {
            0 => until_ns,
            last_wake_ns => last_wake_ns.saturating_add(self.gather_ns),
        };
        // Only a clock that was set back leads past the bound.
        Wait::together(until_ns, next_ns.min(until_ns.saturating_add(self.gather_ns)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "a test computes in plain numbers")]

    use std::sync::Mutex;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::clock::{ManualClock, MonotonicClock, SystemClock};

    const ALL: [Precision; 4] =
        [Precision::Auto, Precision::Coalesced, Precision::Precise, Precision::Spin];

    /// A clock that waits as requested, but late, and records its waits.
    #[derive(Default)]
    struct Recorder {
        late_ns: u64,
        now_ns: AtomicU64,
        waits: Mutex<Vec<Wait>>,
    }

    impl Clock for Recorder {
        fn now_ns(&self) -> u64 {
            self.now_ns.load(Ordering::Relaxed)
        }

        fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
            self.wait_as(Wait::plainly(until_ns), cancel)
        }

        fn wait_as(&self, wait: Wait, _cancel: &CancelToken) -> Wake {
            self.now_ns.store(wait.wake_ns() + self.late_ns, Ordering::Relaxed);
            self.waits.lock().unwrap().push(wait);
            Wake::Due
        }
    }

    /// Returns the waits of a loop that starts an operation at each multiple of `every_ns`.
    ///
    /// The loop is busy for `busy_ns` then, and runs for up to a tenth of a second.
    fn waits_of(waiter: &Waiter, every_ns: u64, busy_ns: u64) -> Vec<Wait> {
        late_waits_of(20_000, waiter, every_ns, busy_ns)
    }

    fn late_waits_of(late_ns: u64, waiter: &Waiter, every_ns: u64, busy_ns: u64) -> Vec<Wait> {
        let clock = Recorder { late_ns, ..Recorder::default() };
        for due_ns in (0..100_000_000).step_by(usize::try_from(every_ns).unwrap()) {
            assert_eq!(waiter.wait(&clock, due_ns, &CancelToken::new()), Wake::Due);
            assert!(clock.now_ns() >= due_ns, "never early");
            clock.now_ns.fetch_add(busy_ns, Ordering::Relaxed);
        }
        clock.waits.into_inner().unwrap()
    }

    fn apart_ns(waits: &[Wait]) -> u64 {
        let pairs = waits.windows(2).map(|pair| pair[1].wake_ns() - pair[0].wake_ns());
        pairs.min().unwrap()
    }

    #[test]
    fn exact_waits_wake_for_each_start() {
        for precision in [Precision::Precise, Precision::Spin] {
            let waits = waits_of(&Waiter::new(precision, GATHER_NS), 100_000, 10_000);
            assert_eq!(waits.len(), 999);
            let exact = |wait: &Wait| *wait == Wait::exactly(wait.until_ns(), precision);
            assert!(waits.iter().all(exact));
        }
    }

    /// Wakes are a millisecond apart, whatever the rate, and late by a millisecond at most.
    ///
    /// Starts that became due meanwhile need no wait.
    #[test]
    fn coalesced_wakes_are_a_millisecond_apart() {
        for every_ns in [1_000, 10_000, 500_000] {
            let waiter = Waiter::new(Precision::Coalesced, GATHER_NS);
            let waits = waits_of(&waiter, every_ns, 0);
            assert!(apart_ns(&waits) >= 1_000_000);
            assert!((65..=101).contains(&waits.len()), "{} wakes", waits.len());
            let late_ns = waits.iter().map(|wait| wait.wake_ns() - wait.until_ns()).max().unwrap();
            assert!((400_000..=1_000_000).contains(&late_ns), "{late_ns}");
        }
        let waits = waits_of(&Waiter::new(Precision::Coalesced, GATHER_NS), 2_000_000, 0);
        assert!(waits.iter().all(|wait| wait.wake_ns() == wait.until_ns()), "far apart anyway");
    }

    /// Up to 2000 starts a second are precise, busy loops and lone short waits too.
    ///
    /// From there on wakes are coalesced, and never closer together than 400 us.
    #[test]
    fn auto_is_precise_while_wakes_are_few() {
        let auto = || Waiter::new(Precision::Auto, GATHER_NS);
        for (late_ns, busy_ns) in [(20_000, 0), (20_000, 300_000), (300_000, 0), (490_000, 5_000)] {
            let waits = late_waits_of(late_ns, &auto(), 500_000, busy_ns);
            assert!(waits.iter().all(|wait| wait.precision() == Precision::Precise));
            assert_eq!(waits.len(), 199);
        }
        for every_ns in [1_000, 10_000, 300_000] {
            let waits = waits_of(&auto(), every_ns, every_ns / 2);
            assert!(apart_ns(&waits) >= 400_000);
            assert!(waits.len() <= 250);
        }
        let lone = waits_of(&auto(), 50_000_000, 49_900_000);
        assert!(lone.iter().all(|wait| wait.precision() == Precision::Precise));
    }

    /// A limit that cannot make up for a pause is not made to pause.
    #[test]
    fn nothing_is_gathered_past_the_bound() {
        let waits = waits_of(&Waiter::new(Precision::Auto, 0), 100_000, 0);
        assert!(waits.iter().all(|wait| wait.precision() == Precision::Precise));
        for gather_ns in [0, 50_000] {
            let waits = waits_of(&Waiter::new(Precision::Coalesced, gather_ns), 30_000, 0);
            let late_ns = waits.iter().map(|wait| wait.wake_ns() - wait.until_ns()).max().unwrap();
            assert!(late_ns <= gather_ns);
        }
        let waiter = Waiter::new(Precision::Coalesced, u64::MAX);
        waiter.last_wake_ns.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(waiter.planned(7).wake_ns(), 1_000_007, "a clock that was set back");
    }

    /// A start that is due already needs no wake, so the next is not delayed.
    #[test]
    fn what_is_due_moves_no_wake() {
        let (clock, waiter) = (Recorder::default(), Waiter::new(Precision::Coalesced, GATHER_NS));
        clock.now_ns.store(5_000_000, Ordering::Relaxed);
        assert_eq!(waiter.wait(&clock, 5_000_000, &CancelToken::new()), Wake::Due);
        assert_eq!(waiter.wait(&clock, 5_100_000, &CancelToken::new()), Wake::Due);
        assert_eq!(clock.now_ns(), 5_100_000);
    }

    /// On a clock where waiting costs nothing, all precisions are the same.
    #[test]
    fn virtual_waits_end_at_their_starts() {
        for precision in ALL {
            let (clock, waiter) = (ManualClock::new(), Waiter::new(precision, GATHER_NS));
            for due_ns in (1..5_000).map(|k| k * 1_000) {
                assert_eq!(waiter.wait(&clock, due_ns, &CancelToken::new()), Wake::Due);
                assert_eq!(clock.now_ns(), due_ns);
            }
        }
    }

    /// Waits are never early, and end at once when the token is raised, on the real clocks too.
    #[test]
    fn real_waits_are_never_early_and_can_be_ended() {
        fn check<C: Clock>(clock: &C) {
            for precision in ALL {
                let waiter = Waiter::new(precision, GATHER_NS);
                let begin_ns = clock.now_ns();
                for due_ns in (1..40).map(|k| begin_ns + k * 150_000) {
                    assert_eq!(waiter.wait(clock, due_ns, &CancelToken::new()), Wake::Due);
                    assert!(clock.now_ns() >= due_ns);
                }
                let cancel = CancelToken::new();
                thread::scope(|scope| {
                    let waiting = scope.spawn(|| waiter.wait(clock, u64::MAX, &cancel));
                    thread::sleep(Duration::from_millis(3));
                    cancel.cancel();
                    assert_eq!(waiting.join().unwrap(), Wake::Cancelled);
                });
                assert_eq!(waiter.wait(clock, 0, &cancel), Wake::Cancelled, "before everything");
            }
        }
        check(&MonotonicClock::new());
        check(&SystemClock::new());
    }
}
