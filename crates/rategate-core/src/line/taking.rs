//! Taking: a start that has come is provisional until its waiter takes it.
//!
//! ```text
//!   due: provisional, woken    | head | queue, and a forecast of its starts
//!   ---------------------------+------+-----------------------------------> order of joining
//!     take: decided at the       ^ the first start that is worked out on the limit itself
//!     instant of taking
//! ```
//!
//! The waiters at the front whose starts have come have provisional grants and have been woken.
//! Each takes by itself, in any order. One that does not within the [grace period](super::grace)
//! loses its grant to those behind, and is at the head of the queue when it comes.

use core::num::NonZeroU64;

use super::head::Head;
use super::waiter_slab::{Due, NONE, Waiting};
use super::{Line, Outcome, WaiterId, Wakes};
use crate::fair::ClassId;
use crate::verdict::{Grant, Refusal, Ticket};

impl<W> Line<W> {
    /// Returns `true` if waiters take, instead of being granted an instant.
    #[must_use]
    pub fn takes(&self) -> bool {
        !self.promises_instants && !self.limit.keeps_schedule()
    }

    /// Takes the permits of a waiter whose start has come, deciding at `now_ns`.
    ///
    /// Returns another outcome if the wait has ended differently, and `None` while it lasts. A
    /// waiter that has to keep waiting, because it came too late, is woken by the handle from
    /// `waiter`.
    ///
    /// The line has to be [served](Self::serve) before.
    pub fn take(
        &mut self,
        now_ns: u64,
        waiter_id: &WaiterId,
        waiter: impl FnMut() -> W,
        wakes: &mut impl Wakes<W>,
    ) -> Option<Outcome> {
        let outcome = self.end_or_take(now_ns, waiter_id, waiter, wakes);
        // The permits taken may have been held for longer than they need to be now.
        self.serve_waiters(now_ns, wakes);
        outcome
    }

    fn end_or_take(
        &mut self,
        now_ns: u64,
        waiter_id: &WaiterId,
        mut waiter: impl FnMut() -> W,
        wakes: &mut impl Wakes<W>,
    ) -> Option<Outcome> {
        if let Some(outcome) = self.collect(waiter_id) {
            return Some(outcome);
        }
        let now_ns = self.limit.clamp(now_ns);
        let (due, is_withdrawn) = self.waiter_slab.due(waiter_id.0)?;
        if self.is_closed {
            self.leave_due(now_ns, waiter_id.0);
            return Some(Outcome::Closed);
        }
        if is_withdrawn {
            self.grace.record_withdrawal(now_ns.saturating_sub(due.woken_ns));
            self.rejoin(now_ns, waiter_id.0, &due, waiter());
            self.serve_waiters(now_ns, wakes);
            if let Some((due, _)) = self.waiter_slab.due(waiter_id.0) {
                return self.take_due(now_ns, waiter_id.0, &due, waiter);
            }
            // The limit promises instants by now, or the deadline has passed.
            return self.collect(waiter_id);
        }
        if due.promised_ns > now_ns {
            return None;
        }
        self.take_due(now_ns, waiter_id.0, &due, waiter)
    }

    /// Returns `true` if a waiter may take its permits.
    #[must_use]
    pub fn is_due(&self, waiter_id: &WaiterId) -> bool {
        self.waiter_slab.due(waiter_id.0).is_some_and(|(_, is_withdrawn)| !is_withdrawn)
    }

    fn take_due(
        &mut self,
        now_ns: u64,
        slot: u32,
        due: &Due,
        waiter: impl FnOnce() -> W,
    ) -> Option<Outcome> {
        self.limit.pass_to(now_ns);
        self.release_hold(now_ns, slot, due);
        if let Some(grant) =
            self.limit.take(now_ns, due.requested_ns, due.promised_ns, due.permits, due.ticket)
        {
            self.grace.record_lateness(now_ns.saturating_sub(due.woken_ns));
            self.note_start(due.promised_ns, now_ns);
            self.waiter_slab.free_due(slot);
            return Some(Outcome::Granted(grant));
        }
        // A promise to another caller, or a change of the limit, is in the way.
        self.grace.record_lateness(now_ns.saturating_sub(due.woken_ns));
        self.rejoin(now_ns, slot, due, waiter());
        None
    }

    /// Adds a waiter for a promise that has not started, which is provisional from then on.
    ///
    /// Returns `None` if it has started, or was cancelled.
    pub fn wait_for_promise(
        &mut self,
        now_ns: u64,
        requested_ns: u64,
        grant: &Grant,
    ) -> Option<WaiterId> {
        let permits = NonZeroU64::new(grant.permits)?;
        let start_ns = grant.start_ns;
        if !self.takes() || !self.waiter_slab.has_free() {
            return None;
        }
        if !self.limit.hold_promise(now_ns, grant.ticket) {
            return None;
        }
        let slot = self.waiter_slab.add_due(Due {
            requested_ns,
            permits,
            class: ClassId::FIRST,
            promised_ns: start_ns,
            woken_ns: start_ns,
            deadline_ns: None,
            ticket: Some(grant.ticket),
        });
        self.add_to_due(slot, start_ns);
        self.mark_head_stale();
        Some(WaiterId(slot))
    }

    /// Makes at most `max` starts due that have come, and works out the next one.
    ///
    /// Returns `true` if more may remain.
    pub(super) fn serve_taking(
        &mut self,
        now_ns: u64,
        max: usize,
        wakes: &mut impl Wakes<W>,
    ) -> bool {
        self.limit.pass_to(now_ns);
        if self.ahead.is_some() {
            self.drop_forecast();
        }
        self.withdraw_overdue(now_ns);
        (0..max).all(|_| self.serve_head(now_ns, wakes))
    }

    fn serve_head(&mut self, now_ns: u64, wakes: &mut impl Wakes<W>) -> bool {
        let slot = self.first_waiting();
        let before = self.head.filter(|head| head.slot == slot);
        if let Some(head) = before
            && head.is_current
            && head.start_ns.is_none_or(|start_ns| start_ns > now_ns)
        {
            return self.expire(now_ns, wakes);
        }
        let Some(&Waiting { permits, .. }) = self.waiter_slab.at(slot) else {
            self.head = None;
            self.drop_forecast();
            return false;
        };
        let start_ns = match self.limit.opening(now_ns, permits) {
            Ok(opening) => Some(opening.start_ns),
            Err(Refusal::Held) => None,
            Err(refusal) => {
                self.drop_forecast();
                self.end(slot, Outcome::Refused(refusal), wakes);
                return true;
            }
        };
        if start_ns.is_some_and(|start_ns| start_ns <= now_ns) {
            let known = before.filter(|head| head.is_current).and_then(|head| head.start_ns);
            let forecast = self.booked.front().filter(|first| first.slot == slot);
            let forecast = forecast.map(|first| first.grant.start_ns);
            let promised_ns = known.or(forecast).unwrap_or(now_ns).min(now_ns);
            self.make_due(now_ns, slot, promised_ns, wakes);
            return true;
        }
        // An unknown start is replaced by the next withdrawal: neither may have been reported to
        // it.
        self.notify_first(slot, start_ns.or_else(|| self.withdrawal_ns()), wakes);
        let is_roused = before.is_some_and(|head| head.is_roused_for(start_ns));
        self.head = Some(Head { slot, start_ns, is_current: true, is_roused });
        self.expire(now_ns, wakes)
    }

    fn make_due(&mut self, now_ns: u64, slot: u32, promised_ns: u64, wakes: &mut impl Wakes<W>) {
        let Some(waiting) = self.waiter_slab.at(slot) else { return };
        let (requested_ns, permits, class) =
            (waiting.requested_ns, waiting.permits, waiting.class());
        let deadline_ns = self.deadlines.get(&slot).copied();
        self.remove_deadline(slot);
        self.charge(slot);
        if self.returning.front() == Some(&slot) {
            self.returning.pop_front();
        }
        self.reported_starts.remove(&slot);
        match self.booked.front() {
            Some(first) if first.slot == slot => {
                self.note_start(first.grant.start_ns, promised_ns);
                self.booked.pop_front();
            }
            _ => self.drop_forecast(),
        }
        if let Some(forecast) = &mut self.forecast {
            forecast.settled = forecast.settled.saturating_add(1);
        }
        self.limit.hold(permits);
        let (woken_ns, ticket) = (now_ns, None);
        let due = Due { requested_ns, permits, class, promised_ns, woken_ns, deadline_ns, ticket };
        if let Some(waiter) = self.waiter_slab.make_due(slot, due) {
            wakes.settled(waiter);
        }
        self.add_to_due(slot, now_ns);
    }

    fn add_to_due(&mut self, slot: u32, woken_ns: u64) {
        let waiter_slab = &self.waiter_slab;
        let woken_later =
            |slot: &&u32| waiter_slab.due(**slot).is_some_and(|(due, _)| due.woken_ns > woken_ns);
        let later = self.due.iter().rev().take_while(woken_later).count();
        self.due.insert(self.due.len().saturating_sub(later), slot);
    }

    /// Withdraws the provisional grants of waiters that have not taken in time.
    pub(super) fn withdraw_overdue(&mut self, now_ns: u64) {
        while let Some(&slot) = self.due.front() {
            let Some((due, _)) = self.waiter_slab.due(slot) else { break };
            if due.woken_ns.saturating_add(self.grace.ns()) > now_ns {
                break;
            }
            self.release_hold(now_ns, slot, &due);
            self.waiter_slab.withdraw(slot);
            self.drop_forecast();
        }
    }

    /// Returns when the next provisional grant will be withdrawn.
    pub(super) fn withdrawal_ns(&self) -> Option<u64> {
        let (due, _) = self.waiter_slab.due(*self.due.front()?)?;
        Some(due.woken_ns.saturating_add(self.grace.ns()))
    }

    /// Frees what a due waiter reserves: its permits, or its promise before the start.
    fn release_hold(&mut self, now_ns: u64, slot: u32, due: &Due) {
        let Some(index) = self.due.iter().position(|&known| known == slot) else { return };
        self.due.remove(index);
        let is_promise = |ticket: Ticket| self.limit.cancel(now_ns, ticket);
        if !due.ticket.is_some_and(is_promise) {
            self.limit.release_hold(due.permits);
        }
        self.mark_head_stale();
    }

    /// Marks the head's start to be worked out anew.
    pub(super) fn mark_head_stale(&mut self) {
        if let Some(head) = &mut self.head {
            head.is_current = false;
        }
    }

    /// Credits a class for permits that its waiter has not taken.
    fn credit_class(&mut self, due: &Due) {
        if self.has_classes() && due.ticket.is_none() {
            self.settle_class(due.class, due.permits.get(), 0);
        }
    }

    /// Returns a waiter to the head of the queue, behind those that came too late before it.
    fn rejoin(&mut self, now_ns: u64, slot: u32, due: &Due, waiter: W) {
        if self.takes() {
            self.drop_forecast();
        } else {
            while self.unbook_last(now_ns) {}
        }
        let of_class =
            |known: &&u32| self.waiter_slab.at(**known).is_some_and(|at| at.class() == due.class);
        let behind = self.returning.iter().rev().find(of_class).copied().unwrap_or(NONE);
        self.waiter_slab.rejoin(slot, due, waiter, behind);
        self.returning.push_back(slot);
        // Only now: a class without waiters is not credited. It will be charged again.
        self.credit_class(due);
        if let Some(deadline_ns) = due.deadline_ns {
            self.deadlines.insert(slot, deadline_ns);
            self.by_deadline.insert((deadline_ns, slot));
        }
    }

    /// Frees the slot of a waiter that is due, or whose grant was withdrawn.
    ///
    /// Returns `true` if there was one.
    pub(super) fn leave_due(&mut self, now_ns: u64, slot: u32) -> bool {
        let Some((due, _)) = self.waiter_slab.due(slot) else { return false };
        self.release_hold(now_ns, slot, &due);
        self.credit_class(&due);
        self.waiter_slab.free_due(slot);
        self.drop_forecast();
        true
    }

    /// Ends all due waits. Their permits are free again.
    pub(super) fn close_due(&mut self, now_ns: u64) {
        while let Some(&slot) = self.due.front() {
            let Some((due, _)) = self.waiter_slab.due(slot) else { break };
            self.release_hold(now_ns, slot, &due);
            self.waiter_slab.end_due(slot, Outcome::Closed);
        }
        self.is_closed = true;
    }

    /// Prepares the removal of a waiter from any position in the queue.
    pub(super) fn note_leaving(&mut self, slot: u32) {
        if let (Some(last), Some(forecast), None) =
            (self.booked.back(), &mut self.forecast, &self.ahead)
            && last.slot == slot
            && forecast.limit.cancel(forecast.limit.clamp(0), last.grant.ticket)
        {
            // No start is forecast behind it.
            self.booked.pop_back();
            self.waiter_slab.set_booked(slot, false);
            return;
        }
        if self.booked.iter().any(|booked| booked.slot == slot) {
            self.drop_forecast();
        }
    }

    /// Returns the first waiter whose start has not come, or [`NONE`].
    pub(super) fn first_waiting(&mut self) -> u32 {
        if let Some(&slot) = self.returning.front() {
            return slot;
        }
        if let [only] = self.waiter_slab.class_queues() {
            return only.first;
        }
        let waiter_slab = &self.waiter_slab;
        let head_cost = |class| {
            waiter_slab.at(waiter_slab.class_queue(class).first).map(|waiting| waiting.permits)
        };
        self.rounds.pick(head_cost).map_or(NONE, |class| waiter_slab.class_queue(class).first)
    }
}
