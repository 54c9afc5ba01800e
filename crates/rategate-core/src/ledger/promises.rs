//! The promises of a ledger: where a new one fits, and the states with them taken.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use super::{Booked, Floor, Ledger, Promise};
use crate::members::Members;
use crate::policy::{Held, Taken};
use crate::verdict::{Opening, Refusal, Ticket};

impl Ledger {
    /// Returns the instant at which `permits` could start, not before `from_ns`, for a request at
    /// the latest instant known.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why there is no such instant.
    pub fn opening_from(&self, from_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        self.opening_behind_floor(self.latest_ns, from_ns, self.floor_ns(), permits)
    }

    /// Returns the opening for a request made at `now_ns`, not before `floor_ns`: held permits
    /// count as if they started then.
    pub(super) fn opening_behind_floor(
        &self,
        now_ns: u64,
        from_ns: u64,
        floor_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let requested_ns = self.clamp(now_ns);
        let first_ns = requested_ns.max(from_ns).max(floor_ns);
        let opening = match (self.promises.back(), &self.booked) {
            (None, _) => self.opening_in(&self.started, requested_ns, first_ns, permits),
            (Some(last), Some(booked))
                if last.taken.start_ns <= first_ns && booked.promises == self.promises.len() =>
            {
                self.opening_in(&booked.limits, requested_ns, first_ns, permits)
            }
            _ => self.first_openings(requested_ns, first_ns, permits),
        };
        opening.map_err(|refusal| refusal.seen_from(first_ns.saturating_sub(from_ns)))
    }

    /// Returns the opening in `limits` from `from_ns` on, counting the held permits for a request
    /// made at `requested_ns`.
    fn opening_in(
        &self,
        limits: &Members,
        requested_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let held = NonZeroU64::new(self.held);
        let held = held.map(|permits| Held { from_ns: requested_ns, permits });
        limits.opening(None, from_ns, held, permits)
    }

    /// Returns the first openings among the promises for a reservation and for a try.
    fn first_openings(
        &self,
        requested_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let reserved =
            self.first_opening(requested_ns, from_ns, permits, |opening| opening.start_ns)?;
        let tried =
            self.first_opening(requested_ns, from_ns, permits, |opening| opening.opens_ns)?;
        Ok(Opening { opens_ns: tried.opens_ns, ..reserved })
    }

    /// Returns the first opening among the promises that fits `permits`, starting at the instant
    /// that `start` picks, and disturbs no promise.
    fn first_opening(
        &self,
        requested_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
        start: impl Fn(&Opening) -> u64,
    ) -> Result<Opening, Refusal> {
        let (first, mut limits) = self.booked_by(from_ns);
        let (searched_from_ns, mut from_ns) = (from_ns, from_ns);
        for (index, promise) in self.promises.iter().enumerate().skip(first) {
            // A promise for the same instant goes first, as everywhere.
            if from_ns < promise.taken.start_ns {
                match self.opening_in(&limits, requested_ns, from_ns, permits) {
                    Ok(opening) if self.fits(&limits, index, start(&opening), permits) => {
                        return Ok(opening);
                    }
                    Ok(_) | Err(Refusal::BeyondClock { .. }) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            limits.take(promise.owed_by, promise.taken);
            from_ns = from_ns.max(promise.taken.start_ns);
        }
        let opening = self.opening_in(&limits, requested_ns, from_ns, permits);
        opening.map_err(|refusal| refusal.seen_from(from_ns.saturating_sub(searched_from_ns)))
    }

    /// Returns `true` if all promises from `index` on conform after a grant at `start_ns` and all
    /// held permits.
    fn fits(&self, limits: &Members, index: usize, start_ns: u64, permits: NonZeroU64) -> bool {
        let starts_first = |promise: &Promise| start_ns < promise.taken.start_ns;
        if !self.promises.get(index).is_none_or(starts_first) {
            return false;
        }
        let from_ns = start_ns.saturating_sub(1);
        let permits = permits.saturating_add(self.held);
        let mut limits = limits.clone();
        limits.take(None, Taken { from_ns, start_ns, permits });
        self.promises.iter().skip(index).all(|&Promise { taken, owed_by, .. }| {
            let opening = limits.opening(owed_by, taken.start_ns, None, taken.permits);
            let conforms = opening.is_ok_and(|opening| opening.start_ns == taken.start_ns);
            limits.take(owed_by, taken);
            conforms
        })
    }

    /// Records a grant that has started or will start.
    pub(super) fn record(&mut self, taken: Taken) -> Ticket {
        let start_ns = taken.start_ns;
        let serial = self.next_serial;
        self.next_serial = self.next_serial.saturating_add(1);
        self.undone_from = self.next_serial;
        let mut floor = core::mem::replace(&mut self.floor, Floor::new(start_ns, self.next_serial));
        floor.to = floor.to.min(serial);
        let epoch = self.epoch;
        let ticket =
            |busy_until_ns| Ticket { serial, ..Ticket::booked(start_ns, busy_until_ns, epoch) };
        if start_ns <= self.latest_ns {
            let ticket = ticket(self.started.busy_until_ns(taken));
            self.take_started(None, taken);
            if self.promises.is_empty() {
                self.booked = None;
            } else {
                let all = self.promises.len();
                let limits = self.with_taken(self.started.clone(), 0, all);
                self.book_up_to(all, limits);
            }
            return ticket;
        }
        let index = self.promises.partition_point(|promise| promise.taken.start_ns <= start_ns);
        if self.booked.as_ref().is_none_or(|booked| booked.promises != index) {
            let limits = self.booked_before(index);
            self.book_up_to(index, limits);
        }
        let limits = self.booked.as_ref().map_or(&self.started, |booked| &booked.limits);
        let ticket = ticket(limits.busy_until_ns(taken));
        let promise = Promise { serial, taken, floor, is_provisional: false, owed_by: None };
        self.promises.insert(index, promise);
        if let Some(booked) = &mut self.booked {
            booked.limits.take(None, taken);
            booked.promises = index.saturating_add(1);
        }
        ticket
    }

    /// Returns the earliest instant at which a new call may start.
    pub(super) fn floor_ns(&self) -> u64 {
        self.reached_ns(self.floor, None)
    }

    /// Returns the instant of a floor, with what all limits owe or with what this one does.
    pub(super) fn reached_ns(&self, floor: Floor, by: Option<usize>) -> u64 {
        if !self.owes {
            return floor.ns;
        }
        let mut newest_first = self.promises.iter().rev();
        let last = newest_first.find(|promise| {
            promise.owed_by.is_some_and(|owner| by.is_none_or(|by| by == owner))
                && (floor.from..floor.to).contains(&promise.serial)
        });
        floor.ns.max(last.map_or(0, |promise| promise.taken.start_ns))
    }

    /// Returns the parts of a debt of this limit that have not started by `now_ns`.
    pub(super) fn owed(&self, by: usize, now_ns: u64) -> impl DoubleEndedIterator<Item = &Taken> {
        let owed = self.promises.iter().filter(move |promise| promise.owed_by == Some(by));
        owed.map(|promise| &promise.taken).filter(move |taken| taken.start_ns > now_ns)
    }

    /// Takes the promises that have started by `now_ns`.
    pub(super) fn start_promises(&mut self, now_ns: u64) {
        self.latest_ns = self.latest_ns.max(now_ns);
        while let Some(&Promise { taken, is_provisional, owed_by, .. }) = self.promises.front() {
            if taken.start_ns > self.latest_ns {
                break;
            }
            if is_provisional {
                self.held = self.held.saturating_add(taken.permits.get());
                self.booked = None;
            } else {
                self.take_started(owed_by, taken);
                self.booked = self.booked.take().and_then(|mut booked| {
                    booked.promises = booked.promises.checked_sub(1)?;
                    Some(booked)
                });
            }
            self.promises.pop_front();
        }
        self.owes &= !self.promises.is_empty();
    }

    /// Removes a promise from the list, if its start has not come.
    pub(super) fn withdraw(&mut self, ticket: Ticket) -> Option<Promise> {
        let index = self.index_of(ticket)?;
        self.booked = None;
        self.promises.remove(index)
    }

    /// Returns the index of a promise on the list, if its start has not come.
    pub(super) fn index_of(&self, ticket: Ticket) -> Option<usize> {
        let first = self.promises.partition_point(|known| known.taken.start_ns < ticket.start_ns);
        let same_start = self.promises.iter().skip(first);
        let offset = same_start
            .take_while(|known| known.taken.start_ns == ticket.start_ns)
            .position(|known| known.serial == ticket.serial)?;
        Some(first.saturating_add(offset))
    }

    /// Returns the limits with all promises taken.
    pub(super) fn all_booked(&self) -> Members {
        self.booked_before(self.promises.len())
    }

    /// Returns the limits with the first `promises` promises taken.
    fn booked_before(&self, promises: usize) -> Members {
        match &self.booked {
            Some(booked) if booked.promises <= promises => {
                self.with_taken(booked.limits.clone(), booked.promises, promises)
            }
            _ => self.with_taken(self.started.clone(), 0, promises),
        }
    }

    /// Stores the limits with the first `promises` promises taken, in the allocation of the
    /// previous ones.
    fn book_up_to(&mut self, promises: usize, limits: Members) {
        let booked = Booked { promises, limits };
        match &mut self.booked {
            Some(before) => **before = booked,
            None => self.booked = Some(Box::new(booked)),
        }
    }

    /// Returns a number of promises that certainly start by `from_ns`, and the limits with them
    /// taken.
    fn booked_by(&self, from_ns: u64) -> (usize, Members) {
        let starts_by = |last: usize| {
            self.promises.get(last).is_some_and(|promise| promise.taken.start_ns <= from_ns)
        };
        match &self.booked {
            Some(booked) if booked.promises.checked_sub(1).is_some_and(starts_by) => {
                (booked.promises, booked.limits.clone())
            }
            _ => (0, self.started.clone()),
        }
    }

    fn with_taken(&self, mut limits: Members, from: usize, to: usize) -> Members {
        for promise in self.promises.iter().take(to).skip(from) {
            limits.take(promise.owed_by, promise.taken);
        }
        limits
    }
}
