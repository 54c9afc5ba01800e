//! The promises of a ledger: where a new one fits, and the state with them taken.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use super::{Booked, Ledger, Promise};
use crate::limit::Limit;
use crate::policy::{Held, Policy, Taken};
use crate::verdict::{Opening, Refusal, Ticket};

impl<P: Policy> Ledger<P> {
    /// Returns the instant at which `permits` could start, not before `from_ns`, for a request at
    /// the latest instant known.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why there is no such instant.
    pub fn opening_from(&self, from_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        self.opening_requested_at(self.latest_ns, from_ns, permits)
    }

    /// Returns the opening for a request made at `now_ns`: held permits count as if they started
    /// then.
    pub(crate) fn opening_requested_at(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        self.opening_behind_floor(now_ns, from_ns, self.floor_ns, permits)
    }

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
                self.opening_in(&booked.state, requested_ns, first_ns, permits)
            }
            _ => self.first_openings(requested_ns, first_ns, permits),
        };
        opening.map_err(|refusal| refusal.seen_from(first_ns.saturating_sub(from_ns)))
    }

    /// Returns the policy's opening in `state` from `from_ns` on, counting the held permits for a
    /// request made at `requested_ns`.
    fn opening_in(
        &self,
        state: &P::State,
        requested_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let Some(held) = NonZeroU64::new(self.held) else {
            return self.policy.opening(state, from_ns, permits);
        };
        let held = Held { from_ns: requested_ns, permits: held };
        self.policy.opening_behind(state, from_ns, held, permits)
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
        let (first, mut state) = self.booked_by(from_ns);
        let (searched_from_ns, mut from_ns) = (from_ns, from_ns);
        for (index, promise) in self.promises.iter().enumerate().skip(first) {
            // A promise for the same instant goes first, as everywhere.
            if from_ns < promise.taken.start_ns {
                match self.opening_in(&state, requested_ns, from_ns, permits) {
                    Ok(opening) if self.fits(&state, index, start(&opening), permits) => {
                        return Ok(opening);
                    }
                    Ok(_) | Err(Refusal::BeyondClock { .. }) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            self.policy.take(&mut state, promise.taken);
            from_ns = from_ns.max(promise.taken.start_ns);
        }
        let opening = self.opening_in(&state, requested_ns, from_ns, permits);
        opening.map_err(|refusal| refusal.seen_from(from_ns.saturating_sub(searched_from_ns)))
    }

    /// Returns `true` if all promises from `index` on conform after a grant at `start_ns` and all
    /// held permits.
    fn fits(&self, state: &P::State, index: usize, start_ns: u64, permits: NonZeroU64) -> bool {
        let starts_first = |promise: &Promise| start_ns < promise.taken.start_ns;
        if !self.promises.get(index).is_none_or(starts_first) {
            return false;
        }
        let from_ns = start_ns.saturating_sub(1);
        let permits = permits.saturating_add(self.held);
        let mut state = state.clone();
        self.policy.take(&mut state, Taken { from_ns, start_ns, permits });
        self.promises.iter().skip(index).all(|Promise { taken, .. }| {
            let opening = self.policy.opening(&state, taken.start_ns, taken.permits);
            let conforms = opening.is_ok_and(|opening| opening.start_ns == taken.start_ns);
            self.policy.take(&mut state, *taken);
            conforms
        })
    }

    /// Records a grant that has started or will start.
    pub(super) fn record(&mut self, taken: Taken) -> Ticket {
        let start_ns = taken.start_ns;
        let serial = self.next_serial;
        self.next_serial = self.next_serial.saturating_add(1);
        self.undone_from = self.next_serial;
        let floor_ns = core::mem::replace(&mut self.floor_ns, start_ns);
        let epoch = self.epoch;
        let ticket =
            |busy_until_ns| Ticket { serial, ..Ticket::booked(start_ns, busy_until_ns, epoch) };
        if start_ns <= self.latest_ns {
            let ticket = ticket(self.policy.busy_until_ns(&self.started, taken));
            self.take_started(taken);
            if self.promises.is_empty() {
                self.booked = None;
            } else {
                let state = self.started_with_all();
                self.book_up_to(self.promises.len(), state);
            }
            self.note_grants();
            return ticket.with_in_flight(self.policy.in_flight(&self.started));
        }
        let index = self.promises.partition_point(|promise| promise.taken.start_ns <= start_ns);
        if self.booked.as_ref().is_none_or(|booked| booked.promises != index) {
            let state = self.booked_before(index);
            self.book_up_to(index, state);
        }
        let state = self.booked.as_ref().map_or(&self.started, |booked| &booked.state);
        let ticket = ticket(self.policy.busy_until_ns(state, taken));
        let promise = Promise { serial, taken, floor_ns, is_provisional: false, is_owed: false };
        self.promises.insert(index, promise);
        if let Some(booked) = &mut self.booked {
            self.policy.take(&mut booked.state, taken);
            booked.promises = index.saturating_add(1);
        }
        self.note_grants();
        ticket
    }

    /// Marks the promises booked from `serial` on as parts of a debt.
    pub(super) fn note_owed(&mut self, serial: u64) {
        for promise in self.promises.iter_mut().filter(|promise| promise.serial >= serial) {
            promise.is_owed = true;
        }
    }

    /// Returns the parts of a debt that have not started by `now_ns`.
    pub(super) fn owed(&self, now_ns: u64) -> impl DoubleEndedIterator<Item = &Taken> {
        let owed = self.promises.iter().filter(|promise| promise.is_owed);
        owed.map(|promise| &promise.taken).filter(move |taken| taken.start_ns > now_ns)
    }

    /// Takes the promises that have started by `now_ns`.
    pub(super) fn start_promises(&mut self, now_ns: u64) {
        self.latest_ns = self.latest_ns.max(now_ns);
        while let Some(&Promise { taken, is_provisional, .. }) = self.promises.front() {
            if taken.start_ns > self.latest_ns {
                break;
            }
            if is_provisional {
                self.held = self.held.saturating_add(taken.permits.get());
                self.booked = None;
            } else {
                self.take_started(taken);
                self.booked = self.booked.take().and_then(|mut booked| {
                    booked.promises = booked.promises.checked_sub(1)?;
                    Some(booked)
                });
            }
            self.promises.pop_front();
        }
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

    /// Returns the state with all promises taken.
    pub(super) fn all_booked(&self) -> P::State {
        self.booked_before(self.promises.len())
    }

    /// Returns the state with the first `promises` promises taken.
    fn booked_before(&self, promises: usize) -> P::State {
        match &self.booked {
            Some(booked) if booked.promises <= promises => {
                self.with_taken(booked.state.clone(), booked.promises, promises)
            }
            _ => self.with_taken(self.started.clone(), 0, promises),
        }
    }

    /// Stores the state with the first `promises` promises taken, in the allocation of the
    /// previous one.
    fn book_up_to(&mut self, promises: usize, state: P::State) {
        let booked = Booked { promises, state };
        match &mut self.booked {
            Some(before) => **before = booked,
            None => self.booked = Some(Box::new(booked)),
        }
    }

    /// Returns the state with all promises taken, computed from the started state alone.
    fn started_with_all(&self) -> P::State {
        self.with_taken(self.started.clone(), 0, self.promises.len())
    }

    /// Returns a number of promises that certainly start by `from_ns`, and the state with them
    /// taken.
    fn booked_by(&self, from_ns: u64) -> (usize, P::State) {
        let starts_by = |last: usize| {
            self.promises.get(last).is_some_and(|promise| promise.taken.start_ns <= from_ns)
        };
        match &self.booked {
            Some(booked) if booked.promises.checked_sub(1).is_some_and(starts_by) => {
                (booked.promises, booked.state.clone())
            }
            _ => (0, self.started.clone()),
        }
    }

    fn with_taken(&self, mut state: P::State, from: usize, to: usize) -> P::State {
        for promise in self.promises.iter().take(to).skip(from) {
            self.policy.take(&mut state, promise.taken);
        }
        state
    }
}
