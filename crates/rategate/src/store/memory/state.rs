//! The state of one limit of one key: a ledger of the core, or permits in flight.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate_core::debt::{Charged, Debt};
use rategate_core::holds::{Committed, Hold};
use rategate_core::ledger::Ledger;
use rategate_core::refund::RefundEpoch;
use rategate_core::verdict::{Grant, Settled, Ticket};

use super::leases::{HolderId, Leases};
use super::plan::Labelled;
use crate::store::{LeaseId, ReservationId, Rule};

/// The state of one limit of one key: its grants or leases, and their era.
#[derive(Clone, Debug)]
pub(super) struct State {
    label: Arc<str>,
    live: Live,
    /// The era of its grants. Grants before the last reset or loss of data have another.
    era: u64,
    /// The instant by which it would have fully recovered after the last grant, had nothing come
    /// back. Until then earlier grants must be told apart from those of a new state.
    recovers_by_ns: u64,
}

#[derive(Clone, Debug)]
enum Live {
    Paced(Ledger),
    Held(Leases),
}

/// The permits that a reservation holds in one limit.
#[derive(Clone, Copy, Debug)]
pub(super) enum LimitHold {
    Paced(Hold),
    /// So many permits in flight, under the id of the reservation.
    InFlight(ReservationId, u64),
}

/// The data by which one limit judges a refund: see [`Ticket`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Trace {
    pub(super) busy_until_ns: u64,
    pub(super) epoch: u64,
    pub(super) era: u64,
}

/// A grant, and the permits of it that come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantReturn {
    pub(super) granted: u64,
    pub(super) start_ns: u64,
    pub(super) permits: u64,
}

impl State {
    /// Creates the state of an unused limit.
    pub(super) fn fresh(limit: &Labelled, now_ns: u64, era: u64) -> Self {
        let live = limit.policy().map_or_else(
            || Live::Held(Leases::default()),
            |policy| Live::Paced(Ledger::new(policy, now_ns)),
        );
        Self { label: Arc::clone(&limit.label), live, era, recovers_by_ns: 0 }
    }

    /// Returns `true` if the state is of this limit: the label and the kind are the same.
    ///
    /// The numbers of the limit may differ.
    pub(super) fn is_of(&self, limit: &Labelled) -> bool {
        let same_kind = match (&self.live, limit.policy()) {
            (Live::Held(_), None) => true,
            (Live::Paced(ledger), Some(policy)) => {
                ledger.policies().map(|in_force| in_force.is_like(&policy)).eq([true])
            }
            _ => false,
        };
        same_kind && self.label == limit.label
    }

    /// Returns `true` if the state is governed by the numbers of this limit.
    pub(super) fn has_numbers_of(&self, limit: &Labelled) -> bool {
        match (&self.live, limit.policy()) {
            (Live::Paced(ledger), Some(policy)) => ledger.policies().eq([policy]),
            // Leases are only counted, and the counting caller supplies the maximum.
            _ => true,
        }
    }

    /// Carries the state over to the numbers of this limit.
    pub(super) fn follow(&mut self, limit: &Labelled, now_ns: u64) {
        if let (Live::Paced(ledger), Some(policy)) = (&mut self.live, limit.policy()) {
            // The kind is the same.
            let _ = ledger.reconfigure(now_ns, policy);
        }
    }

    /// Returns the wait until `permits` pass: 0 if they do, `None` if time alone cannot help.
    pub(super) fn wait_ns(&self, limit: &Labelled, now_ns: u64, permits: u64) -> Option<u64> {
        match &self.live {
            // A request beyond the capacity was refused before.
            Live::Paced(ledger) => ledger.peek(now_ns, permits).ok().flatten(),
            Live::Held(leases) => leases.wait_ns(now_ns, permits, limit.rule.capacity()),
        }
    }

    /// Returns the wait until `permits` pass, which may be none, or more than could ever pass.
    pub(super) fn wait_for_any_ns(
        &self,
        limit: &Labelled,
        now_ns: u64,
        permits: u64,
    ) -> Option<u64> {
        match &self.live {
            Live::Paced(ledger) if permits == 0 => ledger.debt_ends_in_ns(now_ns),
            _ => self.wait_ns(limit, now_ns, permits),
        }
    }

    /// Charges permits. Returns how many of them were forgiven.
    pub(super) fn charge(&mut self, now_ns: u64, permits: u64, debt: Debt) -> u64 {
        let Live::Paced(ledger) = &mut self.live else { return 0 };
        let charged = ledger.charge(now_ns, permits, debt);
        self.note_grant();
        charged.map_or(0, |charged| charged.forgiven)
    }

    fn note_grant(&mut self) {
        if let Live::Paced(ledger) = &self.live {
            self.recovers_by_ns = self.recovers_by_ns.max(ledger.limits().recovers_by_ns());
        }
    }

    pub(super) fn debt(&self, now_ns: u64) -> u64 {
        match &self.live {
            Live::Paced(ledger) => ledger.debt(now_ns),
            Live::Held(_) => 0,
        }
    }

    pub(super) fn remaining(&self, limit: &Labelled, now_ns: u64) -> u64 {
        match &self.live {
            Live::Paced(ledger) => ledger.remaining(now_ns),
            Live::Held(leases) => limit.rule.capacity().saturating_sub(leases.held(now_ns)),
        }
    }

    /// Returns `true` if these permits are held already.
    pub(super) fn has(&self, now_ns: u64, lease: LeaseId, permits: u64) -> bool {
        let id = HolderId::Lease(lease.0);
        matches!(&self.live, Live::Held(leases) if leases.has(now_ns, id, permits))
    }

    /// Takes permits that pass now.
    pub(super) fn take(
        &mut self,
        limit: &Labelled,
        now_ns: u64,
        permits: NonZeroU64,
        lease: Option<LeaseId>,
    ) -> Trace {
        let (mut trace, rule) = (Trace { busy_until_ns: 0, epoch: 0, era: self.era }, limit.rule);
        match (&mut self.live, rule, lease) {
            (Live::Paced(ledger), _, _) => {
                let ticket = ledger.book(now_ns, now_ns, permits);
                trace.busy_until_ns = ticket.busy_until_ns();
                trace.epoch = ticket.epoch().bits();
            }
            (Live::Held(leases), Rule::InFlight(_, length_ns), Some(lease)) => {
                let until_ns = now_ns.saturating_add(length_ns.get());
                leases.hold(now_ns, HolderId::Lease(lease.0), permits.get(), until_ns);
            }
            (Live::Held(_), ..) => {}
        }
        self.note_grant();
        trace
    }

    /// Holds permits that pass now, until `end_ns`, under an id.
    pub(super) fn hold(
        &mut self,
        now_ns: u64,
        id: ReservationId,
        permits: NonZeroU64,
        end_ns: u64,
    ) -> LimitHold {
        let ledger = match &mut self.live {
            Live::Paced(ledger) => ledger,
            Live::Held(leases) => {
                leases.hold(now_ns, HolderId::Reservation(id.0), permits.get(), end_ns);
                return LimitHold::InFlight(id, permits.get());
            }
        };
        let ticket = ledger.book(now_ns, now_ns, permits);
        let (scheduled_ns, promised_ns, permits) = (now_ns, now_ns, permits.get());
        let grant = Grant { start_ns: now_ns, promised_ns, scheduled_ns, permits, ticket };
        let hold = LimitHold::Paced(ledger.hold_grant(now_ns, &grant, end_ns));
        self.note_grant();
        hold
    }

    /// Returns `true` for permits in flight that a reservation still holds here.
    pub(super) fn is_held(&self, now_ns: u64, hold: LimitHold) -> bool {
        match (&self.live, hold) {
            (Live::Held(leases), LimitHold::InFlight(id, permits)) => {
                leases.has(now_ns, HolderId::Reservation(id.0), permits)
            }
            _ => false,
        }
    }

    /// Ends a hold of which `used` permits were used.
    pub(super) fn commit(
        &mut self,
        now_ns: u64,
        hold: LimitHold,
        used: u64,
        debt: Debt,
    ) -> Option<Committed> {
        let committed = match (&mut self.live, hold) {
            (Live::Paced(ledger), LimitHold::Paced(hold)) => {
                Some(ledger.commit(now_ns, hold, used, debt))
            }
            (Live::Held(leases), LimitHold::InFlight(id, permits)) => {
                let is_held = leases.release(now_ns, HolderId::Reservation(id.0), permits);
                Some(match NonZeroU64::new(permits.saturating_sub(used)) {
                    _ if !is_held => Committed::Late(Charged::default()),
                    Some(unused) => Committed::InTime(Settled::Back { permits: unused.get() }),
                    None => Committed::InTime(Settled::Even),
                })
            }
            _ => None,
        };
        self.note_grant();
        committed
    }

    /// Ends the holds whose time is over.
    pub(super) fn end_holds(&mut self, now_ns: u64) {
        if let Live::Paced(ledger) = &mut self.live {
            ledger.end_holds(now_ns);
        }
    }

    /// Refunds permits of a grant. Returns the number refunded.
    pub(super) fn refund(&mut self, now_ns: u64, back: GrantReturn, trace: Trace) -> u64 {
        let Live::Paced(ledger) = &mut self.live else { return 0 };
        if trace.era != self.era {
            return 0;
        }
        let GrantReturn { granted, start_ns, permits } = back;
        let epoch = RefundEpoch::from_bits(trace.epoch);
        let ticket = Ticket::booked(start_ns, trace.busy_until_ns, epoch);
        let (scheduled_ns, promised_ns) = (start_ns, start_ns);
        let grant = Grant { start_ns, promised_ns, scheduled_ns, permits: granted, ticket };
        ledger.refund(now_ns, &grant, permits)
    }

    /// Credits permits without a grant, as many as have been taken and not earned again.
    ///
    /// Returns their number.
    pub(super) fn credit(&mut self, now_ns: u64, permits: u64) -> u64 {
        let Live::Paced(ledger) = &mut self.live else { return 0 };
        ledger.credit(now_ns, permits)
    }

    /// Ends or renews a lease. Returns `true` if it had not expired.
    pub(super) fn end_or_renew(
        &mut self,
        limit: &Labelled,
        now_ns: u64,
        (lease, permits): (LeaseId, u64),
        renews: bool,
    ) -> bool {
        let (Live::Held(leases), Rule::InFlight(_, length_ns)) = (&mut self.live, limit.rule)
        else {
            return false;
        };
        let id = HolderId::Lease(lease.0);
        let is_there = leases.has(now_ns, id, permits);
        if is_there && renews {
            leases.hold(now_ns, id, permits, now_ns.saturating_add(length_ns.get()));
        } else {
            leases.release(now_ns, id, permits);
        }
        is_there
    }

    /// Invalidates the refunds of earlier grants.
    pub(super) const fn begin(&mut self, era: u64) {
        self.era = era;
    }

    /// Clears the use of this limit, and invalidates the refunds of earlier grants.
    ///
    /// Returns `true` if there was any use.
    pub(super) fn reset(&mut self, now_ns: u64, era: u64) -> bool {
        self.begin(era);
        match &mut self.live {
            Live::Paced(ledger) => {
                let was_used = !ledger.is_as_fresh(now_ns);
                ledger.restart(now_ns);
                was_used
            }
            Live::Held(leases) => {
                let was_used = !leases.expire_before(now_ns);
                *leases = Leases::default();
                was_used
            }
        }
    }

    /// Returns `true` if neither a decision nor a refund can distinguish this limit from a fresh
    /// one.
    pub(super) fn may_be_evicted(&mut self, now_ns: u64) -> bool {
        match &mut self.live {
            Live::Paced(ledger) => self.recovers_by_ns <= now_ns && ledger.is_as_fresh(now_ns),
            Live::Held(leases) => leases.expire_before(now_ns),
        }
    }
}
