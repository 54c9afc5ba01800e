//! Booking of starts: which waiter is next, and how its start is booked, withdrawn and granted.

use super::seats::{NONE, Waiting};
use super::{Booked, Outcome, Queue, Wakes};
use crate::provisional::Provisional;
use crate::verdict::Refusal;

impl<W, L: Provisional> Queue<W, L> {
    pub(super) fn serve_one(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        wakes: &mut impl Wakes<W>,
    ) -> bool {
        if self.booked.is_empty() && self.book_next(limit, wakes) {
            return true;
        }
        match self.booked.front().copied() {
            Some(Booked { seat, grant }) if grant.start_ns <= now_ns => {
                self.booked.pop_front();
                self.charge(seat);
                // A start in the same nanosecond must not look late to the limit.
                limit.pass_to(grant.start_ns.saturating_sub(1));
                self.end(seat, Outcome::Granted(grant), wakes);
                self.undelivered = self.undelivered.saturating_add(1);
                self.settled_ns = now_ns;
                true
            }
            first => {
                if let Some(Booked { seat, grant }) = first {
                    self.tell_first(seat, Some(grant.start_ns), wakes);
                }
                self.expire_one(limit, now_ns, wakes)
            }
        }
    }

    /// Wakes the head of the queue if it has to check at `look_ns`, sooner than the instant
    /// reported to it.
    ///
    /// Waiters behind it need not know their starts before they are first.
    pub(super) fn tell_first(
        &mut self,
        seat: u32,
        look_ns: Option<u64>,
        wakes: &mut impl Wakes<W>,
    ) {
        let Some(told_ns) = self.told.get(&seat) else { return };
        let is_sooner = match (*told_ns, look_ns) {
            (Some(told_ns), Some(look_ns)) => look_ns < told_ns,
            (None, look_ns) => look_ns.is_some(),
            (Some(_), None) => false,
        };
        if is_sooner && let Some(waiting) = self.seats.at(seat) {
            wakes.moved(&waiting.waiter);
            self.told.remove(&seat);
        }
    }

    /// Ends a wait whose deadline has come.
    ///
    /// Its start has not come, or it would have been granted. So nothing is booked for it that
    /// could have come in time.
    pub(super) fn expire_one(
        &mut self,
        limit: &mut L,
        now_ns: u64,
        wakes: &mut impl Wakes<W>,
    ) -> bool {
        let Some(&(deadline_ns, seat)) = self.by_deadline.first() else { return false };
        if deadline_ns > now_ns {
            return false;
        }
        self.end(seat, Outcome::DeadlinePassed, wakes);
        self.let_nobody_start_before(limit, deadline_ns);
        true
    }

    /// Keeps later waiters from starting in the past after an unbooked waiter has left.
    ///
    /// If that waiter was in the way of all others, they may start from now on, and not since
    /// they joined.
    pub(super) fn let_nobody_start_before(&self, limit: &mut L, now_ns: u64) {
        if self.booked.is_empty() {
            limit.pass_to(now_ns);
        }
    }

    /// Books the next unknown start, or finds that it will never come.
    ///
    /// Returns `true` if there may be another one to book.
    pub(super) fn book_next(&mut self, limit: &mut L, wakes: &mut impl Wakes<W>) -> bool {
        let seat = self.next_to_book();
        let Some(&Waiting { asked_ns, permits, .. }) = self.seats.at(seat) else { return false };
        // A start that only guesses the order of classes ends no wait.
        let by_ns = self.deadlines.get(&seat).filter(|_| self.ahead.is_none());
        let too_late = by_ns.is_some_and(|&by_ns| {
            let opening = limit.opening(limit.clamp(asked_ns), permits);
            opening.is_ok_and(|opening| opening.start_ns > by_ns)
        });
        if too_late {
            self.end(seat, Outcome::DeadlinePassed, wakes);
            return true;
        }
        let promised = limit.promise(asked_ns, permits);
        match promised {
            Ok(grant) => {
                self.seats.set_booked(seat, true);
                if let Some(waiting) = self.seats.at(seat)
                    && let Some(ahead) = &mut self.ahead
                {
                    ahead.charge(waiting.class(), permits);
                }
                self.booked.push_back(Booked { seat, grant });
                true
            }
            Err(Refusal::Held) => false,
            Err(refusal) => {
                self.end(seat, Outcome::Refused(refusal), wakes);
                true
            }
        }
    }

    /// Returns the slot of the next waiter to book.
    pub(super) fn next_to_book(&mut self) -> u32 {
        if let [only] = self.seats.lines() {
            return only.unbooked;
        }
        if self.ahead.is_none()
            && let Some(first) = self.booked.front()
        {
            let mut ahead = self.rounds.clone();
            if let Some(waiting) = self.seats.at(first.seat) {
                ahead.charge(waiting.class(), waiting.permits);
            }
            self.ahead = Some(ahead);
        }
        let seats = &self.seats;
        let head_cost = |class| seats.at(seats.line(class).unbooked).map(|waiting| waiting.permits);
        let rounds = self.ahead.as_mut().unwrap_or(&mut self.rounds);
        let class = rounds.pick(head_cost);
        class.map_or(NONE, |class| seats.line(class).unbooked)
    }

    /// Charges the class of a waiter that starts.
    pub(super) fn charge(&mut self, seat: u32) {
        if self.has_classes()
            && let Some(waiting) = self.seats.at(seat)
        {
            self.rounds.charge(waiting.class(), waiting.permits);
        }
    }

    /// Withdraws the starts that only guessed the order of classes.
    pub(super) fn forget_ahead(&mut self, limit: &mut L) {
        if self.ahead.take().is_some() {
            // None of them has come by the limit's own clock.
            let now_ns = limit.clamp(0);
            while self.booked.len() > 1 {
                self.unbook_last(limit, now_ns);
            }
        }
    }

    /// Withdraws the last booked start.
    pub(super) fn unbook_last(&mut self, limit: &mut L, now_ns: u64) -> bool {
        let Some(Booked { seat, grant }) = self.booked.pop_back() else { return false };
        limit.cancel(now_ns, grant.ticket);
        self.seats.set_booked(seat, false);
        true
    }

    /// Withdraws a waiter's start, if it is booked. Those behind it will be booked anew.
    pub(super) fn unbook_from(&mut self, limit: &mut L, now_ns: u64, seat: u32) {
        self.forget_ahead(limit);
        let is_at = |booked: Option<&Booked>| booked.is_some_and(|booked| booked.seat == seat);
        if is_at(self.booked.back()) {
            self.unbook_last(limit, now_ns);
        } else {
            let keep = usize::from(!is_at(self.booked.front()));
            while self.booked.len() > keep {
                self.unbook_last(limit, now_ns);
            }
        }
    }

    /// Ends the wait of a waiter whose start is not booked any more, and reports it.
    pub(super) fn end(&mut self, seat: u32, outcome: Outcome, wakes: &mut impl Wakes<W>) {
        self.forget_deadline(seat);
        self.forget_head(seat);
        if let Some(waiter) = self.seats.settle(seat, outcome) {
            wakes.settled(waiter);
        }
    }

    /// Removes a waiter from the queue, and frees its slot.
    pub(super) fn free(&mut self, seat: u32) -> Option<W> {
        self.forget_head(seat);
        self.seats.free(seat)
    }

    /// Removes what was known of a waiter as the head of the queue.
    fn forget_head(&mut self, seat: u32) {
        if !self.returning.is_empty() {
            self.returning.retain(|&returning| returning != seat);
        }
        if self.head.is_some_and(|head| head.seat == seat) {
            self.head = None;
        }
        self.told.remove(&seat);
    }

    pub(super) fn forget_deadline(&mut self, seat: u32) {
        if let Some(deadline_ns) = self.deadlines.remove(&seat) {
            self.by_deadline.remove(&(deadline_ns, seat));
        }
    }
}
