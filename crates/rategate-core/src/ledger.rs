//! A policy's live limit: its state, its promised starts, and a clock that never goes back.
//!
//! Grants whose start has come are folded into the state and are no longer known one by one. A
//! promise of a later start stays on a list until then, so that it can be cancelled and a change
//! of the limit keeps it.
//!
//! ```text
//!   started grants | promises, in the order of their starts
//!   ===============+----------o------o----x----o------------> time
//!    state        now                     ^ cancelled: the next call that fits starts here
//! ```
//!
//! New calls start after all promises, in the order of their requests. Only a cancelled call or a
//! change of the limit leaves a free interval between promises. A later call may then start
//! before a promise: at the first instant at which it and every promise after it conform to the
//! policy.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::num::NonZeroU64;

use crate::limit::Limit;
use crate::policy::{Held, Policy, Taken};
use crate::provisional::Provisional;
use crate::refund::{Refund, RefundEpoch};
use crate::verdict::{Grant, Opening, Refusal, Ticket};

/// A live limit of one policy.
#[derive(Clone, Debug)]
pub struct Ledger<P: Policy> {
    policy: P,
    /// The state of all grants that have started.
    started: P::State,
    /// The state with the first promises taken, up to the newest booking. Absent before the first
    /// promise, when `started` says the same, and after a cancel or a change until the next
    /// booking.
    booked: Option<Box<Booked<P::State>>>,
    /// The grants that have not started, by start and then in the order of their requests.
    promises: VecDeque<Promise>,
    /// Permits of waiters whose start has come and who have not taken them.
    held: u64,
    /// The earliest instant at which a new call may start.
    floor_ns: u64,
    latest_ns: u64,
    next_serial: u64,
    /// The serial number below which grants were decided under other numbers.
    changed_from: u64,
    /// The serial number from which on all grants have been cancelled.
    undone_from: u64,
    /// The count of the permits that have come back and of the changes of the numbers so far.
    epoch: RefundEpoch,
    /// The instant by which the limit would have fully recovered after the last grant, had
    /// nothing come back. Until then earlier grants must be told apart from those of a newly
    /// created limit.
    busy_until_ns: u64,
    /// The serial number below which grants may have started at other instants than their tickets
    /// name.
    first_on_time: u64,
    /// The number of bookings in a row that have left no promise.
    calm: u64,
}

/// A state with the first `promises` promises taken.
#[derive(Clone, Debug)]
struct Booked<S> {
    promises: usize,
    state: S,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    serial: u64,
    taken: Taken,
    /// The floor before this promise was booked.
    floor_ns: u64,
    /// Set if the permits are held from their start until the waiter takes them.
    is_provisional: bool,
}

impl<P: Policy> Ledger<P> {
    /// Creates a fresh limit whose clock shows `now_ns`.
    #[must_use]
    pub fn new(policy: P, now_ns: u64) -> Self {
        let started = policy.fresh(now_ns);
        Self::with_state(policy, started, now_ns)
    }

    /// Creates a limit that continues from `state` at `now_ns`.
    #[must_use]
    pub fn with_state(policy: P, state: P::State, now_ns: u64) -> Self {
        Self::resumed(policy, state, RefundEpoch::NONE, now_ns)
    }

    /// Creates a limit that continues from `state` at `now_ns`, with the refund epoch `epoch`. It
    /// serves callers that keep states without their ledgers; see
    /// [`Ledger::quiescent_state`].
    #[must_use]
    pub fn resumed(policy: P, state: P::State, epoch: RefundEpoch, now_ns: u64) -> Self {
        let busy_until_ns = policy.fresh_at_ns(&state).unwrap_or(0);
        Self {
            policy,
            started: state,
            booked: None,
            promises: VecDeque::new(),
            held: 0,
            floor_ns: now_ns,
            latest_ns: now_ns,
            next_serial: 1,
            changed_from: 1,
            undone_from: 1,
            epoch,
            busy_until_ns,
            first_on_time: 0,
            calm: u64::MAX,
        }
    }

    /// Creates a limit that continues from `state` at `now_ns` and starts no new call before
    /// `floor_ns`.
    pub(crate) fn with_floor(policy: P, state: P::State, floor_ns: u64, now_ns: u64) -> Self {
        // What earlier tickets say about themselves no longer holds.
        let epoch = RefundEpoch::NONE.and_changed();
        Self { floor_ns, epoch, ..Self::with_state(policy, state, now_ns) }
    }

    /// Returns the limit in force.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// Returns the state without the promises.
    #[must_use]
    pub const fn state(&self) -> &P::State {
        &self.started
    }

    /// Returns the number of promises whose start has not come.
    #[must_use]
    pub fn promised(&self) -> usize {
        self.promises.len()
    }

    /// Returns `true` if there are no promises and no held permits, so that state and floor alone
    /// determine each decision.
    fn is_quiescent(&self) -> bool {
        self.promises.is_empty() && self.held == 0
    }

    /// Returns the state with all promises taken, and the instant before which no new call
    /// starts. Free intervals between promises are lost.
    pub(crate) fn with_promises(&self) -> (P::State, u64) {
        let last_ns = self.promises.back().map_or(0, |last| last.taken.start_ns);
        (self.all_booked(), self.floor_ns.max(last_ns))
    }

    /// Returns the clock's reading if this ledger differs from one created now only in what has
    /// started.
    pub(crate) fn pristine_at_ns(&self) -> Option<u64> {
        let is_fresh = self.is_quiescent()
            && self.booked.is_none()
            && self.floor_ns <= self.latest_ns
            && self.busy_until_ns <= self.latest_ns
            && (self.next_serial, self.undone_from, self.changed_from) == (1, 1, 1)
            && self.first_on_time == 0
            && self.epoch == RefundEpoch::NONE
            && self.calm == u64::MAX;
        is_fresh.then_some(self.latest_ns)
    }

    /// Continues from a state that was kept elsewhere and decided on until `newest_ns`.
    pub(crate) fn resume(&mut self, state: P::State, newest_ns: u64) {
        self.latest_ns = self.latest_ns.max(newest_ns);
        self.started = state;
        self.booked = None;
        self.calm = 0;
        self.note_grants();
    }

    /// Returns the clock's reading at `now_ns` if the state alone decides from then on: there are
    /// no promises, and `patience` calls in a row have not needed one.
    pub(crate) fn at_rest(&mut self, now_ns: u64, patience: u64) -> Option<u64> {
        self.pass_to(now_ns);
        self.calm = self.calm.saturating_add(1);
        let rests = self.is_quiescent() && self.floor_ns <= self.latest_ns;
        if !rests {
            self.calm = 0;
        }
        (rests && self.calm >= patience).then_some(self.latest_ns)
    }

    /// Returns the state if from `now_ns` on it alone determines each decision and refund.
    ///
    /// That takes four things: there are no promises, the refund epoch is `epoch`, no grant has
    /// started early, and once the state has fully recovered no earlier grant can be refunded.
    pub fn quiescent_state(&mut self, epoch: RefundEpoch, now_ns: u64) -> Option<&P::State> {
        self.pass_to(now_ns);
        let rests = self.is_quiescent() && self.floor_ns <= self.latest_ns;
        // After a change of the numbers a state may recover long before the earlier grants would
        // have let it.
        let fresh_ns = self.policy.fresh_at_ns(&self.started).unwrap_or(u64::MAX);
        let is_complete = self.busy_until_ns <= fresh_ns.max(self.latest_ns);
        // No ticket may name a later start than the real one.
        let on_time = self.first_on_time == 0;
        (rests && self.epoch == epoch && is_complete && on_time).then_some(&self.started)
    }

    /// Returns `true` if at `now_ns` no decision could tell this limit from a fresh one.
    /// Refunding an earlier grant might.
    pub fn is_as_fresh(&mut self, now_ns: u64) -> bool {
        self.pass_to(now_ns);
        self.is_quiescent()
            && self.floor_ns <= self.latest_ns
            && self.policy.is_as_fresh(&self.started, self.latest_ns)
    }

    /// Returns `true` if at `now_ns` the limit can be evicted: neither a decision nor the refund
    /// of an earlier grant could tell it from a fresh one.
    pub fn may_be_evicted(&mut self, now_ns: u64) -> bool {
        self.pass_to(now_ns);
        self.is_quiescent()
            && self.busy_until_ns <= self.latest_ns
            && self.policy.is_as_fresh(&self.started, self.latest_ns)
    }

    /// Takes back started permits for which the caller has no grant, and returns how many came
    /// back.
    ///
    /// These are at most as many as the limit has granted and not yet earned again; see
    /// [`Policy::credit`]. Promises are [cancelled](Limit::cancel) instead.
    pub fn credit(&mut self, now_ns: u64, permits: u64) -> u64 {
        self.pass_to(now_ns);
        let back = self.policy.credit(&mut self.started, self.latest_ns, permits).min(permits);
        self.note_return(back);
        back
    }

    /// Returns the instant from which no decision can tell this limit from a fresh one if no
    /// calls come, not before `now_ns`. Returns `None` if time alone never restores it.
    #[must_use]
    pub fn fresh_at_ns(&self, now_ns: u64) -> Option<u64> {
        if self.held > 0 {
            return None;
        }
        let now_ns = self.clamp(now_ns);
        if self.promises.is_empty() {
            let fresh_ns = self.policy.fresh_at_ns(&self.started)?;
            return Some(fresh_ns.max(self.floor_ns).max(now_ns));
        }
        let (booked, floor_ns) = self.with_promises();
        Some(self.policy.fresh_at_ns(&booked)?.max(floor_ns).max(now_ns))
    }

    /// Returns the refund epoch: the count of what has come back and changed so far.
    #[must_use]
    pub const fn epoch(&self) -> RefundEpoch {
        self.epoch
    }

    /// Records a change of a limit's numbers: what earlier tickets say about this limit no longer
    /// holds.
    pub(crate) fn note_change(&mut self) {
        self.epoch = self.epoch.and_changed();
    }

    /// Records how long the grants in `started`, or else in `booked`, can still affect a refund.
    fn note_grants(&mut self) {
        let fresh_ns = match &self.booked {
            Some(booked) if booked.promises == self.promises.len() => {
                self.policy.fresh_at_ns(&booked.state)
            }
            _ if self.promises.is_empty() => self.policy.fresh_at_ns(&self.started),
            _ => self.policy.fresh_at_ns(&self.all_booked()),
        };
        let fresh_ns = fresh_ns.unwrap_or(0);
        self.busy_until_ns = self.busy_until_ns.max(fresh_ns);
    }

    /// Takes back permits for which it has been proven that the limit is then as if they had
    /// never been taken.
    pub(crate) fn restore(&mut self, now_ns: u64, permits: u64) {
        self.pass_to(now_ns);
        self.apply(Refund::proven(self.latest_ns, permits));
    }

    /// Returns the number of permits that [`Limit::refund`] would take back.
    pub(crate) fn refundable(&self, now_ns: u64, grant: &Grant, permits: u64) -> u64 {
        let mut after = self.clone();
        after.refund(now_ns, grant, permits)
    }

    fn apply(&mut self, refund: Refund) -> u64 {
        let permits = self.policy.refund(&mut self.started, refund).min(refund.permits);
        self.note_return(permits);
        permits
    }

    /// Records permits that have come back to the started state.
    fn note_return(&mut self, permits: u64) {
        if permits > 0 {
            self.epoch = self.epoch.and_returned(permits);
            // A call may now fit before a promise.
            self.booked = None;
            self.floor_ns = self.latest_ns;
        }
    }

    /// Puts `policy` into force at `now_ns`. Permits in use stay in use, the rest of a larger
    /// allowance is available at once, and promises are kept.
    pub fn reconfigure(&mut self, now_ns: u64, policy: P) {
        self.pass_to(now_ns);
        policy.rebase(&mut self.started, &self.policy, self.latest_ns);
        if policy != self.policy {
            self.changed_from = self.next_serial;
        }
        self.policy = policy;
        self.note_change();
        // A call under the new limit may fit before a promise of the old one.
        self.booked = None;
        self.floor_ns = self.latest_ns;
    }

    /// Drops all state and all promises, as if the limit were created at `now_ns`.
    pub fn restart(&mut self, now_ns: u64) {
        self.restart_as(now_ns, self.policy.clone());
    }

    /// Drops all state and all promises, and continues with `policy` from `now_ns` on.
    pub fn restart_as(&mut self, now_ns: u64, policy: P) {
        let now_ns = self.clamp(now_ns);
        let (next_serial, epoch) = (self.next_serial, self.epoch.and_changed());
        let (undone_from, changed_from, busy_until_ns) =
            (next_serial, next_serial, self.busy_until_ns);
        // Waiters that have not taken their permits may still do so.
        let provisional = self.promises.iter().filter(|promise| promise.is_provisional);
        let held = provisional
            .fold(self.held, |held, promise| held.saturating_add(promise.taken.permits.get()));
        let fresh = Self::new(policy, now_ns);
        *self =
            Self { held, next_serial, changed_from, undone_from, epoch, busy_until_ns, ..fresh };
    }

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

    fn opening_behind_floor(
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
    fn record(&mut self, taken: Taken) -> Ticket {
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
            self.policy.take(&mut self.started, taken);
            if self.promises.is_empty() {
                self.booked = None;
            } else {
                let state = self.started_with_all();
                self.book_up_to(self.promises.len(), state);
            }
            self.note_grants();
            return ticket;
        }
        let index = self.promises.partition_point(|promise| promise.taken.start_ns <= start_ns);
        if self.booked.as_ref().is_none_or(|booked| booked.promises != index) {
            let state = self.booked_before(index);
            self.book_up_to(index, state);
        }
        let state = self.booked.as_ref().map_or(&self.started, |booked| &booked.state);
        let ticket = ticket(self.policy.busy_until_ns(state, taken));
        let promise = Promise { serial, taken, floor_ns, is_provisional: false };
        self.promises.insert(index, promise);
        if let Some(booked) = &mut self.booked {
            self.policy.take(&mut booked.state, taken);
            booked.promises = index.saturating_add(1);
        }
        self.note_grants();
        ticket
    }

    /// Removes a promise from the list, if its start has not come.
    fn withdraw(&mut self, ticket: Ticket) -> Option<Promise> {
        let index = self.index_of(ticket)?;
        self.booked = None;
        self.promises.remove(index)
    }

    /// Returns the index of a promise on the list, if its start has not come.
    fn index_of(&self, ticket: Ticket) -> Option<usize> {
        let first = self.promises.partition_point(|known| known.taken.start_ns < ticket.start_ns);
        let same_start = self.promises.iter().skip(first);
        let offset = same_start
            .take_while(|known| known.taken.start_ns == ticket.start_ns)
            .position(|known| known.serial == ticket.serial)?;
        Some(first.saturating_add(offset))
    }

    /// Returns the state with all promises taken.
    fn all_booked(&self) -> P::State {
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

impl<P: Policy> Limit for Ledger<P> {
    fn clamp(&self, now_ns: u64) -> u64 {
        self.latest_ns.max(now_ns)
    }

    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        self.opening_requested_at(now_ns, now_ns, permits)
    }

    fn book(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
        self.pass_to(now_ns);
        self.record(Taken { from_ns: self.latest_ns, start_ns, permits })
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
        self.policy.take(&mut self.started, Taken { start_ns, ..promise.taken });
        self.floor_ns = start_ns;
        self.first_on_time = self.next_serial;
        true
    }

    fn pass_to(&mut self, now_ns: u64) {
        self.latest_ns = self.latest_ns.max(now_ns);
        while let Some(first) = self.promises.front() {
            if first.taken.start_ns > self.latest_ns {
                break;
            }
            if first.is_provisional {
                self.held = self.held.saturating_add(first.taken.permits.get());
                self.booked = None;
            } else {
                self.policy.take(&mut self.started, first.taken);
                self.booked = self.booked.take().and_then(|mut booked| {
                    booked.promises = booked.promises.checked_sub(1)?;
                    Some(booked)
                });
            }
            self.promises.pop_front();
        }
    }

    fn refund(&mut self, now_ns: u64, grant: &Grant, permits: u64) -> u64 {
        self.pass_to(now_ns);
        let Ticket { start_ns, serial, rest, epoch } = grant.ticket;
        let has_started = start_ns <= self.latest_ns && serial >= self.first_on_time;
        let permits = permits.min(grant.permits);
        if !has_started || permits == 0 {
            return 0;
        }
        let returned = self.epoch.returned_since(epoch);
        let (now_ns, granted) = (self.latest_ns, grant.permits);
        self.apply(Refund { now_ns, start_ns, granted, permits, rest, returned })
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        let now_ns = self.clamp(now_ns);
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

    fn unhold(&mut self, permits: NonZeroU64) {
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

    fn opening_apart(
        &self,
        now_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        self.opening_behind_floor(now_ns, from_ns, 0, permits)
    }

    fn book_apart(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
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
        // As if the waiters came on time.
        copy.promises.iter_mut().for_each(|promise| promise.is_provisional = false);
        copy.pass_to(now_ns);
        if let Some(permits) = NonZeroU64::new(copy.held) {
            copy.held = 0;
            let start_ns = copy.latest_ns;
            let taken = Taken { from_ns: start_ns, start_ns, permits };
            copy.policy.take(&mut copy.started, taken);
            copy.booked = None;
        }
        copy
    }
}
