//! Joining: which new callers may wait, and where they find a free slot.

use core::num::NonZeroU64;

use super::waiter_slab::NONE;
use super::{Joined, Line, Outcome, QueueRejection, Request, WaiterId, Wakes, WhenFull};
use crate::fair::ClassId;
use crate::verdict::Refusal;

impl<W> Line<W> {
    /// Returns `true` if the limit would grant a new caller at once.
    ///
    /// Returns an error if it never will, or not in time.
    pub(super) fn can_start_now(
        &self,
        now_ns: u64,
        permits: NonZeroU64,
        max_wait_ns: Option<u64>,
    ) -> Result<bool, QueueRejection> {
        // Behind all waiters, as far as their starts are known.
        let limit = self.forecast.as_ref().map_or(&self.limit, |forecast| &forecast.limit);
        let opening = match limit.opening(now_ns, permits) {
            Err(Refusal::Held) => return Ok(false),
            Err(Refusal::BeyondClock { wait_ns }) if max_wait_ns.is_some() => Err(wait_ns),
            Err(refusal) => return Err(QueueRejection::Refused(refusal)),
            Ok(opening) => Ok(opening),
        };
        let wait_ns = match opening {
            Ok(opening) => opening.start_ns.saturating_sub(now_ns),
            Err(wait_ns) => wait_ns,
        };
        match max_wait_ns {
            // Behind a waiter whose start is unknown, no start is known.
            Some(max_wait_ns) if wait_ns > max_wait_ns && !self.has_unbooked() => {
                let soon_enough_ns = wait_ns.saturating_sub(max_wait_ns);
                let opens_ns = opening.map_or(u64::MAX, |opening| opening.opens_ns);
                let at_latest_ns = soon_enough_ns.min(opens_ns.saturating_sub(now_ns));
                let retry_after_ns = limit.soonest_ns(now_ns, at_latest_ns, permits, max_wait_ns);
                Err(QueueRejection::TooLong { wait_ns, retry_after_ns })
            }
            _ => Ok(wait_ns == 0),
        }
    }

    /// Judges a new caller by the order of its class, if it would be too late at the end of all
    /// queues.
    ///
    /// Returns its waiter if it is in time.
    pub(super) fn check_in_class_order(
        &mut self,
        now_ns: u64,
        Request { permits, max_wait_ns, class, .. }: Request,
        rejection: QueueRejection,
        waiter: impl FnOnce() -> W,
        wakes: &mut impl Wakes<W>,
    ) -> Result<W, QueueRejection> {
        let (QueueRejection::TooLong { retry_after_ns, .. }, Some(max_wait_ns), Some(permits)) =
            (rejection, max_wait_ns, NonZeroU64::new(permits))
        else {
            return Err(rejection);
        };
        if !self.has_classes() || self.is_empty() {
            return Err(rejection);
        }
        if !self.waiter_slab.has_free() || !self.can_ensure_capacity(class, permits.get()) {
            return Err(QueueRejection::Full);
        }
        let slot = self.waiter_slab.enqueue(class, waiter(), now_ns, permits);
        let start_ns = self.due_ns(&WaiterId(slot), wakes);
        let wait_ns = start_ns.map_or(0, |start_ns| start_ns.saturating_sub(now_ns));
        self.unbook_slot(now_ns, slot);
        let waiter = self.free(slot).ok_or(rejection)?;
        if wait_ns <= max_wait_ns {
            return Ok(waiter);
        }
        wakes.rejected(waiter);
        Err(QueueRejection::TooLong { wait_ns, retry_after_ns })
    }

    pub(super) fn enqueue(
        &mut self,
        now_ns: u64,
        permits: NonZeroU64,
        Request { max_wait_ns, class, .. }: Request,
        waiter: impl FnOnce() -> W,
        wakes: &mut impl Wakes<W>,
    ) -> Joined {
        let slot = self.waiter_slab.enqueue(class, waiter(), now_ns, permits);
        if let Some(max_wait_ns) = max_wait_ns {
            let deadline_ns = now_ns.saturating_add(max_wait_ns);
            self.deadlines.insert(slot, deadline_ns);
            self.by_deadline.insert((deadline_ns, slot));
        }
        let needs_start = max_wait_ns.is_some() && !self.has_classes();
        if self.takes() {
            if needs_start && !self.booked.is_empty() {
                self.forecast_all(wakes);
            }
        } else if self.booked.is_empty() || needs_start {
            self.book_next(wakes);
        }
        Joined::Waits(WaiterId(slot))
    }

    /// Evicts waiters until a caller that has to wait fits, or refuses the caller.
    pub(super) fn ensure_capacity(
        &mut self,
        now_ns: u64,
        class: ClassId,
        permits: NonZeroU64,
        wakes: &mut impl Wakes<W>,
    ) -> Result<(), QueueRejection> {
        while !self.has_capacity(class, permits.get()) {
            if !self.can_ensure_capacity(class, permits.get()) {
                return Err(QueueRejection::Full);
            }
            let newest = self.waiter_slab.class_queue(class).last;
            self.unbook_slot(now_ns, newest);
            self.end(newest, Outcome::Evicted, wakes);
        }
        Ok(())
    }

    /// Withdraws the start booked for a waiter that is about to leave the queue.
    pub(super) fn unbook_slot(&mut self, now_ns: u64, slot: u32) {
        if self.takes() {
            self.note_leaving(slot);
        } else {
            self.unbook_from(now_ns, slot);
        }
    }

    /// Returns `true` if a class's queue has a free slot, or a waiter to evict for one.
    pub(super) fn can_ensure_capacity(&self, class: ClassId, permits: u64) -> bool {
        let evicts = self.bounds.on_full() == WhenFull::EvictNewest;
        let is_hopeless =
            self.waiter_slab.class_queue(class).last == NONE || permits > self.bounds.permits();
        self.has_capacity(class, permits) || (evicts && !is_hopeless)
    }

    pub(super) fn has_capacity(&self, class: ClassId, permits: u64) -> bool {
        let class_queue = self.waiter_slab.class_queue(class);
        let within = class_queue.permits.checked_add(permits);
        class.index() < self.waiter_slab.class_queues().len()
            && class_queue.waiting < self.bounds.waiters()
            && self.waiter_slab.has_free()
            && within.is_some_and(|within| within <= self.bounds.permits())
    }
}
