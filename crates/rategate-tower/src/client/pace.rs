//! What a client has learnt, and when its next request may start. Time is an argument.

use std::time::Duration;

use super::learn::Lesson;

/// What all clones of a paced client know.
#[derive(Clone, Debug, Default)]
pub(super) struct Lessons {
    /// Nothing starts before this.
    hold_until_ns: u64,
    /// Until this starts are `step_ns` apart.
    spread_until_ns: u64,
    step_ns: u64,
    /// The newest start that has been given out.
    last_start_ns: Option<u64>,
    /// Requests that have started and not been answered: the server may not have counted them yet.
    in_flight: u64,
}

impl Lessons {
    /// A start for one request: now or later.
    pub(super) fn book(&mut self, now_ns: u64) -> u64 {
        let mut start_ns = now_ns.max(self.hold_until_ns);
        if let (Some(last_ns), true) = (self.last_start_ns, now_ns < self.spread_until_ns) {
            // Those who come late in the line keep their distance, also beyond the reset.
            start_ns = start_ns.max(last_ns.saturating_add(self.step_ns));
        }
        self.last_start_ns = self.last_start_ns.max(Some(start_ns));
        start_ns
    }

    /// Gives back a start that was not used. Only the newest can be: others stand behind the rest.
    pub(super) fn give_back(&mut self, start_ns: u64) {
        if self.last_start_ns == Some(start_ns) {
            self.last_start_ns = start_ns.checked_sub(self.step_ns);
        }
    }

    /// Whether a request may start now: a server may have asked for a hold since its start was booked.
    pub(super) const fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.hold_until_ns
    }

    pub(super) const fn begin(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// A request has been answered, or given up.
    pub(super) const fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Takes a lesson from a response that came at `now_ns`.
    ///
    /// Holds only grow: an older response may come later, and know less.
    pub(super) fn take(&mut self, now_ns: u64, lesson: Lesson) {
        match lesson {
            Lesson::Nothing => {}
            Lesson::Hold(hold) => {
                self.hold_until_ns = self.hold_until_ns.max(now_ns.saturating_add(ns(hold)));
            }
            Lesson::Spread { remaining, over } => {
                let others = self.in_flight.saturating_sub(1);
                // Between now and the reset, so that the last one is not the next window's.
                let gaps = remaining.saturating_sub(others).saturating_add(1);
                self.step_ns = ns(over).div_ceil(gaps);
                self.spread_until_ns = now_ns.saturating_add(ns(over));
            }
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Lesson, Lessons};

    const S: u64 = 1_000_000_000;

    fn spread(remaining: u64, seconds: u64) -> Lesson {
        Lesson::Spread { remaining, over: Duration::from_secs(seconds) }
    }

    fn hold(seconds: u64) -> Lesson {
        Lesson::Hold(Duration::from_secs(seconds))
    }

    #[test]
    fn without_lessons_everything_starts_at_once() {
        let mut lessons = Lessons::default();
        assert_eq!([0, 0, 5, 3].map(|now_ns| lessons.book(now_ns)), [0, 0, 5, 3]);
    }

    #[test]
    fn a_hold_is_exact_and_only_grows() {
        let mut lessons = Lessons::default();
        lessons.take(S, hold(5));
        lessons.take(S, hold(2));
        assert_eq!(lessons.book(2 * S), 6 * S);
        assert!(lessons.holds(6 * S - 1) && !lessons.holds(6 * S));
        assert_eq!(lessons.book(6 * S), 6 * S);
        lessons.take(u64::MAX, hold(1));
        assert_eq!(lessons.book(7 * S), u64::MAX);
    }

    #[test]
    fn what_remains_is_spread_over_the_time_until_the_reset() {
        let mut lessons = Lessons::default();
        assert_eq!(lessons.book(0), 0);
        lessons.take(0, spread(4, 5));
        let starts = [(); 4].map(|()| lessons.book(0));
        assert_eq!(starts, [S, 2 * S, 3 * S, 4 * S]);
        // After the reset nothing is known, and nothing held back.
        assert_eq!([(); 2].map(|()| lessons.book(5 * S)), [5 * S, 5 * S]);
    }

    /// One after another, as a loop does: each response tells what is left after it.
    #[test]
    fn a_loop_that_learns_from_each_response_uses_all_it_has() {
        let mut lessons = Lessons::default();
        let (mut now_ns, mut passed) = (0, 0);
        for remaining in (0..10).rev() {
            now_ns = lessons.book(now_ns);
            lessons.begin();
            passed += u64::from(now_ns < 10 * S);
            let left_ns = (10 * S).saturating_sub(now_ns);
            let lesson = match remaining {
                0 => Lesson::Hold(Duration::from_nanos(left_ns)),
                _ => Lesson::Spread { remaining, over: Duration::from_nanos(left_ns) },
            };
            lessons.take(now_ns, lesson);
            lessons.end();
        }
        assert_eq!(passed, 10);
        assert_eq!(lessons.book(now_ns), 10 * S, "and no sooner than the reset");
    }

    #[test]
    fn requests_in_flight_count_as_used() {
        let mut lessons = Lessons::default();
        for _ in 0..4 {
            let _ = lessons.book(0);
            lessons.begin();
        }
        // Four remain, and three others may be among them.
        lessons.take(0, spread(4, 10));
        assert_eq!(lessons.book(0), 5 * S);
        // None for sure: not before the reset.
        lessons.take(0, spread(2, 10));
        assert_eq!(lessons.book(0), 15 * S);
    }

    #[test]
    fn the_newest_start_can_be_given_back() {
        let mut lessons = Lessons::default();
        let _ = lessons.book(0);
        lessons.take(0, spread(9, 10));
        let starts = [(); 3].map(|()| lessons.book(0));
        assert_eq!(starts, [S, 2 * S, 3 * S]);
        lessons.give_back(3 * S);
        lessons.give_back(S);
        assert_eq!(lessons.book(0), 3 * S);
    }
}
