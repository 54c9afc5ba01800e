//! A ledger as the limit that a queue of waiters drives.

use core::num::NonZeroU64;

use super::Ledger;
use crate::debt::{Charge, Charged, Debt};
use crate::error::CountsInFlight;
use crate::holds::{Holding as _, soonest_after_ends};
use crate::limit::{Limit, charge_as_promises};
use crate::outcome::Outcome;
use crate::policy::{Ended, Policy, Taken};
use crate::provisional::Provisional;
use crate::refund::Refund;
use crate::share::Share;
use crate::verdict::{Grant, Opening, Refusal, Ticket};

impl<P: Policy> Limit for Ledger<P> {
    fn clamp(&self, now_ns: u64) -> u64 {
        self.latest_ns.max(now_ns)
    }

    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        match self.caught_up(now_ns) {
            Some(caught_up) => caught_up.opening(now_ns, permits),
            None => self.opening_requested_at(now_ns, now_ns, permits),
        }
    }

    fn opening_of_try(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        match self.caught_up(now_ns) {
            Some(caught_up) => caught_up.opening_of_try(now_ns, permits),
            None => self.opening_foretold(now_ns, permits),
        }
    }

    fn book(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
        self.pass_to(now_ns);
        self.record(Taken { from_ns: self.latest_ns, start_ns, permits })
    }

    fn soonest_ns(
        &self,
        now_ns: u64,
        at_latest_ns: u64,
        permits: NonZeroU64,
        max_wait_ns: u64,
    ) -> u64 {
        soonest_after_ends(self, now_ns, at_latest_ns, permits, max_wait_ns)
    }

    fn cancel(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.pass_to(now_ns);
        let Some(promise) = self.withdraw(ticket) else { return false };
        self.floor_ns = self.floor_ns.min(promise.floor_ns);
        if promise.serial.saturating_add(1) == self.undone_from {
            // No remaining grant was made after it, so their tickets hold as if it had never been.
            self.undone_from = promise.serial;
        } else {
            self.epoch = self.epoch.and_returned(promise.taken.permits.get());
        }
        true
    }

    fn start_early(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.pass_to(now_ns);
        let Some(promise) = self.withdraw(ticket) else { return false };
        let start_ns = self.latest_ns;
        self.take_started(Taken { start_ns, ..promise.taken });
        self.floor_ns = start_ns;
        self.note_early_start();
        true
    }

    fn end_holds(&mut self, now_ns: u64) {
        if self.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            self.pass_to(now_ns);
        }
    }

    fn pass_to(&mut self, now_ns: u64) {
        let now_ns = self.clamp(now_ns);
        while let Some(end_ns) = self.next_end_ns().filter(|&end_ns| end_ns <= now_ns) {
            self.start_promises(end_ns);
            self.expire_first();
        }
        self.start_promises(now_ns);
    }

    fn refund(&mut self, now_ns: u64, grant: &Grant, permits: u64) -> u64 {
        self.pass_to(now_ns);
        let Ticket { start_ns, serial, rest, epoch, .. } = grant.ticket;
        let has_started = start_ns <= self.latest_ns && serial >= self.first_on_time();
        let permits = permits.min(grant.permits);
        if !has_started || permits == 0 {
            return 0;
        }
        let returned = self.epoch.returned_since(epoch);
        let (now_ns, granted) = (self.latest_ns, grant.permits);
        let refund = Refund { now_ns, start_ns, granted, permits, rest, returned };
        self.apply(refund, Some(serial))
    }

    fn charge(&mut self, now_ns: u64, permits: u64, debt: Debt) -> Result<Charged, CountsInFlight> {
        self.pass_to(now_ns);
        let now_ns = self.latest_ns;
        if self.policy.counts_in_flight() {
            return Err(CountsInFlight);
        }
        let charge = Charge { now_ns, permits, debt };
        let before = self.bucket_with_holds();
        let Some(charged) = self.policy.charge(&mut self.started, charge) else {
            let first = self.next_serial;
            let charged = charge_as_promises(self, now_ns, permits, debt);
            self.note_owed(first);
            return Ok(Charged { debt: self.debt(now_ns), ..charged });
        };
        if charged.booked > 0 {
            self.note_charge(before);
            self.booked = None;
            self.note_grants();
        }
        Ok(charged)
    }

    fn debt(&self, now_ns: u64) -> u64 {
        if let Some(caught_up) = self.caught_up(now_ns) {
            return caught_up.debt(now_ns);
        }
        let now_ns = self.clamp(now_ns);
        let debt = self.policy.debt(&self.started, now_ns);
        let owed = self.owed(now_ns).map(|taken| taken.permits.get());
        owed.fold(debt, u64::saturating_add)
    }

    fn debt_ends_in_ns(&self, now_ns: u64) -> Option<u64> {
        if let Some(caught_up) = self.caught_up(now_ns) {
            return caught_up.debt_ends_in_ns(now_ns);
        }
        let now_ns = self.clamp(now_ns);
        let end_ns = self.policy.debt_ends_ns(&self.started, now_ns)?;
        let last_ns = self.owed(now_ns).next_back().map_or(now_ns, |taken| taken.start_ns);
        Some(end_ns.max(last_ns).saturating_sub(now_ns))
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        if let Some(caught_up) = self.caught_up(now_ns) {
            return caught_up.remaining(now_ns);
        }
        let now_ns = self.clamp(now_ns);
        if self.promises.front().is_some_and(|first| first.taken.start_ns <= now_ns) {
            // What has been promised by now may have kept time from being forfeited.
            let mut caught_up = self.clone();
            caught_up.pass_to(now_ns);
            return caught_up.remaining(now_ns);
        }
        let passes = |permits: u64| {
            NonZeroU64::new(permits).is_none_or(|permits| {
                self.opening(now_ns, permits).is_ok_and(|opening| opening.opens_ns <= now_ns)
            })
        };
        match self.promises.back() {
            _ if self.floor_ns > now_ns => 0,
            None => self.policy.remaining(&self.started, now_ns).saturating_sub(self.held),
            Some(_) => {
                // Between promises: as many permits as still fit.
                let (mut low, mut high) = (0, self.policy.remaining(&self.started, now_ns));
                while low < high {
                    let middle = high.saturating_sub(high.saturating_sub(low).wrapping_div(2));
                    if passes(middle) {
                        low = middle;
                    } else {
                        high = middle.saturating_sub(1);
                    }
                }
                low
            }
        }
    }

    fn slack_ns(&self) -> u64 {
        self.policy.slack_ns()
    }

    fn refill(&mut self, now_ns: u64, permits: u64) -> bool {
        self.pass_to(now_ns);
        let taken = self.policy.refill(&mut self.started, self.latest_ns, permits);
        // The refill may have filled a limit that an earlier ticket says was not full. In a set
        // of limits every one counts the change.
        self.note_change();
        if taken {
            self.booked = None;
        }
        taken
    }

    fn release(&mut self, now_ns: u64, permits: u64) -> bool {
        self.pass_to(now_ns);
        let taken = self.policy.release(&mut self.started, self.latest_ns, permits);
        if taken {
            self.booked = None;
        }
        taken
    }

    fn max_in_flight(&self, now_ns: u64) -> Option<u64> {
        self.policy.max_in_flight(&self.started, self.clamp(now_ns))
    }

    fn room_in_share(&self, now_ns: u64, share: Share) -> Option<u64> {
        let in_share = share.of(self.max_in_flight(now_ns)?);
        let in_flight = self.policy.in_flight(&self.started);
        Some(in_share.saturating_sub(in_flight.saturating_add(self.held)))
    }

    fn release_with_outcome(
        &mut self,
        now_ns: u64,
        grant: &Grant,
        permits: u64,
        outcome: Outcome,
    ) -> bool {
        self.pass_to(now_ns);
        let ended = Ended::of(grant, permits, outcome, self.latest_ns);
        let taken = self.policy.release_with_outcome(&mut self.started, ended);
        if taken {
            self.booked = None;
        }
        taken
    }

    fn abort(&mut self, now_ns: u64, permits: u64) -> bool {
        self.pass_to(now_ns);
        let taken = self.policy.abort(&mut self.started, self.latest_ns, permits);
        if taken {
            // As after a cancel, a call may now fit before a promise.
            self.booked = None;
            self.floor_ns = self.latest_ns;
        }
        taken
    }
}

impl<P: Policy> Provisional for Ledger<P> {
    fn keeps_schedule(&self) -> bool {
        self.policy.keeps_schedule()
    }

    fn has_changed_since(&self, ticket: Ticket) -> bool {
        ticket.serial < self.changed_from
    }

    fn counts_in_flight(&self) -> bool {
        self.policy.counts_in_flight()
    }

    fn follows_outcomes(&self) -> bool {
        self.policy.follows_outcomes()
    }

    fn counts_for_ns(&self) -> u64 {
        let next_ns = || {
            let next = self.opening_from(self.latest_ns, NonZeroU64::MIN).ok();
            next.map_or(0, |next| next.start_ns)
        };
        // A schedule never fully recovers: what it has started keeps the next one from starting.
        let until_ns = self.policy.fresh_at_ns(&self.started).unwrap_or_else(next_ns);
        until_ns.saturating_sub(self.latest_ns)
    }

    fn hold(&mut self, permits: NonZeroU64) {
        self.held = self.held.saturating_add(permits.get());
    }

    fn release_hold(&mut self, permits: NonZeroU64) {
        self.held = self.held.saturating_sub(permits.get());
    }

    fn hold_promise(&mut self, now_ns: u64, ticket: Ticket) -> bool {
        self.pass_to(now_ns);
        let Some(index) = self.index_of(ticket) else { return false };
        if let Some(promise) = self.promises.get_mut(index) {
            promise.is_provisional = true;
        }
        true
    }

    fn not_before(&mut self, start_ns: u64) {
        self.floor_ns = self.floor_ns.max(start_ns);
    }

    fn opening_before_promises(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        self.opening_behind_floor(now_ns, from_ns, 0, permits)
    }

    fn book_before_promises(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
        self.pass_to(now_ns);
        let floor_ns = self.floor_ns;
        // The waiter has waited for the promise: taken in time, it continues from the exact
        // instant that was rounded up.
        let from_ns = self.latest_ns.min(start_ns.saturating_sub(1));
        let ticket = self.record(Taken { from_ns, start_ns, permits });
        self.floor_ns = floor_ns;
        ticket
    }

    fn forecast(&self, now_ns: u64) -> Self {
        let mut copy = self.clone();
        // The forecast assumes that all waiters come on time.
        copy.promises.iter_mut().for_each(|promise| promise.is_provisional = false);
        copy.pass_to(now_ns);
        if let Some(permits) = NonZeroU64::new(copy.held) {
            copy.held = 0;
            let start_ns = copy.latest_ns;
            let taken = Taken { from_ns: start_ns, start_ns, permits };
            copy.take_started(taken);
            copy.booked = None;
        }
        copy
    }
}
