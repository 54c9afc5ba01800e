//! Repeated attempts at an operation that may hang, such as connecting or searching.
//!
//! Another attempt begins while one is still pending, so a server that comes back is found soon,
//! however long the network delays the first attempt.

use std::time::{Duration, Instant};

/// The first and the maximum pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// The time after which another attempt begins while one is still pending.
const PARALLEL_AFTER: Duration = Duration::from_millis(200);
/// The time after which another attempt begins after one that found nothing new.
const AFTER_NOTHING_NEW: Duration = Duration::from_millis(400);
/// The maximum number of pending attempts.
const MAX_AT_ONCE: u8 = 5;

/// The schedule of attempts at one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    under_way: u8,
    at: Instant,
    pause: Duration,
}

impl Attempts {
    /// Creates a schedule whose first attempt is due now.
    pub(crate) const fn new(now: Instant) -> Self {
        Self { under_way: 0, at: now, pause: PAUSES.0 }
    }

    /// Returns when the next attempt is due, or `None` if too many are pending.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        (self.under_way < MAX_AT_ONCE).then_some(self.at)
    }

    pub(crate) const fn are_under_way(&self) -> bool {
        self.under_way > 0
    }

    pub(crate) fn begin(&mut self, now: Instant) {
        self.under_way = self.under_way.saturating_add(1);
        self.at = now.checked_add(PARALLEL_AFTER).unwrap_or(now);
    }

    /// Records a failure. The pause before the next attempt doubles up to the maximum.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        let at = now.checked_add(self.pause).unwrap_or(now);
        self.at = if self.are_under_way() { self.at.min(at) } else { at };
        self.pause = self.pause.saturating_mul(2).min(PAUSES.1);
    }

    /// Records a success, which resets the pause.
    pub(crate) fn succeeded(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        self.pause = PAUSES.0;
    }

    /// Records that an attempt found nothing new, and postpones the next one.
    pub(crate) fn found_nothing_new(&mut self, now: Instant) {
        self.at = now.checked_add(AFTER_NOTHING_NEW).unwrap_or(now);
    }

    /// Makes the next attempt due now, because the result of the last one was lost.
    pub(crate) fn again(&mut self, now: Instant) {
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn one_that_hangs_does_not_hold_up_the_next() {
        let now = Instant::now();
        let mut attempts = Attempts::new(now);
        for attempt in 0..5 {
            assert_eq!(attempts.due_at(), Some(now + ms(200) * attempt));
            attempts.begin(now + ms(200) * attempt);
        }
        assert_eq!(attempts.due_at(), None, "five at a time");
        attempts.failed(now + ms(1_000));
        assert_eq!(attempts.due_at(), Some(now + ms(1_000)));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let mut now = Instant::now();
        let mut attempts = Attempts::new(now);
        for pause in [10, 20, 40, 80, 160, 200, 200] {
            attempts.begin(now);
            attempts.failed(now);
            now += ms(pause);
            assert_eq!(attempts.due_at(), Some(now));
        }
        attempts.begin(now);
        attempts.succeeded();
        attempts.again(now);
        attempts.begin(now);
        attempts.failed(now);
        assert_eq!(attempts.due_at(), Some(now + ms(10)));
    }
}
