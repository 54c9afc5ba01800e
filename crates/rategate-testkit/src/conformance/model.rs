//! What a store has to reply: the core's ledgers, and a list of ids.

use std::collections::BTreeMap;

use rategate::charge::{Charged, Debt, Settled};
use rategate::store::{
    EndOutcome, EndReply, ReservationEnd, ReserveReply, ReserveVerdict, StoreError,
};
use rategate_core::holds::Committed;

use super::cases::{Case, policy};
use super::client::number;
use crate::oracle::{Held, Oracle, Refused};

/// The time for which an id is remembered after its end, unless its reservation could last longer.
pub(super) const MEMORY_US: u64 = 600_000_000;

pub(super) struct Model {
    pub(super) limits: Oracle,
    pub(super) debt: Debt,
    pub(super) known: BTreeMap<u64, Known>,
}

/// A request whose id is known.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) permits: u64,
    made: Made,
    /// The instant from which a store may forget it, in microseconds.
    pub(super) due_us: u64,
}

#[derive(Clone)]
enum Made {
    /// A reservation, and the outcome of its end, unless it ends by itself.
    Hold(Held, Option<EndOutcome>),
    Once(Once),
}

/// The outcome of a request that counts once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Once {
    Charged(Charged),
    Credited(u64),
}

impl Known {
    /// Returns the instant at which a reservation ends by itself, in microseconds.
    pub(super) fn ends_us(&self) -> Option<u64> {
        match &self.made {
            Made::Hold(hold, None) => Some(hold.end_ns / 1_000),
            Made::Hold(_, Some(_)) | Made::Once(_) => None,
        }
    }
}

impl Model {
    pub(super) fn new(case: &Case, debt: Debt) -> Self {
        let policies = case.rules.iter().map(|(_, rule)| policy(*rule));
        let limits = Oracle::new(policies, case.begin_us * 1_000);
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
        let known = self.known.get(&id).cloned();
        let is_repeated = known.is_some();
        let verdict = match known {
            Some(Known { permits: held, made: Made::Hold(hold, end), .. }) if held == permits => {
                match hold.end_ns.checked_sub(now_ns).filter(|&left_ns| left_ns > 0) {
                    Some(left_ns) if end.is_none() => {
                        ReserveVerdict::Held { ends_in_ns: number(left_ns) }
                    }
                    _ => ReserveVerdict::Ended,
                }
            }
            Some(Known { permits, .. }) => ReserveVerdict::OtherPermits { permits },
            None => match self.hold(now_ns, (permits, spared), ttl_us * 1_000) {
                Ok(hold) => {
                    let due_us = now_us + ttl_us + ttl_us.max(MEMORY_US);
                    let made = Made::Hold(hold, None);
                    self.known.insert(id, Known { permits, made, due_us });
                    ReserveVerdict::Held { ends_in_ns: number(ttl_us * 1_000) }
                }
                // In whole microseconds, as stores have them.
                Err(Refused { wait_ns, .. }) => ReserveVerdict::Denied {
                    retry_after_ns: Some(number(wait_ns.div_ceil(1_000) * 1_000)),
                },
            },
        };
        let (remaining, debt) = (self.limits.remaining(now_ns), self.limits.debt(now_ns));
        ReserveReply { verdict, is_repeated, remaining, debt }
    }

    /// Holds permits where as many more as are spared would pass.
    fn hold(
        &mut self,
        now_ns: u64,
        (permits, spared): (u64, u64),
        ttl_ns: u64,
    ) -> Result<Held, Refused> {
        self.limits.check(now_ns, permits + spared)?;
        self.limits.hold(now_ns, permits, ttl_ns)
    }

    pub(super) fn end(&mut self, now_us: u64, id: u64, end: ReservationEnd) -> EndReply {
        let now_ns = now_us * 1_000;
        let (outcome, is_repeated) = match self.known.get_mut(&id) {
            Some(Known { made: Made::Hold(_, Some(outcome)), .. }) => (*outcome, true),
            Some(Known { made: Made::Hold(hold, ended), due_us, .. }) => {
                let (used, is_cancelled) = match end {
                    ReservationEnd::Commit { used } => (used.unwrap_or(hold.permits), false),
                    ReservationEnd::Cancel | ReservationEnd::Withdraw => (0, true),
                };
                let outcome = match self.limits.commit(now_ns, hold, used, self.debt) {
                    Committed::Late(charged) => EndOutcome::Late(charged),
                    Committed::InTime(Settled::Back { permits }) if is_cancelled => {
                        EndOutcome::Cancelled(permits)
                    }
                    Committed::InTime(settled) => EndOutcome::Committed(settled),
                };
                *ended = Some(outcome);
                *due_us = *due_us - hold.end_ns / 1_000 + now_us;
                if end == ReservationEnd::Withdraw {
                    self.known.remove(&id);
                }
                (outcome, false)
            }
            Some(Known { made: Made::Once(_), .. }) | None => (EndOutcome::Unknown, false),
        };
        let (remaining, debt) = (self.limits.remaining(now_ns), self.limits.debt(now_ns));
        EndReply { outcome, is_repeated, remaining, debt }
    }

    /// Charges or credits once. Returns the outcome, and `true` if it had been made before.
    pub(super) fn once(
        &mut self,
        now_us: u64,
        (permits, id): (u64, u64),
        is_charge: bool,
    ) -> Result<(Once, bool), StoreError> {
        // What charges nothing leaves its id unused.
        match self.known.get(&id).filter(|_| permits > 0) {
            None => {}
            Some(&Known { permits: own, made: Made::Once(once), .. })
                if own == permits && matches!(once, Once::Charged(_)) == is_charge =>
            {
                return Ok((once, true));
            }
            Some(_) => return Err(StoreError::OtherRequest),
        }
        let once = if is_charge {
            Once::Charged(self.limits.charge(now_us * 1_000, permits, self.debt).0)
        } else {
            Once::Credited(self.limits.credit(now_us * 1_000, permits))
        };
        if permits > 0 {
            let (made, due_us) = (Made::Once(once), now_us + MEMORY_US);
            self.known.insert(id, Known { permits, made, due_us });
        }
        Ok((once, false))
    }
}
