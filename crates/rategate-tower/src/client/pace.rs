//! The state that all clones of a paced client share, and the start of its next request. Time is an
//! argument.

use std::collections::VecDeque;

use super::allowance::{Allowance, Cost, ns};
use super::hints::ServerHints;
use super::hints::read::MAX_LIMITS;
use crate::headers::QuotaUnit;

/// The state that all clones of a paced client share.
#[derive(Clone, Debug, Default)]
pub(super) struct PacingState {
    /// The end of the hold, with its jitter. No request starts before it.
    hold_until_ns: u64,
    /// The end of the hold that the server named, and what is added to it.
    named_until_ns: u64,
    jitter_ns: u64,
    /// The random number of the jitter. All extensions of a hold share it: the latest of several
    /// would be close to the maximum in every client.
    random: u64,
    /// The time after a hold over which the requests that waited for its end start, and the time
    /// from one start to the next, known from the first on.
    release_ns: u64,
    spacing_ns: u64,
    /// The client's copies of the server's limits.
    allowances: Vec<Allowance>,
    /// The most recent start, and the one before it.
    last_start_ns: Option<u64>,
    previous_start_ns: Option<u64>,
    /// The tickets of waiting requests, oldest first.
    waiting: VecDeque<Ticket>,
    next_ticket: u64,
    /// The cost of the requests that have started and have no response: the server may not have
    /// counted them yet.
    in_flight: Cost,
}

/// The position of a request in the order of arrival, and its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    number: u64,
    cost: Cost,
}

#[cfg(test)]
impl Ticket {
    pub(super) const fn cost(self) -> Cost {
        self.cost
    }
}

/// The options of a client that responses are followed with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Following {
    /// The remaining amounts are spread over the time until the reset.
    pub(super) spreads: bool,
    /// The tokens of each request are known.
    pub(super) knows_tokens: bool,
    /// The maximum jitter of a hold. Without one, it is a part of the hold.
    pub(super) jitter_ns: Option<u64>,
    /// The time over which the requests that wait for the end of a hold start.
    pub(super) release_ns: u64,
}

/// The default jitter of a hold: at most a fifth of it, and at most half a minute.
const JITTER_PART: u64 = 5;
const MAX_JITTER_NS: u64 = 30_000_000_000;

impl PacingState {
    /// Adds a request behind the waiting ones, unless `max_waiters` wait already.
    pub(super) fn join(&mut self, cost: Cost, max_waiters: usize) -> Option<Ticket> {
        if self.waiting.len() >= max_waiters {
            return None;
        }
        let ticket = Ticket { number: self.next_ticket, cost };
        self.next_ticket = self.next_ticket.saturating_add(1);
        self.waiting.push_back(ticket);
        Some(ticket)
    }

    /// Removes a request that will not start. Requests behind it move up at their next attempt.
    ///
    /// The shorter side of the queue is moved, which takes at most some 2 us with the default
    /// bound.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        if let Ok(index) = self.waiting.binary_search_by_key(&ticket.number, |it| it.number) {
            self.waiting.remove(index);
        }
    }

    /// Starts a waiting request at `now_ns`, or returns the instant of the next attempt.
    ///
    /// # Errors
    ///
    /// The instant from which the request may start, as far as known.
    pub(super) fn start(&mut self, now_ns: u64, ticket: Ticket) -> Result<(), u64> {
        self.allowances.retain_mut(|allowance| allowance.advance(now_ns));
        let ahead = self.waiting.partition_point(|other| other.number < ticket.number);
        let start_ns = self.start_ns(now_ns, ahead, ticket.cost);
        if start_ns > now_ns {
            return Err(start_ns);
        }
        if self.last_start_ns.is_none_or(|last_ns| last_ns < self.hold_until_ns) {
            self.spacing_ns = self.spacing_ns();
        }
        // The requests ahead have missed their start. They start at their next attempt.
        self.waiting.drain(..ahead);
        self.leave(ticket);
        self.previous_start_ns = self.last_start_ns.replace(now_ns);
        self.in_flight = self.in_flight.plus(ticket.cost);
        Ok(())
    }

    /// Returns the start of a request with `ahead` requests ahead of it.
    fn start_ns(&self, now_ns: u64, ahead: usize, cost: Cost) -> u64 {
        let mut start_ns = now_ns.max(self.released_ns(now_ns, ahead));
        for allowance in &self.allowances {
            let own = cost.amount(allowance.unit()).unwrap_or(0);
            if own > 0 {
                let ahead = self.cost_of_first(ahead, allowance.unit());
                let in_flight = self.in_flight.amount(allowance.unit()).unwrap_or(0);
                let (last_ns, hold_ns) = (self.last_start_ns, self.hold_until_ns);
                let costs = [own, ahead, in_flight];
                start_ns = start_ns.max(allowance.start_ns(costs, last_ns, hold_ns));
            }
        }
        start_ns
    }

    /// Returns the start of a request after the hold: those that wait for its end start evenly, in
    /// their order, over the time of the release. How many they are is known when it ends.
    fn released_ns(&self, now_ns: u64, ahead: usize) -> u64 {
        let hold_ns = self.hold_until_ns;
        if now_ns < hold_ns || now_ns >= hold_ns.saturating_add(self.release_ns) {
            return hold_ns;
        }
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        match self.last_start_ns.filter(|&last_ns| last_ns >= hold_ns) {
            Some(last_ns) => {
                let starts = ahead.saturating_add(1);
                last_ns.saturating_add(self.spacing_ns.saturating_mul(starts))
            }
            None => hold_ns.saturating_add(self.spacing_ns().saturating_mul(ahead)),
        }
    }

    /// Returns the time of the release for each request that waits.
    fn spacing_ns(&self) -> u64 {
        let waiting = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        self.release_ns.checked_div(waiting).unwrap_or(0)
    }

    /// Returns the cost of the requests at the head of the queue.
    fn cost_of_first(&self, requests: usize, unit: QuotaUnit) -> u64 {
        if unit == QuotaUnit::Requests {
            return u64::try_from(requests).unwrap_or(u64::MAX);
        }
        let costs = self.waiting.iter().take(requests).filter_map(|it| it.cost.amount(unit));
        costs.fold(0, u64::saturating_add)
    }

    /// Withdraws a start at `start_ns` that was not used. Its instant is free, unless a later one
    /// has followed.
    pub(super) fn take_back(&mut self, start_ns: u64, ticket: Ticket) {
        if self.last_start_ns == Some(start_ns) {
            self.last_start_ns = self.previous_start_ns;
        }
        self.end(ticket);
    }

    /// Returns `true` if a request may not start now, since a hold may have begun after its start
    /// was booked.
    pub(super) const fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.hold_until_ns
    }

    /// Records that a request has its response, or was not sent.
    pub(super) const fn end(&mut self, ticket: Ticket) {
        self.in_flight = self.in_flight.minus(ticket.cost);
    }

    /// Records that a request will have no response. The server may have counted it.
    pub(super) fn abandon(&mut self, ticket: Ticket) {
        self.count(ticket, &[]);
        self.end(ticket);
    }

    /// Counts a request in the limits that its response does not report.
    fn count(&mut self, ticket: Ticket, reported: &[Allowance]) {
        let is_reported = |known: &Allowance| reported.iter().any(|new| new.is_same_limit(known));
        for allowance in self.allowances.iter_mut().filter(|known| !is_reported(known)) {
            allowance.count(ticket.cost.amount(allowance.unit()).unwrap_or(0));
        }
    }

    /// Applies the hints of the response to a request. The instants are the request's start and the
    /// response's arrival.
    ///
    /// Holds only grow: an older response may arrive later, with older information. `random` is
    /// called once for each hold. Returns the time of a hold that begins or grows.
    pub(super) fn follow(
        &mut self,
        [started_ns, now_ns]: [u64; 2],
        ticket: Ticket,
        hints: &ServerHints,
        following: Following,
        random: impl FnOnce() -> u64,
    ) -> Option<u64> {
        let others = self.in_flight.minus(ticket.cost);
        let mut hold_ns = ns(hints.hold);
        let mut reported = Vec::new();
        for limit in hints.limits.iter().take(MAX_LIMITS) {
            let unit = limit.unit.filter(|_| !limit.counts_tokens() || following.knows_tokens);
            match unit.and_then(|unit| Some((unit, others.amount(unit)?))) {
                Some((unit, others)) => {
                    let instants = [started_ns, now_ns];
                    let spreads = following.spreads;
                    reported.push(Allowance::new(limit, unit, others, instants, spreads));
                }
                // What the next request takes of it is unknown.
                None if limit.remaining == 0 => hold_ns = hold_ns.max(ns(limit.reset)),
                None => {}
            }
        }
        self.allowances.retain_mut(|allowance| allowance.advance(now_ns));
        self.count(ticket, &reported);
        self.report(now_ns, reported);
        self.hold(now_ns, hold_ns, following, random)
    }

    /// Replaces the copies of the limits that are reported. Drops those that are not, after their
    /// reset: the server may have no such limit any more.
    fn report(&mut self, now_ns: u64, reported: Vec<Allowance>) {
        self.allowances.retain(|allowance| {
            let is_reported = reported.iter().any(|other| other.is_same_limit(allowance));
            is_reported || now_ns < allowance.reset_ns()
        });
        for new in reported {
            let is_full = self.allowances.len() >= MAX_LIMITS;
            match self.allowances.iter_mut().find(|known| known.is_same_limit(&new)) {
                Some(known) => known.replace(new),
                None if is_full => {}
                None => self.allowances.push(new),
            }
        }
    }

    fn hold(
        &mut self,
        now_ns: u64,
        hold_ns: u64,
        following: Following,
        random: impl FnOnce() -> u64,
    ) -> Option<u64> {
        let until_ns = now_ns.saturating_add(hold_ns);
        if hold_ns == 0 || until_ns <= self.named_until_ns {
            return None;
        }
        if !self.holds(now_ns) {
            (self.jitter_ns, self.random) = (0, random());
        }
        let max_ns = following.jitter_ns.unwrap_or((hold_ns / JITTER_PART).min(MAX_JITTER_NS));
        self.jitter_ns = self.jitter_ns.max(part(max_ns, self.random));
        self.release_ns = following.release_ns;
        self.named_until_ns = until_ns;
        self.hold_until_ns = until_ns.saturating_add(self.jitter_ns);
        Some(hold_ns)
    }
}

/// Returns a part of `max`, from none of it to all, which is as evenly random as the number is.
fn part(max: u64, random: u64) -> u64 {
    let scaled = u128::from(max).saturating_add(1).saturating_mul(random.into());
    u64::try_from(scaled >> 64).unwrap_or(max)
}

#[cfg(test)]
mod tests;
