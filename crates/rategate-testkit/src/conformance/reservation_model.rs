//! Reservations by the core's ledgers and a list of ids: what a store has to reply.

use std::collections::BTreeMap;

use rategate::AnyPolicy;
use rategate::charge::{Debt, Settled};
use rategate::store::{EndOutcome, EndReply, ReservationEnd, ReserveReply, ReserveVerdict};
use rategate_core::all_of::AllOfLedger;
use rategate_core::holds::{Committed, Hold, HoldVerdict, Holding as _};
use rategate_core::limit::Limit as _;

use super::client::number;

/// The time for which an id is remembered after its end, unless its reservation could last longer.
pub(super) const MEMORY_US: u64 = 600_000_000;

/// The reply that the core's ledgers and a list of ids give.
pub(super) struct Model {
    pub(super) limits: AllOfLedger,
    pub(super) debt: Debt,
    pub(super) known: BTreeMap<u64, Known>,
}

/// A reservation of the model.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) hold: Hold,
    ttl_us: u64,
    /// The instant and outcome of its end, unless it ends by itself.
    ended: Option<(u64, EndOutcome)>,
}

impl Known {
    /// Returns the instant from which a store may forget it, in microseconds.
    pub(super) fn due_us(&self) -> u64 {
        let end_us = self.ended.map_or(self.hold.end_ns / 1_000, |(end_us, _)| end_us);
        end_us + self.ttl_us.max(MEMORY_US)
    }
}

impl Model {
    pub(super) fn new(policies: impl Iterator<Item = AnyPolicy>, debt: Debt, now_us: u64) -> Self {
        let limits = AllOfLedger::new(policies, now_us * 1_000);
        Self { limits, debt, known: BTreeMap::new() }
    }

    pub(super) fn reserve(
        &mut self,
        now_us: u64,
        (permits, spared): (u64, u64),
        id: u64,
        ttl_us: u64,
    ) -> ReserveReply {
        let now_ns = now_us * 1_000;
        let known = self.known.get(&id).copied();
        let verdict = match known {
            Some(known) if known.hold.permits != permits => {
                ReserveVerdict::OtherPermits { permits: known.hold.permits }
            }
            Some(Known { hold, ended: None, .. }) if now_ns < hold.end_ns => {
                ReserveVerdict::Held { ends_in_ns: number(hold.end_ns - now_ns) }
            }
            Some(_) => ReserveVerdict::Ended,
            None => match self.try_hold(now_ns, (permits, spared), ttl_us * 1_000) {
                HoldVerdict::Held(hold) => {
                    self.known.insert(id, Known { hold, ttl_us, ended: None });
                    ReserveVerdict::Held { ends_in_ns: number(ttl_us * 1_000) }
                }
                HoldVerdict::Denied(denial) => {
                    ReserveVerdict::Denied { retry_after_ns: denial.retry_after_ns }
                }
            },
        };
        let (remaining, debt) = (self.limits.remaining(now_ns), self.limits.debt(now_ns));
        ReserveReply { verdict, is_repeated: known.is_some(), remaining, debt }
    }

    /// Holds permits where as many more as are spared would pass.
    fn try_hold(&mut self, now_ns: u64, (permits, spared): (u64, u64), ttl_ns: u64) -> HoldVerdict {
        let with_spared = self.limits.clone().try_hold(now_ns, permits + spared, ttl_ns).unwrap();
        match with_spared {
            HoldVerdict::Held(_) => self.limits.try_hold(now_ns, permits, ttl_ns).unwrap(),
            denied @ HoldVerdict::Denied(_) => denied,
        }
    }

    pub(super) fn end(&mut self, now_us: u64, id: u64, end: ReservationEnd) -> EndReply {
        let now_ns = now_us * 1_000;
        let (outcome, is_repeated) = match self.known.get_mut(&id) {
            None => (EndOutcome::Unknown, false),
            Some(Known { ended: Some((_, outcome)), .. }) => (*outcome, true),
            Some(known) => {
                let (used, is_cancelled) = match end {
                    ReservationEnd::Commit { used } => (used.unwrap_or(known.hold.permits), false),
                    ReservationEnd::Cancel | ReservationEnd::Withdraw => (0, true),
                };
                let outcome = match self.limits.commit(now_ns, known.hold, used, self.debt) {
                    Committed::Late(charged) => EndOutcome::Late(charged),
                    Committed::InTime(Settled::Back { permits }) if is_cancelled => {
                        EndOutcome::Cancelled(permits)
                    }
                    Committed::InTime(settled) => EndOutcome::Committed(settled),
                };
                known.ended = Some((now_us, outcome));
                if end == ReservationEnd::Withdraw {
                    self.known.remove(&id);
                }
                (outcome, false)
            }
        };
        let (remaining, debt) = (self.limits.remaining(now_ns), self.limits.debt(now_ns));
        EndReply { outcome, is_repeated, remaining, debt }
    }
}
