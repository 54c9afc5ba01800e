//! Waiter slots: one FIFO for each class, linked through a slab, with removal from any position.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::replace;
use core::num::NonZeroU64;

use super::Outcome;
use crate::fair::ClassId;
use crate::verdict::Ticket;

/// The index of no slot. An index has to leave 8 bits for its class.
pub(super) const NONE: u32 = (1 << SLOT_BITS) - 1;
const SLOT_BITS: u32 = 24;

/// The number of slots that are kept allocated when all are free.
const RETAINED_SLOTS: usize = 1024;

/// Waiter slots, and the FIFOs of those that wait, one for each class.
#[derive(Debug)]
pub(super) struct WaiterSlab<W> {
    slab: Vec<WaiterSlot<W>>,
    first_free: u32,
    class_queues: Vec<ClassQueue>,
    /// The number of waiters.
    pub(super) waiting: u32,
    /// The number of slots that are not free.
    taken: u32,
}

/// The FIFO of one class's waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassQueue {
    pub(super) first: u32,
    pub(super) last: u32,
    /// The first whose start is not booked.
    pub(super) unbooked: u32,
    /// The number of waiters, and the permits that they wait for together.
    pub(super) waiting: u32,
    pub(super) permits: u64,
}

#[derive(Debug)]
enum WaiterSlot<W> {
    Waiting(Waiting<W>),
    Idle(Idle),
}

/// Slots without a waiter. Apart from [`WaiterSlot`], whose spare bits can tell two variants apart
/// but not three.
#[derive(Debug)]
enum Idle {
    /// Boxed: few are settled at a time, and the value is larger than a waiter.
    Settled(Box<Settled>),
    /// A free slot, with the index of the next free one.
    Free(u32),
}

/// The state of a settled wait, until its caller collects it.
#[derive(Debug)]
enum Settled {
    Ended(Outcome),
    /// A provisional grant that the waiter has not taken.
    Due(Due),
    /// A provisional grant not taken in time. The waiter is at the head of the queue when it
    /// comes.
    Withdrawn(Due),
}

/// A waiter whose start has come, or will come at a promised instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) requested_ns: u64,
    pub(super) permits: NonZeroU64,
    pub(super) class: ClassId,
    pub(super) promised_ns: u64,
    /// The wake-up time, from which the grace period counts.
    pub(super) woken_ns: u64,
    pub(super) deadline_ns: Option<u64>,
    /// The promise that holds its permits, for the waiter of a reservation.
    pub(super) ticket: Option<Ticket>,
}

#[derive(Debug)]
pub(super) struct Waiting<W> {
    pub(super) waiter: W,
    pub(super) requested_ns: u64,
    pub(super) permits: NonZeroU64,
    before: Before,
    behind: u32,
}

/// The slot of the waiter in front, and the class of both.
#[derive(Clone, Copy, Debug)]
struct Before(u32);

impl Before {
    fn new(slot: u32, class: ClassId) -> Self {
        let class = u32::try_from(class.index()).unwrap_or(0);
        Self((class << SLOT_BITS) | slot)
    }

    const fn slot(self) -> u32 {
        self.0 & NONE
    }

    fn class(self) -> ClassId {
        ClassId::of(index(self.0 >> SLOT_BITS)).unwrap_or(ClassId::FIRST)
    }
}

impl<W> Waiting<W> {
    pub(super) fn class(&self) -> ClassId {
        self.before.class()
    }
}

impl ClassQueue {
    const EMPTY: Self = Self { first: NONE, last: NONE, unbooked: NONE, waiting: 0, permits: 0 };
}

impl<W> WaiterSlab<W> {
    /// Returns an empty slab with one class.
    pub(super) fn new() -> Self {
        let class_queues = [ClassQueue::EMPTY].into();
        Self { slab: Vec::new(), first_free: NONE, class_queues, waiting: 0, taken: 0 }
    }

    /// Adds a FIFO for the next class.
    pub(super) fn add_class_queue(&mut self) {
        self.class_queues.push(ClassQueue::EMPTY);
    }

    pub(super) fn class_queues(&self) -> &[ClassQueue] {
        &self.class_queues
    }

    /// Returns the FIFO of a class; a class that was never added has an empty one.
    pub(super) fn class_queue(&self, class: ClassId) -> ClassQueue {
        self.class_queues.get(class.index()).copied().unwrap_or(ClassQueue::EMPTY)
    }

    /// Returns `true` if one more slot can be taken.
    pub(super) fn has_free(&self) -> bool {
        self.taken < NONE
    }

    /// Adds a waiter at the end of its class's FIFO. Returns its slot.
    pub(super) fn enqueue(
        &mut self,
        class: ClassId,
        waiter: W,
        requested_ns: u64,
        permits: NonZeroU64,
    ) -> u32 {
        let last = self.class_queue(class).last;
        let before = Before::new(last, class);
        let slot = self.take(WaiterSlot::Waiting(Waiting {
            waiter,
            requested_ns,
            permits,
            before,
            behind: NONE,
        }));
        self.waiting = self.waiting.saturating_add(1);
        self.taken = self.taken.saturating_add(1);
        if let Some(neighbour) = self.at_mut(last) {
            neighbour.behind = slot;
        }
        if let Some(class_queue) = self.class_queues.get_mut(class.index()) {
            class_queue.waiting = class_queue.waiting.saturating_add(1);
            class_queue.permits = class_queue.permits.saturating_add(permits.get());
            class_queue.last = slot;
            for end in [&mut class_queue.first, &mut class_queue.unbooked] {
                *end = if *end == NONE { slot } else { *end };
            }
        }
        slot
    }

    /// Removes a waiter from its FIFO and stores its outcome in its slot. Returns `None` if it
    /// does not wait.
    pub(super) fn settle(&mut self, slot: u32, outcome: Outcome) -> Option<W> {
        self.unlink(slot)?;
        self.put(slot, Idle::Settled(Box::new(Settled::Ended(outcome))))
    }

    /// Removes a waiter whose start has come from its FIFO, and keeps its slot until it takes.
    pub(super) fn make_due(&mut self, slot: u32, due: Due) -> Option<W> {
        self.unlink(slot)?;
        self.put(slot, Idle::Settled(Box::new(Settled::Due(due))))
    }

    /// Adds a waiter that has been promised its start already.
    pub(super) fn add_due(&mut self, due: Due) -> u32 {
        self.taken = self.taken.saturating_add(1);
        self.take(WaiterSlot::Idle(Idle::Settled(Box::new(Settled::Due(due)))))
    }

    /// Returns a due waiter, and `true` if its provisional grant was withdrawn.
    pub(super) fn due(&self, slot: u32) -> Option<(Due, bool)> {
        match self.slab.get(index(slot)) {
            Some(WaiterSlot::Idle(Idle::Settled(settled))) => match **settled {
                Settled::Due(due) => Some((due, false)),
                Settled::Withdrawn(due) => Some((due, true)),
                Settled::Ended(_) => None,
            },
            _ => None,
        }
    }

    /// Marks a due waiter as one that did not take in time.
    pub(super) fn withdraw(&mut self, slot: u32) {
        if let Some((due, _)) = self.due(slot) {
            self.put(slot, Idle::Settled(Box::new(Settled::Withdrawn(due))));
        }
    }

    /// Ends the wait of a due waiter.
    pub(super) fn end_due(&mut self, slot: u32, outcome: Outcome) {
        if self.due(slot).is_some() {
            self.put(slot, Idle::Settled(Box::new(Settled::Ended(outcome))));
        }
    }

    /// Frees the slot of a waiter that has taken, or has left.
    pub(super) fn free_due(&mut self, slot: u32) {
        if self.due(slot).is_some() {
            self.put(slot, Idle::Free(self.first_free));
            self.first_free = slot;
            self.count_free();
        }
    }

    /// Returns a due waiter to the queue: behind another of its class, or before all of them.
    ///
    /// None of them may be booked.
    pub(super) fn rejoin(&mut self, slot: u32, due: &Due, waiter: W, after: u32) {
        let behind =
            self.at(after).map_or(self.class_queue(due.class).first, |waiting| waiting.behind);
        let before = Before::new(after, due.class);
        let &Due { requested_ns, permits, .. } = due;
        let waiting = Waiting { waiter, requested_ns, permits, before, behind };
        let Some(entry) = self.slab.get_mut(index(slot)) else { return };
        *entry = WaiterSlot::Waiting(waiting);
        if let Some(neighbour) = self.at_mut(behind) {
            neighbour.before = Before::new(slot, due.class);
        }
        if let Some(neighbour) = self.at_mut(after) {
            neighbour.behind = slot;
        }
        self.waiting = self.waiting.saturating_add(1);
        if let Some(class_queue) = self.class_queues.get_mut(due.class.index()) {
            class_queue.waiting = class_queue.waiting.saturating_add(1);
            class_queue.permits = class_queue.permits.saturating_add(permits.get());
            if after == NONE {
                class_queue.first = slot;
            }
            if behind == NONE {
                class_queue.last = slot;
            }
            class_queue.unbooked = class_queue.first;
        }
    }

    /// Records that no start is booked any more.
    pub(super) fn unbook_all(&mut self) {
        for class_queue in &mut self.class_queues {
            class_queue.unbooked = class_queue.first;
        }
    }

    /// Removes a waiter from its FIFO and frees its slot.
    pub(super) fn free(&mut self, slot: u32) -> Option<W> {
        self.unlink(slot)?;
        let waiter = self.put(slot, Idle::Free(self.first_free));
        self.first_free = slot;
        self.count_free();
        waiter
    }

    fn unlink(&mut self, slot: u32) -> Option<()> {
        let &Waiting { permits, before, behind, .. } = self.at(slot)?;
        if let Some(neighbour) = self.at_mut(before.slot()) {
            neighbour.behind = behind;
        }
        if let Some(neighbour) = self.at_mut(behind) {
            neighbour.before = before;
        }
        self.waiting = self.waiting.saturating_sub(1);
        if let Some(class_queue) = self.class_queues.get_mut(before.class().index()) {
            class_queue.waiting = class_queue.waiting.saturating_sub(1);
            class_queue.permits = class_queue.permits.saturating_sub(permits.get());
            for (end, next) in [
                (&mut class_queue.first, behind),
                (&mut class_queue.unbooked, behind),
                (&mut class_queue.last, before.slot()),
            ] {
                *end = if *end == slot { next } else { *end };
            }
        }
        Some(())
    }

    fn put(&mut self, slot: u32, idle: Idle) -> Option<W> {
        match replace(self.slab.get_mut(index(slot))?, WaiterSlot::Idle(idle)) {
            WaiterSlot::Waiting(waiting) => Some(waiting.waiter),
            WaiterSlot::Idle(_) => None,
        }
    }

    /// Records that a waiter's start is booked, or is not any more.
    pub(super) fn set_booked(&mut self, slot: u32, is_booked: bool) {
        let Some(waiting) = self.at(slot) else { return };
        let (class, behind) = (waiting.class(), waiting.behind);
        if let Some(class_queue) = self.class_queues.get_mut(class.index()) {
            class_queue.unbooked = if is_booked { behind } else { slot };
        }
    }

    /// Returns the slot of any waiter.
    pub(super) fn any_waiter(&self) -> Option<u32> {
        self.class_queues.iter().map(|class_queue| class_queue.first).find(|&first| first != NONE)
    }

    /// Returns the outcome of a wait, and frees its slot.
    pub(super) fn outcome(&self, slot: u32) -> Option<&Outcome> {
        let WaiterSlot::Idle(Idle::Settled(settled)) = self.slab.get(index(slot))? else {
            return None;
        };
        if let Settled::Ended(outcome) = &**settled { Some(outcome) } else { None }
    }

    pub(super) fn collect(&mut self, slot: u32) -> Option<Outcome> {
        let entry = self.slab.get_mut(index(slot))?;
        let WaiterSlot::Idle(Idle::Settled(settled)) = entry else { return None };
        let Settled::Ended(outcome) = **settled else { return None };
        *entry = WaiterSlot::Idle(Idle::Free(self.first_free));
        self.first_free = slot;
        self.count_free();
        Some(outcome)
    }

    fn count_free(&mut self) {
        self.taken = self.taken.saturating_sub(1);
        if self.taken == 0 && self.slab.capacity() > RETAINED_SLOTS {
            self.slab = Vec::new();
            self.first_free = NONE;
        }
    }

    pub(super) fn at(&self, slot: u32) -> Option<&Waiting<W>> {
        match self.slab.get(index(slot)) {
            Some(WaiterSlot::Waiting(waiting)) => Some(waiting),
            _ => None,
        }
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> Option<&mut Waiting<W>> {
        match self.slab.get_mut(index(slot)) {
            Some(WaiterSlot::Waiting(waiting)) => Some(waiting),
            _ => None,
        }
    }

    /// Stores a value in a free slot, or in a new one.
    fn take(&mut self, occupant: WaiterSlot<W>) -> u32 {
        let slot = self.first_free;
        if let Some(entry @ &mut WaiterSlot::Idle(Idle::Free(next))) =
            self.slab.get_mut(index(slot))
        {
            self.first_free = next;
            *entry = occupant;
            return slot;
        }
        self.slab.push(occupant);
        u32::try_from(self.slab.len().saturating_sub(1)).unwrap_or(NONE)
    }
}

/// Returns a slot's index. No slot is past the end.
fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million waiters must not cost more memory than necessary.
    #[test]
    fn a_waiter_slot_is_small() {
        assert_eq!(size_of::<WaiterSlot<core::task::Waker>>(), 40);
    }
}
