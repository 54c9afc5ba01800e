//! The seats of those who wait: a line through a slab, from which anybody can stand up at any time.

use alloc::vec::Vec;
use core::mem::replace;
use core::num::NonZeroU64;

use super::Outcome;

/// No seat.
pub(super) const NONE: u32 = u32::MAX;

/// With nobody on them, so many seats are kept.
const KEPT: usize = 1024;

/// Seats, and the line of those that are waited on.
#[derive(Debug)]
pub(super) struct Seats<W> {
    slab: Vec<Seat<W>>,
    first_free: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    /// How many wait, and for how many permits together.
    pub(super) waiting: u32,
    pub(super) permits: u64,
    /// How many seats are not free.
    taken: u32,
}

#[derive(Debug)]
enum Seat<W> {
    Waiting(Waiting<W>),
    Idle(Idle),
}

/// Apart from [`Seat`], which has room to tell two variants from each other but not three.
#[derive(Clone, Copy, Debug)]
enum Idle {
    Settled(Outcome),
    /// With the next of the free ones.
    Free(u32),
}

#[derive(Debug)]
pub(super) struct Waiting<W> {
    pub(super) waiter: W,
    pub(super) asked_ns: u64,
    pub(super) permits: NonZeroU64,
    before: u32,
    pub(super) behind: u32,
}

impl<W> Seats<W> {
    pub(super) const fn new() -> Self {
        Self {
            slab: Vec::new(),
            first_free: NONE,
            first: NONE,
            last: NONE,
            waiting: 0,
            permits: 0,
            taken: 0,
        }
    }

    /// Whether there can be one more.
    pub(super) fn has_free(&self) -> bool {
        self.taken < NONE
    }

    /// A seat at the end of the line.
    pub(super) fn sit_down(&mut self, waiter: W, asked_ns: u64, permits: NonZeroU64) -> u32 {
        let before = self.last;
        let waiting = Waiting { waiter, asked_ns, permits, before, behind: NONE };
        self.waiting = self.waiting.saturating_add(1);
        self.permits = self.permits.saturating_add(permits.get());
        self.taken = self.taken.saturating_add(1);
        let seat = self.take(Seat::Waiting(waiting));
        match self.at_mut(before) {
            Some(neighbour) => neighbour.behind = seat,
            None => self.first = seat,
        }
        self.last = seat;
        seat
    }

    /// Takes somebody who waits out of the line, to a seat that says what came of it. `None` if he
    /// does not wait.
    pub(super) fn settle(&mut self, seat: u32, outcome: Outcome) -> Option<W> {
        let &Waiting { permits, before, behind, .. } = self.at(seat)?;
        match self.at_mut(before) {
            Some(neighbour) => neighbour.behind = behind,
            None => self.first = behind,
        }
        match self.at_mut(behind) {
            Some(neighbour) => neighbour.before = before,
            None => self.last = before,
        }
        self.waiting = self.waiting.saturating_sub(1);
        self.permits = self.permits.saturating_sub(permits.get());
        match replace(self.slab.get_mut(index(seat))?, Seat::Idle(Idle::Settled(outcome))) {
            Seat::Waiting(waiting) => Some(waiting.waiter),
            Seat::Idle(_) => None,
        }
    }

    /// What came of a wait. The seat is free afterwards.
    pub(super) fn collect(&mut self, seat: u32) -> Option<Outcome> {
        let place = self.slab.get_mut(index(seat))?;
        let &mut Seat::Idle(Idle::Settled(outcome)) = place else { return None };
        *place = Seat::Idle(Idle::Free(self.first_free));
        self.first_free = seat;
        self.taken = self.taken.saturating_sub(1);
        if self.taken == 0 && self.slab.capacity() > KEPT {
            self.slab = Vec::new();
            self.first_free = NONE;
        }
        Some(outcome)
    }

    pub(super) fn at(&self, seat: u32) -> Option<&Waiting<W>> {
        match self.slab.get(index(seat)) {
            Some(Seat::Waiting(waiting)) => Some(waiting),
            _ => None,
        }
    }

    pub(super) fn at_mut(&mut self, seat: u32) -> Option<&mut Waiting<W>> {
        match self.slab.get_mut(index(seat)) {
            Some(Seat::Waiting(waiting)) => Some(waiting),
            _ => None,
        }
    }

    /// Puts somebody on a free seat, or on a new one.
    fn take(&mut self, somebody: Seat<W>) -> u32 {
        let seat = self.first_free;
        if let Some(place @ &mut Seat::Idle(Idle::Free(next))) = self.slab.get_mut(index(seat)) {
            self.first_free = next;
            *place = somebody;
            return seat;
        }
        self.slab.push(somebody);
        u32::try_from(self.slab.len().saturating_sub(1)).unwrap_or(NONE)
    }
}

/// No seat is past the end.
fn index(seat: u32) -> usize {
    usize::try_from(seat).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million waiters should not cost more than they must.
    #[test]
    fn a_seat_is_small() {
        assert_eq!(size_of::<Seat<core::task::Waker>>(), 40);
    }
}
