//! Reservations of a key that this node holds in borrowed units, and the ids that it remembers.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rategate_core::debt::Charged;
use rategate_core::node::{LeaseHold, Leased};
use rategate_core::verdict::Settled;

use crate::store::{EndOutcome, Receipt, ReservationEnd, ReservationId, ReserveVerdict};

/// The time for which an id is remembered after its end, unless its reservation could last longer.
const MEMORY_NS: u64 = 600_000_000_000;

/// A request to hold an estimate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    pub(super) permits: NonZeroU64,
    pub(super) id: ReservationId,
    pub(super) ttl_ns: NonZeroU64,
}

/// The reservations of a key on this node.
#[derive(Debug)]
pub(super) struct HeldHere {
    by_id: HashMap<ReservationId, Known>,
    /// The instants at which one ends by itself, or is forgotten.
    due: BTreeSet<(u64, ReservationId)>,
    capacity: Arc<IdCapacity>,
}

/// The number of ids that a node remembers, of all keys, and its bound.
#[derive(Debug)]
pub(super) struct IdCapacity {
    known: AtomicUsize,
    max: usize,
}

#[derive(Debug)]
struct Known {
    permits: NonZeroU64,
    ttl_ns: NonZeroU64,
    due_ns: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Held in units of this node.
    Open(LeaseHold<Receipt>),
    /// It has ended by itself.
    Expired,
    /// It was committed or cancelled.
    Ended(EndOutcome),
    /// The store was asked to hold it, and is asked about it.
    AtStore,
}

/// An end that this node has decided, and the permits that are charged to the store for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedHere {
    pub(super) outcome: EndOutcome,
    pub(super) is_repeated: bool,
    pub(super) charge: u64,
}

impl HeldHere {
    pub(super) fn new(capacity: Arc<IdCapacity>) -> Self {
        Self { by_id: HashMap::new(), due: BTreeSet::new(), capacity }
    }

    /// Returns `true` if nothing is held and no id is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns the instant at which something ends or is forgotten.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| *due_ns)
    }

    /// Ends the reservations whose time is over, and forgets those that ended long ago.
    pub(super) fn pass_to(&mut self, now_ns: u64, machine: &mut Leased<Receipt>) {
        while self.next_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let Some((_, id)) = self.due.pop_first() else { return };
            let Some(known) = self.by_id.get_mut(&id) else { continue };
            if let State::Open(_) = known.state {
                let due_ns = known.due_ns.saturating_add(known.memory_ns());
                if let State::Open(hold) = std::mem::replace(&mut known.state, State::Expired) {
                    machine.end_hold(now_ns, hold, 0);
                }
                known.due_ns = due_ns;
                self.due.insert((due_ns, id));
            } else {
                self.by_id.remove(&id);
                self.capacity.release();
            }
        }
    }

    /// Decides a reservation by what this node knows and has, or returns `None`: the store
    /// decides. Returns `true` beside a verdict that was known before.
    pub(super) fn reserve(
        &mut self,
        now_ns: u64,
        machine: &mut Leased<Receipt>,
        estimate: Estimate,
    ) -> Option<(ReserveVerdict, bool)> {
        let Estimate { permits, id, ttl_ns } = estimate;
        if let Some(known) = self.by_id.get(&id) {
            let verdict = match known.state {
                State::AtStore => return None,
                _ if known.permits != permits => {
                    ReserveVerdict::OtherPermits { permits: known.permits.get() }
                }
                State::Open(_) => {
                    let left_ns = NonZeroU64::new(known.due_ns.saturating_sub(now_ns));
                    let ends_in_ns = left_ns.unwrap_or(NonZeroU64::MIN);
                    ReserveVerdict::Held { ends_in_ns }
                }
                State::Expired | State::Ended(_) => ReserveVerdict::Ended,
            };
            return Some((verdict, true));
        }
        if !self.capacity.take() {
            return None;
        }
        let hold = machine.try_hold(now_ns, permits);
        let end_ns = now_ns.saturating_add(ttl_ns.get());
        let (state, due_ns, verdict) = match hold {
            Some(hold) => {
                let verdict = ReserveVerdict::Held { ends_in_ns: ttl_ns };
                (State::Open(hold), end_ns, Some((verdict, false)))
            }
            // Its reply may be lost, and then the store may hold it.
            None => (State::AtStore, end_ns.saturating_add(memory_ns(ttl_ns)), None),
        };
        self.by_id.insert(id, Known { permits, ttl_ns, due_ns, state });
        self.due.insert((due_ns, id));
        verdict
    }

    /// Ends a reservation that this node has held, or returns `None`: the store is asked.
    pub(super) fn end(
        &mut self,
        now_ns: u64,
        machine: &mut Leased<Receipt>,
        id: ReservationId,
        end: ReservationEnd,
    ) -> Option<EndedHere> {
        let known = self.by_id.get_mut(&id)?;
        let estimate = known.permits.get();
        let used = match end {
            ReservationEnd::Commit { used } => used.unwrap_or(estimate),
            ReservationEnd::Cancel | ReservationEnd::Withdraw => 0,
        };
        let short = used.saturating_sub(estimate);
        let (outcome, charged) = match std::mem::replace(&mut known.state, State::Expired) {
            State::AtStore => {
                known.state = State::AtStore;
                return None;
            }
            State::Ended(outcome) => {
                known.state = State::Ended(outcome);
                return Some(EndedHere { outcome, is_repeated: true, charge: 0 });
            }
            State::Expired => {
                (EndOutcome::Late(Charged { booked: used, forgiven: 0, debt: 0 }), used)
            }
            State::Open(hold) => {
                let permits = machine.end_hold(now_ns, hold, used.min(estimate));
                let settled = match used.checked_sub(estimate) {
                    None => Settled::Back { permits },
                    Some(0) => Settled::Even,
                    Some(permits) => Settled::Owed { permits, forgiven: 0 },
                };
                let outcome = match end {
                    ReservationEnd::Cancel | ReservationEnd::Withdraw => {
                        EndOutcome::Cancelled(permits)
                    }
                    ReservationEnd::Commit { .. } => EndOutcome::Committed(settled),
                };
                (outcome, short)
            }
        };
        self.due.remove(&(known.due_ns, id));
        if end == ReservationEnd::Withdraw {
            self.by_id.remove(&id);
            self.capacity.release();
        } else {
            known.due_ns = now_ns.saturating_add(known.memory_ns());
            known.state = State::Ended(outcome);
            self.due.insert((known.due_ns, id));
        }
        let charge = charged.saturating_sub(machine.charge(now_ns, charged));
        Some(EndedHere { outcome, is_repeated: false, charge })
    }

    /// Forgets that the store was asked to hold a reservation, since it holds none.
    pub(super) fn forget_at_store(&mut self, id: ReservationId) {
        if let Some(Known { state: State::AtStore, due_ns, .. }) = self.by_id.get(&id) {
            self.due.remove(&(*due_ns, id));
            self.by_id.remove(&id);
            self.capacity.release();
        }
    }
}

impl Drop for HeldHere {
    fn drop(&mut self) {
        self.by_id.keys().for_each(|_| self.capacity.release());
    }
}

impl Known {
    fn memory_ns(&self) -> u64 {
        memory_ns(self.ttl_ns)
    }
}

fn memory_ns(ttl_ns: NonZeroU64) -> u64 {
    ttl_ns.get().max(MEMORY_NS)
}

impl IdCapacity {
    pub(super) const fn new(max: usize) -> Self {
        Self { known: AtomicUsize::new(0), max }
    }

    fn take(&self) -> bool {
        let one_more = |known: usize| (known < self.max).then(|| known.saturating_add(1));
        self.known.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn release(&self) {
        self.known.fetch_sub(1, Ordering::Relaxed);
    }
}
