//! The state that all clones of a paced client share, and the start of its next request. Time is an
//! argument.

use std::collections::VecDeque;
use std::time::Duration;

use super::hints::ServerHint;

/// The state that all clones of a paced client share.
#[derive(Clone, Debug, Default)]
pub(super) struct PacingState {
    /// The end of the hold. No request starts before it.
    hold_until_ns: u64,
    /// The end of the spreading. Until then starts are `step_ns` apart; later requests are not
    /// delayed.
    spread_until_ns: u64,
    step_ns: u64,
    /// The most recent start.
    last_start_ns: Option<u64>,
    /// The tickets of waiting requests, oldest first.
    waiting: VecDeque<Ticket>,
    next_ticket: u64,
    /// The requests that were sent and have no response: the server may not have counted them yet.
    in_flight: u64,
}

/// The position of a request in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

impl PacingState {
    /// Adds a request behind the waiting ones, unless `max_waiters` wait already.
    pub(super) fn join(&mut self, max_waiters: usize) -> Option<Ticket> {
        if self.waiting.len() >= max_waiters {
            return None;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket = self.next_ticket.saturating_add(1);
        self.waiting.push_back(ticket);
        Some(ticket)
    }

    /// Removes a request that will not start. Requests behind it move up at their next attempt.
    ///
    /// The shorter side of the queue is moved, which takes at most some 2 us with the default
    /// bound.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        if let Ok(index) = self.waiting.binary_search(&ticket) {
            self.waiting.remove(index);
        }
    }

    /// Starts a waiting request at `now_ns`, or returns the instant of the next attempt.
    ///
    /// # Errors
    ///
    /// The instant from which the request may start, as far as known. It is never later than the
    /// reset and the end of the hold.
    pub(super) fn start(&mut self, now_ns: u64, ticket: Ticket) -> Result<(), u64> {
        let ahead = self.waiting.partition_point(|other| *other < ticket);
        let start_ns = self.start_ns(now_ns, ahead);
        if start_ns > now_ns {
            return Err(start_ns);
        }
        // The requests ahead have missed their start. They start at their next attempt.
        self.waiting.drain(..ahead);
        self.leave(ticket);
        self.last_start_ns = Some(now_ns);
        Ok(())
    }

    /// Returns the start of a request with `ahead` requests ahead of it.
    fn start_ns(&self, now_ns: u64, ahead: usize) -> u64 {
        let free_ns = now_ns.max(self.hold_until_ns);
        let Some(last_ns) = self.last_start_ns.filter(|_| now_ns < self.spread_until_ns) else {
            return free_ns;
        };
        let ahead_ns = self.step_ns.saturating_mul(u64::try_from(ahead).unwrap_or(u64::MAX));
        let next_ns = last_ns.saturating_add(self.step_ns).max(self.hold_until_ns);
        free_ns.max(next_ns.saturating_add(ahead_ns).min(self.spread_until_ns))
    }

    /// Withdraws a start at `start_ns` that was not used, unless a later one has followed.
    pub(super) fn take_back(&mut self, start_ns: u64) {
        if self.last_start_ns == Some(start_ns) {
            self.last_start_ns = start_ns.checked_sub(self.step_ns);
        }
    }

    /// Returns `true` if a request may not start now, since a hold may have begun after its start
    /// was booked.
    pub(super) const fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.hold_until_ns
    }

    pub(super) const fn begin(&mut self) {
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// Records that a request has its response, or was dropped.
    pub(super) const fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Applies the hint of a response that arrived at `now_ns`.
    ///
    /// Holds only grow: an older response may arrive later, with older information.
    pub(super) fn take(&mut self, now_ns: u64, hint: ServerHint) {
        match hint {
            ServerHint::Nothing => {}
            ServerHint::Hold(hold) => {
                self.hold_until_ns = self.hold_until_ns.max(now_ns.saturating_add(ns(hold)));
            }
            ServerHint::Spread { remaining, over } => {
                let others = self.in_flight.saturating_sub(1);
                // Gaps between now and the reset, so that the last request does not fall into the
                // next window.
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

    use super::{PacingState, ServerHint, Ticket};

    const S: u64 = 1_000_000_000;

    fn spread(remaining: u64, seconds: u64) -> ServerHint {
        ServerHint::Spread { remaining, over: Duration::from_secs(seconds) }
    }

    fn hold(seconds: u64) -> ServerHint {
        ServerHint::Hold(Duration::from_secs(seconds))
    }

    /// Starts a request that arrives now. Returns the instant of the next attempt if it has to
    /// wait.
    fn ask(pacing: &mut PacingState, now_ns: u64) -> Result<(), u64> {
        let ticket = pacing.join(usize::MAX).unwrap();
        pacing.start(now_ns, ticket)
    }

    /// Adds requests that arrive together. Returns each waiting one with the instant of its next
    /// attempt.
    fn crowd(pacing: &mut PacingState, now_ns: u64, requests: usize) -> Vec<(Ticket, u64)> {
        let mut waiting = Vec::new();
        for _ in 0..requests {
            let ticket = pacing.join(usize::MAX).unwrap();
            if let Err(again_ns) = pacing.start(now_ns, ticket) {
                waiting.push((ticket, again_ns));
            }
        }
        waiting
    }

    fn seconds(waiting: &[(Ticket, u64)]) -> Vec<u64> {
        waiting.iter().map(|(_, again_ns)| again_ns / S).collect()
    }

    #[test]
    fn without_hints_everything_starts_at_once() {
        let mut pacing = PacingState::default();
        assert_eq!([0, 0, 5, 3].map(|now_ns| ask(&mut pacing, now_ns)), [Ok(()); 4]);
    }

    #[test]
    fn a_hold_is_exact_and_only_grows() {
        let mut pacing = PacingState::default();
        pacing.take(S, hold(5));
        pacing.take(S, hold(2));
        assert_eq!(ask(&mut pacing, 2 * S), Err(6 * S));
        assert!(pacing.holds(6 * S - 1) && !pacing.holds(6 * S));
        assert_eq!(ask(&mut pacing, 6 * S), Ok(()));
        pacing.take(u64::MAX, hold(1));
        assert_eq!(ask(&mut pacing, 7 * S), Err(u64::MAX));
    }

    #[test]
    fn what_remains_is_spread_over_the_time_until_the_reset() {
        let mut pacing = PacingState::default();
        assert_eq!(ask(&mut pacing, 0), Ok(()));
        pacing.take(0, spread(4, 5));
        let waiting = crowd(&mut pacing, 0, 4);
        assert_eq!(seconds(&waiting), [1, 2, 3, 4]);
        for (ticket, again_ns) in waiting {
            assert_eq!(pacing.start(again_ns, ticket), Ok(()));
        }
        // After the reset nothing is known, and requests are not delayed.
        assert_eq!([(); 2].map(|()| ask(&mut pacing, 5 * S)), [Ok(()); 2]);
    }

    /// Sends one request after another in a loop, each response stating the remaining requests.
    #[test]
    fn a_loop_that_learns_from_each_response_uses_all_it_has() {
        let mut pacing = PacingState::default();
        let (mut now_ns, mut passed) = (0, 0);
        for remaining in (0..10).rev() {
            let ticket = pacing.join(usize::MAX).unwrap();
            while let Err(again_ns) = pacing.start(now_ns, ticket) {
                now_ns = again_ns;
            }
            pacing.begin();
            passed += u64::from(now_ns < 10 * S);
            let left_ns = (10 * S).saturating_sub(now_ns);
            let hint = match remaining {
                0 => ServerHint::Hold(Duration::from_nanos(left_ns)),
                _ => ServerHint::Spread { remaining, over: Duration::from_nanos(left_ns) },
            };
            pacing.take(now_ns, hint);
            pacing.end();
        }
        assert_eq!(passed, 10);
        assert_eq!(ask(&mut pacing, now_ns), Err(10 * S), "and no sooner than the reset");
    }

    #[test]
    fn requests_in_flight_count_as_used() {
        let mut pacing = PacingState::default();
        for _ in 0..4 {
            assert_eq!(ask(&mut pacing, 0), Ok(()));
            pacing.begin();
        }
        // Four remain, and three other requests may be among them.
        pacing.take(0, spread(4, 10));
        assert_eq!(seconds(&crowd(&mut pacing, 0, 1)), [5]);
        // Possibly none remain: the requests start at the reset.
        pacing.take(0, spread(2, 10));
        assert_eq!(seconds(&crowd(&mut pacing, 0, 2)), [10, 10]);
    }

    /// The reset is the latest start, for any number of waiters.
    #[test]
    fn a_crowd_waits_until_the_reset_and_no_longer() {
        let mut pacing = PacingState::default();
        assert_eq!(ask(&mut pacing, 0), Ok(()));
        pacing.take(0, spread(1, 3600));
        let waiting = crowd(&mut pacing, 0, 100);
        assert_eq!(seconds(&waiting)[..3], [1800, 3600, 3600]);
        assert_eq!(seconds(&waiting)[99], 3600);
        for (ticket, _) in waiting {
            assert_eq!(pacing.start(3600 * S, ticket), Ok(()));
        }
        assert_eq!(ask(&mut pacing, 3600 * S), Ok(()));
    }

    /// Each request that leaves frees its start, in any order of leaving.
    #[test]
    fn requests_that_leave_are_in_the_way_of_none() {
        for is_oldest_first in [true, false] {
            let mut pacing = PacingState::default();
            assert_eq!(ask(&mut pacing, 0), Ok(()));
            pacing.take(0, spread(9, 10));
            let mut waiting = crowd(&mut pacing, 0, 5);
            assert_eq!(seconds(&waiting), [1, 2, 3, 4, 5]);
            if !is_oldest_first {
                waiting.reverse();
            }
            for (ticket, _) in waiting {
                pacing.leave(ticket);
            }
            assert_eq!(seconds(&crowd(&mut pacing, 0, 1)), [1], "{is_oldest_first}");
        }
    }

    /// A request that has moved up does not start together with the one ahead of it.
    #[test]
    fn starts_stay_apart_when_one_in_the_middle_leaves() {
        let mut pacing = PacingState::default();
        assert_eq!(ask(&mut pacing, 0), Ok(()));
        pacing.take(0, spread(9, 10));
        let waiting = crowd(&mut pacing, 0, 3);
        pacing.leave(waiting[0].0);
        let late = crowd(&mut pacing, 0, 1)[0];
        assert_eq!(late.1, 3 * S, "two are ahead");
        assert_eq!(pacing.start(2 * S, waiting[1].0), Ok(()));
        assert_eq!(pacing.start(3 * S, late.0), Err(4 * S), "one is ahead, and due");
        assert_eq!(pacing.start(3 * S, waiting[2].0), Ok(()));
        assert_eq!(pacing.start(4 * S, late.0), Ok(()));
    }

    /// A future that is never polled again delays nothing but its own start.
    #[test]
    fn a_request_that_misses_its_start_is_passed() {
        let mut pacing = PacingState::default();
        assert_eq!(ask(&mut pacing, 0), Ok(()));
        pacing.take(0, spread(9, 10));
        let waiting = crowd(&mut pacing, 0, 3);
        assert_eq!(pacing.start(2 * S, waiting[1].0), Ok(()));
        assert_eq!(pacing.start(3 * S, waiting[2].0), Ok(()));
        assert_eq!(pacing.start(3 * S, waiting[0].0), Err(4 * S), "next, and a step apart");
        assert_eq!(pacing.start(4 * S, waiting[0].0), Ok(()));
    }

    #[test]
    fn a_start_that_was_not_used_is_free_for_the_next() {
        let mut pacing = PacingState::default();
        assert_eq!(ask(&mut pacing, 0), Ok(()));
        pacing.take(0, spread(9, 10));
        assert_eq!(ask(&mut pacing, S), Ok(()));
        pacing.take_back(S);
        assert_eq!(ask(&mut pacing, S), Ok(()));
        pacing.take_back(0);
        assert_eq!(ask(&mut pacing, S), Err(2 * S));
    }
}
