//! Ids of one key: what reservations hold, and what is remembered of those and of requests that
//! count once.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use rategate_core::debt::{Charged, Debt};
use rategate_core::holds::Committed;
use rategate_core::verdict::Settled;

use super::{Entry, Judged, PermitRequest};
use crate::store::memory::plan::{Labelled, MemoryPlan};
use crate::store::memory::state::LimitHold;
use crate::store::{
    Denial, EndOutcome, EndReply, Key, ReservationEnd, ReservationId, ReserveReply, ReserveVerdict,
    StoreError,
};

/// The remembered outcome of a request that counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::memory) enum OnceOutcome {
    Charged(Charged),
    Credited(u64),
}

/// The time for which an id is remembered after its end, unless its reservation could last longer.
const MEMORY_NS: u64 = 600_000_000_000;

/// The reservations of a key, open and remembered.
#[derive(Clone, Debug, Default)]
pub(in crate::store::memory) struct Reservations {
    by_id: HashMap<ReservationId, Reservation>,
}

/// A request to hold an estimate.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::memory) struct Estimate<'a> {
    pub(in crate::store::memory) plan: &'a Arc<MemoryPlan>,
    pub(in crate::store::memory) permits: NonZeroU64,
    pub(in crate::store::memory) id: ReservationId,
    pub(in crate::store::memory) ttl_ns: NonZeroU64,
    /// The permits that it leaves free.
    pub(in crate::store::memory) spared: u64,
}

impl Estimate<'_> {
    /// Returns the permits that have to be free.
    pub(in crate::store::memory) const fn needed(&self) -> NonZeroU64 {
        self.permits.saturating_add(self.spared)
    }
}

/// A request to end a reservation.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::memory) struct Ending<'a> {
    pub(in crate::store::memory) plan: &'a MemoryPlan,
    pub(in crate::store::memory) id: ReservationId,
    pub(in crate::store::memory) end: ReservationEnd,
    pub(in crate::store::memory) debt: Debt,
}

/// A reservation that lasts, and holds permits in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// The key.
    pub key: Key,
    /// The id of the reservation.
    pub id: ReservationId,
    /// The number of permits.
    pub permits: NonZeroU64,
    /// The time until it ends by itself.
    pub ends_in_ns: NonZeroU64,
}

/// A change of the instant from which an id is forgotten.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::memory) struct Moved {
    pub(in crate::store::memory) from_ns: u64,
    /// `None` if it is forgotten now.
    pub(in crate::store::memory) to_ns: Option<u64>,
}

/// A reservation, with what it holds or the outcome of its end; or a request that counts once.
#[derive(Clone, Debug)]
struct Reservation {
    permits: NonZeroU64,
    ttl_ns: NonZeroU64,
    /// The instant of its end: the one by itself until it is committed or cancelled.
    end_ns: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Not committed or cancelled. Its limits, and what each holds unless its time is over.
    Open(Arc<MemoryPlan>, Box<[LimitHold]>),
    Ended(EndOutcome),
    /// A request that was made.
    Once(OnceOutcome),
}

impl Entry {
    /// Decides a reservation. Returns the reply, and the instant from which a new id is forgotten.
    ///
    /// # Errors
    ///
    /// That of `admit`, which is called before a new id is remembered. Nothing is held then.
    pub(in crate::store::memory) fn reserve(
        &mut self,
        estimate: Estimate<'_>,
        now_ns: u64,
        admit: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(ReserveReply, Option<u64>), StoreError> {
        let Estimate { plan, permits, id, ttl_ns, .. } = estimate;
        let known = self.reservation(id).map(|known| (known.permits(), known.ends_in_ns(now_ns)));
        let mut due_ns = None;
        let verdict = match known {
            Some((held, ends_in_ns)) if held != permits.get() || ends_in_ns.is_err() => {
                ReserveVerdict::OtherPermits { permits: held }
            }
            Some((_, Ok(Some(ends_in_ns)))) => ReserveVerdict::Held { ends_in_ns },
            Some((_, _)) => ReserveVerdict::Ended,
            None => {
                let permits_needed = estimate.needed();
                let wanted =
                    PermitRequest { plan, permits: permits_needed, lease: None, is_debit: false };
                if let Judged::Denied(Denial { retry_after_ns, .. }) = self.judge(wanted, now_ns) {
                    ReserveVerdict::Denied { retry_after_ns }
                } else {
                    admit()?;
                    let end_ns = now_ns.saturating_add(ttl_ns.get());
                    let hold = |limit| self.state(limit, now_ns).hold(now_ns, id, permits, end_ns);
                    let holds = plan.limits().iter().map(hold).collect();
                    let reservation = Reservation::new(estimate, holds, now_ns);
                    due_ns = Some(reservation.due_ns());
                    self.reservations.get_or_insert_default().by_id.insert(id, reservation);
                    ReserveVerdict::Held { ends_in_ns: ttl_ns }
                }
            }
        };
        let (remaining, debt) = (self.remaining(plan, now_ns), self.debt(plan, now_ns));
        Ok((ReserveReply { verdict, is_repeated: known.is_some(), remaining, debt }, due_ns))
    }

    /// Ends a reservation. Returns the reply, and a change of the instant from which its id is
    /// forgotten.
    pub(in crate::store::memory) fn end(
        &mut self,
        ending: Ending<'_>,
        now_ns: u64,
    ) -> (EndReply, Option<Moved>) {
        let Ending { plan, id, end, .. } = ending;
        let (mut is_repeated, mut moved) = (false, None);
        let known = self.reservation(id).filter(|known| !matches!(known.state, State::Once(_)));
        let outcome = match known.map(Reservation::outcome) {
            None => EndOutcome::Unknown,
            Some(Some(outcome)) => {
                is_repeated = true;
                outcome
            }
            Some(None) => {
                let outcome = self.settle(ending, now_ns).unwrap_or(EndOutcome::Unknown);
                if let Some(ended) = self.reservation_mut(id) {
                    let from_ns = ended.due_ns();
                    ended.settle(outcome, now_ns);
                    let to_ns = (end != ReservationEnd::Withdraw).then_some(ended.due_ns());
                    moved = Some(Moved { from_ns, to_ns });
                }
                if end == ReservationEnd::Withdraw {
                    self.forget(id);
                }
                outcome
            }
        };
        let (remaining, debt) = (self.remaining(plan, now_ns), self.debt(plan, now_ns));
        (EndReply { outcome, is_repeated, remaining, debt }, moved)
    }

    /// Settles what an open reservation holds with each of its limits.
    fn settle(&mut self, ending: Ending<'_>, now_ns: u64) -> Option<EndOutcome> {
        let Ending { plan, id, end, debt } = ending;
        let reservation = self.reservation_mut(id)?;
        let (held_plan, holds) = reservation.take_holds()?;
        let counts_use = !held_plan.limits().iter().all(Labelled::holds);
        let mut settlement = Settlement::of(reservation, end, counts_use);
        for (limit, hold) in held_plan.limits().iter().zip(holds) {
            let Some(state) = self.states.iter_mut().find(|state| state.is_of(limit)) else {
                continue;
            };
            // The numbers may have changed since.
            if let Some(limit) = plan.limits().iter().find(|&limit| state.is_of(limit))
                && !state.has_numbers_of(limit)
            {
                state.follow(limit, now_ns);
            }
            if let Some(committed) = state.commit(now_ns, hold, settlement.used(), debt) {
                settlement.add(committed);
            }
        }
        Some(settlement.outcome(end, self.debt(plan, now_ns)))
    }

    /// Returns the outcome of a request of so many permits that was made under an id.
    ///
    /// # Errors
    ///
    /// [`StoreError::OtherRequest`] if the id is of another.
    pub(in crate::store::memory) fn outcome_once(
        &self,
        id: ReservationId,
        permits: NonZeroU64,
    ) -> Result<Option<OnceOutcome>, StoreError> {
        match self.reservation(id) {
            None => Ok(None),
            Some(Reservation { permits: known, state: State::Once(outcome), .. })
                if *known == permits =>
            {
                Ok(Some(*outcome))
            }
            Some(_) => Err(StoreError::OtherRequest),
        }
    }

    /// Remembers the outcome of a request. Returns the instant from which its id is forgotten.
    pub(in crate::store::memory) fn remember_once(
        &mut self,
        id: ReservationId,
        permits: NonZeroU64,
        outcome: OnceOutcome,
        now_ns: u64,
    ) -> u64 {
        let (ttl_ns, state) = (NonZeroU64::MIN, State::Once(outcome));
        let made = Reservation { permits, ttl_ns, end_ns: now_ns, state };
        let due_ns = made.due_ns();
        self.reservations.get_or_insert_default().by_id.insert(id, made);
        due_ns
    }

    /// Adds the reservations of permits in flight that last.
    pub(in crate::store::memory) fn add_in_flight(
        &self,
        key: &Key,
        now_ns: u64,
        to: &mut Vec<InFlight>,
    ) {
        let all = self.reservations.iter().flat_map(|known| &known.by_id);
        to.extend(all.filter_map(|(&id, known)| {
            let State::Open(_, holds) = &known.state else { return None };
            let is_held = |hold: &LimitHold| self.states.iter().any(|it| it.is_held(now_ns, *hold));
            let ends_in_ns = NonZeroU64::new(known.end_ns.saturating_sub(now_ns))?;
            let in_flight =
                InFlight { key: Key::clone(key), id, permits: known.permits, ends_in_ns };
            holds.iter().any(is_held).then_some(in_flight)
        }));
    }

    fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.reservations.as_ref()?.by_id.get(&id)
    }

    fn reservation_mut(&mut self, id: ReservationId) -> Option<&mut Reservation> {
        self.reservations.as_mut()?.by_id.get_mut(&id)
    }

    /// Returns the instant from which an id is forgotten.
    pub(in crate::store::memory) fn due_ns(&self, id: ReservationId) -> Option<u64> {
        self.reservation(id).map(Reservation::due_ns)
    }

    /// Forgets an id.
    pub(in crate::store::memory) fn forget(&mut self, id: ReservationId) {
        if let Some(reservations) = &mut self.reservations {
            reservations.by_id.remove(&id);
            if reservations.by_id.is_empty() {
                self.reservations = None;
            }
        }
    }

    /// Ends the holds whose time is over, so that no call has to do it on a copy.
    pub(in crate::store::memory) fn end_holds(&mut self, now_ns: u64) {
        if self.reservations.is_some() {
            self.states.iter_mut().for_each(|state| state.end_holds(now_ns));
        }
    }
}

impl Reservation {
    fn new(estimate: Estimate<'_>, holds: Box<[LimitHold]>, now_ns: u64) -> Self {
        let Estimate { plan, permits, ttl_ns, .. } = estimate;
        let end_ns = now_ns.saturating_add(ttl_ns.get());
        Self { permits, ttl_ns, end_ns, state: State::Open(Arc::clone(plan), holds) }
    }

    const fn permits(&self) -> u64 {
        self.permits.get()
    }

    /// Returns the time until it ends by itself, or `None` if it has ended.
    ///
    /// # Errors
    ///
    /// It is no reservation.
    const fn ends_in_ns(&self, now_ns: u64) -> Result<Option<NonZeroU64>, OnceOutcome> {
        match self.state {
            State::Open(..) => Ok(NonZeroU64::new(self.end_ns.saturating_sub(now_ns))),
            State::Ended(_) => Ok(None),
            State::Once(outcome) => Err(outcome),
        }
    }

    /// Returns the outcome of its commit or cancellation.
    const fn outcome(&self) -> Option<EndOutcome> {
        match self.state {
            State::Open(..) | State::Once(_) => None,
            State::Ended(outcome) => Some(outcome),
        }
    }

    /// Returns the instant from which the id is forgotten.
    fn due_ns(&self) -> u64 {
        self.end_ns.saturating_add(self.ttl_ns.get().max(MEMORY_NS))
    }

    /// Returns its limits and what they hold, unless it was committed or cancelled before.
    fn take_holds(&mut self) -> Option<(Arc<MemoryPlan>, Box<[LimitHold]>)> {
        let State::Open(plan, holds) = &mut self.state else { return None };
        Some((Arc::clone(plan), std::mem::take(holds)))
    }

    /// Records the outcome of its commit or cancellation.
    fn settle(&mut self, outcome: EndOutcome, now_ns: u64) {
        self.end_ns = now_ns;
        self.state = State::Ended(outcome);
    }
}

/// The reports of the limits of a reservation on its end, taken together.
#[derive(Clone, Copy, Debug)]
struct Settlement {
    held: u64,
    used: u64,
    /// The fewest permits that came back to a limit.
    back: u64,
    /// The most permits that a limit did not count.
    forgiven: u64,
    is_late: bool,
    /// `true` if any limit counts what is used: permits in flight have their number of each hold.
    counts_use: bool,
}

impl Settlement {
    fn of(reservation: &Reservation, end: ReservationEnd, counts_use: bool) -> Self {
        let held = reservation.permits();
        let used = match end {
            ReservationEnd::Commit { used } => used.unwrap_or(held),
            ReservationEnd::Cancel | ReservationEnd::Withdraw => 0,
        };
        let back = held.saturating_sub(used);
        Self { held, used, back, forgiven: 0, is_late: false, counts_use }
    }

    const fn used(&self) -> u64 {
        self.used
    }

    /// Adds what one of the limits reports.
    fn add(&mut self, committed: Committed) {
        match committed {
            Committed::InTime(Settled::Back { permits }) => self.back = self.back.min(permits),
            Committed::InTime(Settled::Owed { forgiven, .. }) => {
                self.forgiven = self.forgiven.max(forgiven);
            }
            Committed::InTime(Settled::Even) => {}
            Committed::Late(charged) => {
                self.is_late = true;
                self.forgiven = self.forgiven.max(charged.forgiven);
            }
        }
    }

    /// Returns the outcome; `debt` is that of the limits after it.
    const fn outcome(self, end: ReservationEnd, debt: u64) -> EndOutcome {
        let Self { held, used, back, forgiven, is_late, counts_use } = self;
        // To permits in flight alone nothing is charged.
        let used = match (counts_use, is_late) {
            (false, true) => 0,
            (false, false) if used > held => held,
            _ => used,
        };
        if is_late {
            return EndOutcome::Late(Charged {
                booked: used.saturating_sub(forgiven),
                forgiven,
                debt,
            });
        }
        EndOutcome::Committed(match (end, used.saturating_sub(held)) {
            (ReservationEnd::Cancel | ReservationEnd::Withdraw, _) => {
                return EndOutcome::Cancelled(back);
            }
            (_, 0) if used == held => Settled::Even,
            (_, 0) => Settled::Back { permits: back },
            (_, short) => Settled::Owed { permits: short.saturating_sub(forgiven), forgiven },
        })
    }
}
