//! Booking of starts: which waiter is next, and how its start is booked, withdrawn and granted.

use super::waiter_slab::{NONE, Waiting};
use super::{Booked, Line, MIN_GRACE_NS, Outcome, Wakes};
use crate::verdict::Refusal;

impl<W> Line<W> {
    pub(super) fn serve_one(&mut self, now_ns: u64, wakes: &mut impl Wakes<W>) -> bool {
        if self.forfeit_overdue(now_ns) || (self.booked.is_empty() && self.book_next(wakes)) {
            return true;
        }
        match self.booked.front().copied() {
            Some(Booked { slot, grant }) if grant.start_ns <= now_ns => {
                self.booked.pop_front();
                self.charge(slot);
                // A start in the same nanosecond must not look late to the limit.
                self.limit.pass_to(grant.start_ns.saturating_sub(1));
                self.end(slot, Outcome::Granted(grant), wakes);
                self.undelivered = self.undelivered.saturating_add(1);
                self.settled_ns = now_ns;
                true
            }
            first => {
                if let Some(Booked { slot, grant }) = first {
                    self.notify_first(slot, Some(grant.start_ns), wakes);
                }
                self.expire(now_ns, wakes)
            }
        }
    }

    /// Withdraws all booked starts if the first lies so far back that a new caller could not catch
    /// up on it, nor the time by which any wake is late. Returns `true` if it does.
    ///
    /// They are booked anew from `now_ns` on, so what lies too far back is lost to all of them.
    fn forfeit_overdue(&mut self, now_ns: u64) -> bool {
        let by_ns = now_ns.saturating_sub(MIN_GRACE_NS);
        let first = self.booked.front().map(|first| first.grant.start_ns);
        let is_lost = first.is_some_and(|start_ns| self.bookings().forfeits(start_ns, by_ns));
        if self.promises_instants || !is_lost {
            return false;
        }
        self.ahead = None;
        // None of them has come by the limit's own clock.
        let known_ns = self.bookings().clamp(0);
        while self.unbook_last(known_ns) {}
        self.bookings().pass_to(now_ns);
        true
    }

    /// Wakes the head of the queue if it has to check at `check_ns`, sooner than the instant
    /// reported to it.
    ///
    /// Waiters behind it need not know their starts before they are first.
    pub(super) fn notify_first(
        &mut self,
        slot: u32,
        check_ns: Option<u64>,
        wakes: &mut impl Wakes<W>,
    ) {
        let Some(reported_ns) = self.reported_starts.get(&slot) else { return };
        let is_sooner = match (*reported_ns, check_ns) {
            (Some(reported_ns), Some(check_ns)) => check_ns < reported_ns,
            (None, check_ns) => check_ns.is_some(),
            (Some(_), None) => false,
        };
        if is_sooner && let Some(waiting) = self.waiter_slab.at(slot) {
            wakes.moved(&waiting.waiter);
            self.reported_starts.remove(&slot);
        }
    }

    /// Ends a wait whose deadline has come. Returns `true` if there may be more to do.
    ///
    /// Its start has not come, or it would have been granted. So nothing is booked for it on a
    /// schedule that could have come in time.
    pub(super) fn expire(&mut self, now_ns: u64, wakes: &mut impl Wakes<W>) -> bool {
        let Some(&(deadline_ns, slot)) = self.by_deadline.first() else { return false };
        if deadline_ns > now_ns {
            return false;
        }
        let takes = self.takes();
        if takes {
            self.note_leaving(slot);
        }
        self.end(slot, Outcome::DeadlinePassed, wakes);
        if !takes {
            self.block_starts_before(deadline_ns);
        }
        true
    }

    /// Keeps later waiters from starting in the past after an unbooked waiter has left.
    ///
    /// If that waiter was in the way of all others, they may start from now on, and not since
    /// they joined.
    pub(super) fn block_starts_before(&mut self, now_ns: u64) {
        if self.booked.is_empty() {
            self.limit.pass_to(now_ns);
        }
    }

    /// Books the next unknown start, or finds that it will never come.
    ///
    /// Returns `true` if there may be another one to book.
    pub(super) fn book_next(&mut self, wakes: &mut impl Wakes<W>) -> bool {
        let slot = self.next_to_book();
        let Some(&Waiting { requested_ns, permits, .. }) = self.waiter_slab.at(slot) else {
            return false;
        };
        if self.forfeit_overdue(requested_ns) {
            return true;
        }
        // A start that only guesses the order of classes ends no wait.
        let by_ns = self.deadlines.get(&slot).filter(|_| self.ahead.is_none()).copied();
        let limit = self.bookings();
        let too_late = by_ns.is_some_and(|by_ns| {
            let opening = limit.opening(limit.clamp(requested_ns), permits);
            opening.is_ok_and(|opening| opening.start_ns > by_ns)
        });
        if too_late {
            self.end(slot, Outcome::DeadlinePassed, wakes);
            return true;
        }
        match self.bookings().promise(requested_ns, permits) {
            Ok(grant) => {
                self.waiter_slab.set_booked(slot, true);
                if let Some(waiting) = self.waiter_slab.at(slot)
                    && let Some(ahead) = &mut self.ahead
                {
                    ahead.charge(waiting.class(), permits);
                }
                self.booked.push_back(Booked { slot, grant });
                true
            }
            Err(Refusal::Held) => false,
            Err(refusal) => {
                self.end(slot, Outcome::Refused(refusal), wakes);
                true
            }
        }
    }

    /// Returns the slot of the next waiter to book.
    pub(super) fn next_to_book(&mut self) -> u32 {
        if let [only] = self.waiter_slab.class_queues() {
            return only.unbooked;
        }
        if self.ahead.is_none()
            && let Some(first) = self.booked.front()
        {
            let mut ahead = self.rounds.clone();
            if let Some(waiting) = self.waiter_slab.at(first.slot) {
                ahead.charge(waiting.class(), waiting.permits);
            }
            self.ahead = Some(ahead);
        }
        let waiter_slab = &self.waiter_slab;
        let head_cost = |class| {
            waiter_slab.at(waiter_slab.class_queue(class).unbooked).map(|waiting| waiting.permits)
        };
        let rounds = self.ahead.as_mut().unwrap_or(&mut self.rounds);
        let class = rounds.pick(head_cost);
        class.map_or(NONE, |class| waiter_slab.class_queue(class).unbooked)
    }

    /// Charges the class of a waiter that starts.
    pub(super) fn charge(&mut self, slot: u32) {
        if self.has_classes()
            && let Some(waiting) = self.waiter_slab.at(slot)
        {
            self.rounds.charge(waiting.class(), waiting.permits);
        }
    }

    /// Withdraws the starts that only guessed the order of classes.
    pub(super) fn unbook_ahead(&mut self) {
        if self.ahead.take().is_some() {
            // None of them has come by the limit's own clock.
            let now_ns = self.limit.clamp(0);
            while self.booked.len() > 1 {
                self.unbook_last(now_ns);
            }
        }
    }

    /// Withdraws the last booked start.
    pub(super) fn unbook_last(&mut self, now_ns: u64) -> bool {
        let Some(Booked { slot, grant }) = self.booked.pop_back() else { return false };
        self.bookings().cancel(now_ns, grant.ticket);
        self.waiter_slab.set_booked(slot, false);
        true
    }

    /// Withdraws a waiter's start, if it is booked. Those behind it will be booked anew.
    pub(super) fn unbook_from(&mut self, now_ns: u64, slot: u32) {
        self.unbook_ahead();
        let is_at = |booked: Option<&Booked>| booked.is_some_and(|booked| booked.slot == slot);
        if is_at(self.booked.back()) {
            self.unbook_last(now_ns);
        } else {
            let keep = usize::from(!is_at(self.booked.front()));
            while self.booked.len() > keep {
                self.unbook_last(now_ns);
            }
        }
    }

    /// Ends the wait of a waiter whose start is not booked any more, and reports it.
    pub(super) fn end(&mut self, slot: u32, outcome: Outcome, wakes: &mut impl Wakes<W>) {
        self.remove_deadline(slot);
        self.clear_head(slot);
        if let Some(waiter) = self.waiter_slab.settle(slot, outcome) {
            wakes.settled(waiter);
        }
    }

    /// Removes a waiter from the queue, and frees its slot.
    pub(super) fn free(&mut self, slot: u32) -> Option<W> {
        self.clear_head(slot);
        self.waiter_slab.free(slot)
    }

    /// Removes what was known of a waiter as the head of the queue.
    fn clear_head(&mut self, slot: u32) {
        if !self.returning.is_empty() {
            self.returning.retain(|&returning| returning != slot);
        }
        if self.head.is_some_and(|head| head.slot == slot) {
            self.head = None;
        }
        self.reported_starts.remove(&slot);
    }

    pub(super) fn remove_deadline(&mut self, slot: u32) {
        if let Some(deadline_ns) = self.deadlines.remove(&slot) {
            self.by_deadline.remove(&(deadline_ns, slot));
        }
    }
}
