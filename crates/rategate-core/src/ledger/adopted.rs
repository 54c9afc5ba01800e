//! Holds that another ledger made, and whose permits are taken in this one.

use super::Ledger;
use super::holds::Held;
use crate::exact::Exact;
use crate::holds::Hold;
use crate::policy::Policy;
use crate::refund::RefundEpoch;
use crate::wide::mul_div_floor;

/// The permits of a hold, and what says how many can come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unsettled {
    pub(crate) permits: u64,
    pub(crate) basis: Basis,
}

/// The basis for the number of permits of a hold that can come back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Basis {
    /// By how many parts of a permit the bucket could move back, and how many make one permit.
    /// `None` if by all of the hold.
    Lead(Option<(u128, u64)>),
    /// The start of the grant, until when the limit is known not to have been at rest without it,
    /// and the number of other permits that have come back since. `None` if the numbers have
    /// changed.
    Grant { start_ns: u64, busy_until_ns: u64, returned: Option<u64> },
}

impl Basis {
    /// Nothing is known, so nothing comes back that has to be proven.
    const UNKNOWN: Self = Self::Grant { start_ns: 0, busy_until_ns: 0, returned: None };
}

impl<P: Policy> Ledger<P> {
    /// Returns what is held, or `None` if it has ended or counts operations in flight.
    pub(crate) fn unsettled(&self, hold: Hold) -> Option<Unsettled> {
        if self.policy.counts_in_flight() {
            return None;
        }
        if hold.permits == 0 {
            return Some(Unsettled { permits: 0, basis: Basis::UNKNOWN });
        }
        let (holds, place) = (self.holds.as_ref()?, (hold.end_ns, hold.serial));
        if let Some(&permits) = holds.led.get(&place) {
            let basis = self.policy.bucket(&self.started).map_or(Basis::UNKNOWN, |bucket| {
                let lead = holds.leads.lead(bucket.pace, hold.serial);
                let parts = lead.map(|lead| bucket.pace.to_parts(lead));
                Basis::Lead(parts.map(|parts| (parts, bucket.pace.period_ns().get())))
            });
            return Some(Unsettled { permits, basis });
        }
        let other = holds.others.get(&place)?;
        let basis = match other.rest {
            (busy_until_ns, 0) => Basis::Grant {
                start_ns: other.start_ns,
                busy_until_ns,
                returned: self.epoch.returned_since(other.epoch),
            },
            _ => Basis::UNKNOWN,
        };
        Some(Unsettled { permits: other.permits, basis })
    }

    /// Holds permits until `end_ns` that this limit counts as taken. None that is over ends before
    /// the next operation, as the basis of others is of the same moment.
    pub(crate) fn adopt(&mut self, unsettled: Unsettled, end_ns: u64) -> Hold {
        let Unsettled { permits, basis } = unsettled;
        let serial = self.next_serial;
        self.next_serial = self.next_serial.saturating_add(1);
        self.undone_from = self.next_serial;
        let hold = Hold { serial, permits, end_ns };
        if permits == 0 {
            return hold;
        }
        let bucket = self.policy.bucket(&self.started);
        let (policy_epoch, holds) = (self.epoch, self.holds.get_or_insert_default());
        let other = match (basis, bucket) {
            (Basis::Lead(parts), Some(bucket)) => {
                let pace = bucket.pace;
                // As many permits and fractions of one as under the numbers of before.
                let scaled = |(parts, of): (u128, u64)| {
                    let parts = mul_div_floor(parts, pace.period_ns().get(), of.into());
                    parts.map_or(Exact::default(), |parts| pace.from_parts(parts))
                };
                holds.leads.adopt(pace, serial, parts.map(scaled));
                holds.led.insert((end_ns, serial), permits);
                return hold;
            }
            (Basis::Grant { start_ns, busy_until_ns, returned }, _) => {
                let unknown = RefundEpoch::UNKNOWN;
                let epoch = returned.map_or(unknown, |count| policy_epoch.before_returns(count));
                Held { permits, start_ns, epoch, rest: (busy_until_ns, 0) }
            }
            // It was a bucket, and has another rate than one by now.
            (Basis::Lead(_), None) => {
                Held { permits, start_ns: 0, epoch: RefundEpoch::UNKNOWN, rest: (0, 0) }
            }
        };
        holds.others.insert((end_ns, serial), other);
        hold
    }
}
