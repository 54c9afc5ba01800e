//! A policy at work: its state, the promises it has given, and a clock that never goes back.
//!
//! Grants whose start has come are folded into the state and forgotten. A promise for later stays
//! on a list until then, so that it can be cancelled, and so that a change of the limit keeps it.
//!
//! ```text
//!   started grants | promises, in the order of their starts
//!   ===============+----------o------o----x----o------------> time
//!    state        now                     ^ cancelled: the next call that fits takes the place
//! ```
//!
//! New calls come after all promises, in order of asking. Only where a cancelled call or a change
//! of the limit has left a place free does a later call start sooner than a promise: it takes the
//! first place in which it and every promise behind it conform to the policy.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::num::NonZeroU64;

use crate::limit::Limit;
use crate::policy::{Held, Policy, Taken};
use crate::provisional::Provisional;
use crate::refund::{Past, Refund};
use crate::verdict::{Grant, Opening, Refusal, Ticket};

/// One policy's live limit.
#[derive(Clone, Debug)]
pub struct Ledger<P: Policy> {
    policy: P,
    /// What has started.
    started: P::State,
    /// What has started and the first promises, up to the newest booking. Absent before the first promise, when
    /// `started` says the same, and after a cancel or a change until the next booking.
    booked: Option<Box<Booked<P::State>>>,
    /// Not yet started, by start and then by order of asking.
    promises: VecDeque<Promise>,
    /// Permits of waiters whose start has come and who have not taken them.
    held: u64,
    /// No call starts sooner.
    floor_ns: u64,
    latest_ns: u64,
    next_serial: u64,
    /// Grants with lower serial numbers were decided under other numbers.
    changed_from: u64,
    /// All grants from this serial number on have been cancelled.
    undone_from: u64,
    /// What has come back so far.
    past: Past,
    /// When the limit would have been as good as fresh behind the last grant, had nothing come back. Until
    /// then grants of before have to be told from those of a limit that is made afresh.
    busy_until_ns: u64,
    /// Grants with lower serial numbers may have started when their tickets do not say.
    first_on_time: u64,
    /// How many bookings in a row have left no promise.
    calm: u64,
}

/// A state with the first so many promises taken.
#[derive(Clone, Debug)]
struct Booked<S> {
    promises: usize,
    state: S,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    serial: u64,
    taken: Taken,
    /// The floor as it was before.
    floor_ns: u64,
    /// Whether its permits are held from its start on, until its waiter takes them.
    is_provisional: bool,
}

impl<P: Policy> Ledger<P> {
    /// A fresh limit whose clock shows `now_ns`.
    #[must_use]
    pub fn new(policy: P, now_ns: u64) -> Self {
        let started = policy.fresh(now_ns);
        Self::with_state(policy, started, now_ns)
    }

    /// A limit that goes on from `state` at `now_ns`.
    #[must_use]
    pub fn with_state(policy: P, state: P::State, now_ns: u64) -> Self {
        Self::resumed(policy, state, Past::NONE, now_ns)
    }

    /// The same, where so much had come back before. For whoever keeps states without their ledgers;
    /// see [`Ledger::state_alone`].
    #[must_use]
    pub fn resumed(policy: P, state: P::State, past: Past, now_ns: u64) -> Self {
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
            past,
            busy_until_ns,
            first_on_time: 0,
            calm: u64::MAX,
        }
    }

    /// A limit that goes on from `state` at `now_ns`, in which nobody new starts before `floor_ns`.
    pub(crate) fn with_floor(policy: P, state: P::State, floor_ns: u64, now_ns: u64) -> Self {
        // What a grant of before says of itself holds no longer.
        let past = Past::NONE.and_changed();
        Self { floor_ns, past, ..Self::with_state(policy, state, now_ns) }
    }

    /// The limit in force.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// The state, promises left out.
    #[must_use]
    pub const fn state(&self) -> &P::State {
        &self.started
    }

    /// How many promises wait for their start.
    #[must_use]
    pub fn promised(&self) -> usize {
        self.promises.len()
    }

    /// Whether the state says everything but the floor: no promise is out, and nothing is held.
    fn is_alone(&self) -> bool {
        self.promises.is_empty() && self.held == 0
    }

    /// The state with all promises taken, and the instant before which nobody new starts. A place that was
    /// given back among promises is not told of.
    pub(crate) fn with_promises(&self) -> (P::State, u64) {
        let last_ns = self.promises.back().map_or(0, |last| last.taken.start_ns);
        (self.all_booked(), self.floor_ns.max(last_ns))
    }

    /// Returns what the clock shows, if but for what has started this cannot be told from a ledger that
    /// is made now.
    pub(crate) fn as_if_made_at(&self) -> Option<u64> {
        let is_fresh = self.is_alone()
            && self.booked.is_none()
            && self.floor_ns <= self.latest_ns
            && self.busy_until_ns <= self.latest_ns
            && (self.next_serial, self.undone_from, self.changed_from) == (1, 1, 1)
            && self.first_on_time == 0
            && self.past == Past::NONE
            && self.calm == u64::MAX;
        is_fresh.then_some(self.latest_ns)
    }

    /// Goes on from a state that was kept elsewhere for a while, and decided on until `newest_ns`.
    pub(crate) fn resume(&mut self, state: P::State, newest_ns: u64) {
        self.latest_ns = self.latest_ns.max(newest_ns);
        self.started = state;
        self.booked = None;
        self.calm = 0;
        self.note_grants();
    }

    /// The clock at `now_ns`, if the state alone says everything then: no promise is out, and
    /// `patience` calls in a row have not needed one.
    pub(crate) fn at_rest(&mut self, now_ns: u64, patience: u64) -> Option<u64> {
        self.pass_to(now_ns);
        self.calm = self.calm.saturating_add(1);
        let rests = self.is_alone() && self.floor_ns <= self.latest_ns;
        if !rests {
            self.calm = 0;
        }
        (rests && self.calm >= patience).then_some(self.latest_ns)
    }

    /// The state, if from `now_ns` on it says everything: no promise is out, no more has come back
    /// than `past`, and once the state is as good as fresh no grant of before can give anything back.
    pub fn state_alone(&mut self, past: Past, now_ns: u64) -> Option<&P::State> {
        self.pass_to(now_ns);
        let rests = self.is_alone() && self.floor_ns <= self.latest_ns;
        // After a change of the numbers a state may be fresh long before the grants of before would
        // have let it be.
        let fresh_ns = self.policy.fresh_at_ns(&self.started).unwrap_or(u64::MAX);
        let tells_all = self.busy_until_ns <= fresh_ns.max(self.latest_ns);
        // Nor may a ticket say a later start than there was.
        let on_time = self.first_on_time == 0;
        (rests && self.past == past && tells_all && on_time).then_some(&self.started)
    }

    /// Whether at `now_ns` no decision could tell this limit from a fresh one. Giving back a grant of
    /// before might.
    pub fn is_as_fresh(&mut self, now_ns: u64) -> bool {
        self.pass_to(now_ns);
        self.is_alone()
            && self.floor_ns <= self.latest_ns
            && self.policy.is_as_fresh(&self.started, self.latest_ns)
    }

    /// Whether at `now_ns` nobody could tell this limit from a fresh one: by no decision, and by giving
    /// back no grant of before.
    pub fn may_be_forgotten(&mut self, now_ns: u64) -> bool {
        self.pass_to(now_ns);
        self.is_alone()
            && self.busy_until_ns <= self.latest_ns
            && self.policy.is_as_fresh(&self.started, self.latest_ns)
    }

    /// Takes back permits that have started without a grant to show, as many as the limit has given out and not earned
    /// again: see [`Policy::credit`]. Returns how many. Promises are [cancelled](Limit::cancel) instead.
    pub fn credit(&mut self, now_ns: u64, permits: u64) -> u64 {
        self.pass_to(now_ns);
        let back = self.policy.credit(&mut self.started, self.latest_ns, permits).min(permits);
        self.note_return(back);
        back
    }

    /// From when on no decision can tell this limit from a fresh one, if nobody asks meanwhile: an instant not before
    /// `now_ns`. `None` if time alone makes it no fresh one.
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

    /// What has come back so far.
    #[must_use]
    pub const fn past(&self) -> Past {
        self.past
    }

    /// Takes note of a change of somebody's numbers: what grants of before say of this limit holds
    /// no longer.
    pub(crate) fn note_change(&mut self) {
        self.past = self.past.and_changed();
    }

    /// Takes note of how long the grants in `started`, or else in `booked`, will tell something.
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

    /// Takes back permits of which it has been shown that the limit is then as if they had never
    /// been taken.
    pub(crate) fn restore(&mut self, now_ns: u64, permits: u64) {
        self.pass_to(now_ns);
        self.apply(Refund::proven(self.latest_ns, permits));
    }

    /// How many permits [`Limit::refund`] would take back.
    pub(crate) fn refundable(&self, now_ns: u64, grant: &Grant, permits: u64) -> u64 {
        let mut after = self.clone();
        after.refund(now_ns, grant, permits)
    }

    fn apply(&mut self, refund: Refund) -> u64 {
        let permits = self.policy.refund(&mut self.started, refund).min(refund.permits);
        self.note_return(permits);
        permits
    }

    /// Takes note of permits that have come back to what has started.
    fn note_return(&mut self, permits: u64) {
        if permits > 0 {
            self.past = self.past.and_returned(permits);
            // Before a promise there may be room now.
            self.booked = None;
            self.floor_ns = self.latest_ns;
        }
    }

    /// Puts `policy` into force at `now_ns`. Permits in use stay in use, and the rest of a larger allowance is there
    /// at once; promises are kept.
    pub fn reconfigure(&mut self, now_ns: u64, policy: P) {
        self.pass_to(now_ns);
        policy.rebase(&mut self.started, &self.policy, self.latest_ns);
        if policy != self.policy {
            self.changed_from = self.next_serial;
        }
        self.policy = policy;
        self.note_change();
        // Before a promise of the old limit there may be room for calls under the new one.
        self.booked = None;
        self.floor_ns = self.latest_ns;
    }

    /// Forgets everything, promises included, as if the limit were made at `now_ns`.
    pub fn restart(&mut self, now_ns: u64) {
        self.restart_as(now_ns, self.policy.clone());
    }

    /// The same with other numbers from then on.
    pub fn restart_as(&mut self, now_ns: u64, policy: P) {
        let now_ns = self.clamp(now_ns);
        let (next_serial, past) = (self.next_serial, self.past.and_changed());
        let (undone_from, changed_from, busy_until_ns) =
            (next_serial, next_serial, self.busy_until_ns);
        // Waiters that have not taken their permits may still do so.
        let provisional = self.promises.iter().filter(|promise| promise.is_provisional);
        let held = provisional
            .fold(self.held, |held, promise| held.saturating_add(promise.taken.permits.get()));
        let fresh = Self::new(policy, now_ns);
        *self = Self { held, next_serial, changed_from, undone_from, past, busy_until_ns, ..fresh };
    }

    /// Returns when `permits` could start at `from_ns` or later, if asked for at the latest instant known.
    ///
    /// # Errors
    ///
    /// The [`Refusal`] that says why they never could.
    pub fn opening_from(&self, from_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        self.opening_asked(self.latest_ns, from_ns, permits)
    }

    /// The same if asked for at `now_ns`: what is held counts as if it started then.
    pub(crate) fn opening_asked(
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
        let asked_ns = self.clamp(now_ns);
        let first_ns = asked_ns.max(from_ns).max(floor_ns);
        let opening = match (self.promises.back(), &self.booked) {
            (None, _) => self.opening_in(&self.started, asked_ns, first_ns, permits),
            (Some(last), Some(booked))
                if last.taken.start_ns <= first_ns && booked.promises == self.promises.len() =>
            {
                self.opening_in(&booked.state, asked_ns, first_ns, permits)
            }
            _ => self.first_places(asked_ns, first_ns, permits),
        };
        opening.map_err(|refusal| refusal.seen_from(first_ns.saturating_sub(from_ns)))
    }

    /// Returns the policy's opening in `state` from `from_ns` on, together with what is held when a caller asks at
    /// `asked_ns`.
    fn opening_in(
        &self,
        state: &P::State,
        asked_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let Some(held) = NonZeroU64::new(self.held) else {
            return self.policy.opening(state, from_ns, permits);
        };
        let held = Held { from_ns: asked_ns, permits: held };
        self.policy.opening_behind(state, from_ns, held, permits)
    }

    /// The first places among the promises for a reservation and for a try.
    fn first_places(
        &self,
        asked_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let reserved = self.first_place(asked_ns, from_ns, permits, |opening| opening.start_ns)?;
        let tried = self.first_place(asked_ns, from_ns, permits, |opening| opening.opens_ns)?;
        Ok(Opening { opens_ns: tried.opens_ns, ..reserved })
    }

    /// The first place among the promises that holds `permits`, starting at the instant that
    /// `start` picks, and disturbs no promise.
    fn first_place(
        &self,
        asked_ns: u64,
        from_ns: u64,
        permits: NonZeroU64,
        start: impl Fn(&Opening) -> u64,
    ) -> Result<Opening, Refusal> {
        let (first, mut state) = self.booked_by(from_ns);
        let (looked_from_ns, mut from_ns) = (from_ns, from_ns);
        for (index, promise) in self.promises.iter().enumerate().skip(first) {
            // Behind a promise for the same instant, as everywhere.
            if from_ns < promise.taken.start_ns {
                match self.opening_in(&state, asked_ns, from_ns, permits) {
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
        let opening = self.opening_in(&state, asked_ns, from_ns, permits);
        opening.map_err(|refusal| refusal.seen_from(from_ns.saturating_sub(looked_from_ns)))
    }

    /// Whether all promises from `index` on conform behind a grant at `start_ns` and all that is held.
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

    /// Records a grant that has started or will.
    fn record(&mut self, taken: Taken) -> Ticket {
        let start_ns = taken.start_ns;
        let serial = self.next_serial;
        self.next_serial = self.next_serial.saturating_add(1);
        self.undone_from = self.next_serial;
        let floor_ns = core::mem::replace(&mut self.floor_ns, start_ns);
        let past = self.past;
        let ticket =
            |busy_until_ns| Ticket { serial, ..Ticket::booked(start_ns, busy_until_ns, past) };
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
        let place = self.promises.partition_point(|promise| promise.taken.start_ns <= start_ns);
        if self.booked.as_ref().is_none_or(|booked| booked.promises != place) {
            let state = self.booked_before(place);
            self.book_up_to(place, state);
        }
        let state = self.booked.as_ref().map_or(&self.started, |booked| &booked.state);
        let ticket = ticket(self.policy.busy_until_ns(state, taken));
        let promise = Promise { serial, taken, floor_ns, is_provisional: false };
        self.promises.insert(place, promise);
        if let Some(booked) = &mut self.booked {
            self.policy.take(&mut booked.state, taken);
            booked.promises = place.saturating_add(1);
        }
        self.note_grants();
        ticket
    }

    /// Takes a promise off the list, if its start has not come.
    fn withdraw(&mut self, ticket: Ticket) -> Option<Promise> {
        let place = self.place_of(ticket)?;
        self.booked = None;
        self.promises.remove(place)
    }

    /// Returns where a promise is on the list, if its start has not come.
    fn place_of(&self, ticket: Ticket) -> Option<usize> {
        let first = self.promises.partition_point(|known| known.taken.start_ns < ticket.start_ns);
        let same_start = self.promises.iter().skip(first);
        let offset = same_start
            .take_while(|known| known.taken.start_ns == ticket.start_ns)
            .position(|known| known.serial == ticket.serial)?;
        Some(first.saturating_add(offset))
    }

    /// Returns the state with all promises in it.
    fn all_booked(&self) -> P::State {
        self.booked_before(self.promises.len())
    }

    /// Returns the state with the first `promises` in it.
    fn booked_before(&self, promises: usize) -> P::State {
        match &self.booked {
            Some(booked) if booked.promises <= promises => {
                self.with_taken(booked.state.clone(), booked.promises, promises)
            }
            _ => self.with_taken(self.started.clone(), 0, promises),
        }
    }

    /// Keeps a state with the first so many promises, where the one of before was.
    fn book_up_to(&mut self, promises: usize, state: P::State) {
        let booked = Booked { promises, state };
        match &mut self.booked {
            Some(before) => **before = booked,
            None => self.booked = Some(Box::new(booked)),
        }
    }

    /// Returns the same from what has started alone.
    fn started_with_all(&self) -> P::State {
        self.with_taken(self.started.clone(), 0, self.promises.len())
    }

    /// Returns how many promises start by `from_ns` for certain, and the state with them.
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
        self.opening_asked(now_ns, now_ns, permits)
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
            // No grant that stands was made behind it, so what they tell holds as if it had never been.
            self.undone_from = promise.serial;
        } else {
            self.past = self.past.and_returned(promise.taken.permits.get());
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
        let Ticket { start_ns, serial, rest, past } = grant.ticket;
        let has_started = start_ns <= self.latest_ns && serial >= self.first_on_time;
        let permits = permits.min(grant.permits);
        if !has_started || permits == 0 {
            return 0;
        }
        let returned = self.past.returned_since(past);
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
                // Places between promises: as many as still fit.
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
        // It may have filled what a grant of before says was not full. Several limits count alike.
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

    fn forgo(&mut self, now_ns: u64, permits: u64) -> bool {
        self.pass_to(now_ns);
        let taken = self.policy.forgo(&mut self.started, self.latest_ns, permits);
        if taken {
            // As after a cancel, there may be room before a promise.
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
        // A schedule is never as good as fresh: what it has started keeps the next one from starting.
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
        let Some(place) = self.place_of(ticket) else { return false };
        if let Some(promise) = self.promises.get_mut(place) {
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
        // Its waiter has waited for it: taken in time, it goes on from the exact instant that was
        // rounded up.
        let from_ns = self.latest_ns.min(start_ns.saturating_sub(1));
        let ticket = self.record(Taken { from_ns, start_ns, permits });
        self.floor_ns = floor_ns;
        ticket
    }

    fn forecast(&self, now_ns: u64) -> Self {
        let mut copy = self.clone();
        // As if their waiters came on time.
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
