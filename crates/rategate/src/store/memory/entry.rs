//! The state of one key, and decisions over several of its limits.

pub(super) mod reservations;

use std::borrow::Cow;
use std::num::NonZeroU64;

use rategate_core::debt::{Charged, Debt};

use self::reservations::Reservations;
use super::plan::{Labelled, MemoryPlan};
use super::state::{GrantReturn, State, Trace};
use crate::store::{ChargeReply, Denial, Grant, LeaseId, Receipt, StoreError, Verdict};

/// The words of a receipt before those of each limit: the permits, and the instant.
const HEAD: usize = 2;
/// The words of a receipt for each limit.
const EACH: usize = 3;

/// All limits of a key that have been used.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) states: Vec<State>,
    /// The era of states yet to be created.
    era: u64,
    /// Absent in most keys, so apart.
    pub(super) reservations: Option<Box<Reservations>>,
}

/// A request for permits of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct PermitRequest<'a> {
    pub(super) plan: &'a MemoryPlan,
    pub(super) permits: NonZeroU64,
    pub(super) lease: Option<LeaseId>,
    /// `true` if fewer permits suffice.
    pub(super) is_debit: bool,
}

/// A verdict, before anything is taken.
pub(super) enum Judged {
    Denied(Denial),
    /// This many permits pass.
    Passes(NonZeroU64),
    /// The permits have been granted before, and are held.
    Repeated,
}

impl Entry {
    /// Creates the entry of a key that was never used.
    pub(super) const fn unused(era: u64) -> Self {
        Self { states: Vec::new(), era, reservations: None }
    }

    /// Judges a request. Changes nothing.
    pub(super) fn judge(&self, wanted: PermitRequest<'_>, now_ns: u64) -> Judged {
        let PermitRequest { plan, permits, lease, is_debit } = wanted;
        let mut wait_ns = Some(0);
        let (mut remaining, mut is_repeated) = (u64::MAX, false);
        let needed = if is_debit { 1 } else { permits.get() };
        for limit in plan.limits() {
            let state = self.seen(limit, now_ns);
            is_repeated |= lease.is_some_and(|lease| state.has(now_ns, lease, permits.get()));
            let limits_wait_ns = state.wait_ns(limit, now_ns, needed);
            wait_ns = wait_ns.zip(limits_wait_ns).map(|(one, other): (u64, u64)| one.max(other));
            remaining = remaining.min(state.remaining(limit, now_ns));
        }
        let passing = NonZeroU64::new(remaining).map_or(permits, |capacity| permits.min(capacity));
        match wait_ns {
            _ if is_repeated => Judged::Repeated,
            Some(0) => Judged::Passes(if is_debit { passing } else { permits }),
            _ => Judged::Denied(Denial {
                retry_after_ns: wait_ns.and_then(NonZeroU64::new),
                remaining,
                debt: self.debt(plan, now_ns),
            }),
        }
    }

    /// Returns the fewest permits that remain under any of the limits.
    pub(super) fn remaining(&self, plan: &MemoryPlan, now_ns: u64) -> u64 {
        let limits = plan.limits().iter();
        let remaining = limits.map(|limit| self.seen(limit, now_ns).remaining(limit, now_ns));
        remaining.min().unwrap_or(u64::MAX)
    }

    /// Returns the most permits by which one of the limits is exceeded.
    pub(super) fn debt(&self, plan: &MemoryPlan, now_ns: u64) -> u64 {
        let limits = plan.limits().iter();
        limits.map(|limit| self.seen(limit, now_ns).debt(now_ns)).max().unwrap_or(0)
    }

    /// Charges each limit on its own, but those of permits in flight.
    pub(super) fn charge(
        &mut self,
        plan: &MemoryPlan,
        (permits, debt): (u64, Debt),
        now_ns: u64,
    ) -> ChargeReply {
        let mut forgiven = 0;
        for limit in plan.limits().iter().filter(|limit| !limit.holds()) {
            forgiven = self.state(limit, now_ns).charge(now_ns, permits, debt).max(forgiven);
        }
        let booked = permits.saturating_sub(forgiven);
        let charged = Charged { booked, forgiven, debt: self.debt(plan, now_ns) };
        self.charge_reply(plan, permits, charged, now_ns)
    }

    /// Returns the reply to a charge of so many permits, with the numbers after it.
    pub(super) fn charge_reply(
        &self,
        plan: &MemoryPlan,
        permits: u64,
        charged: Charged,
        now_ns: u64,
    ) -> ChargeReply {
        let mut retry_after_ns = Some(0_u64);
        for limit in plan.limits().iter().filter(|limit| !limit.holds()) {
            let limits_wait_ns = self.seen(limit, now_ns).wait_for_any_ns(limit, now_ns, permits);
            retry_after_ns = retry_after_ns.zip(limits_wait_ns).map(|(one, other)| one.max(other));
        }
        let remaining = self.remaining(plan, now_ns);
        ChargeReply { charged, is_repeated: false, remaining, retry_after_ns }
    }

    /// Decides, and takes the permits that are granted.
    pub(super) fn decide(&mut self, wanted: PermitRequest<'_>, now_ns: u64) -> Verdict {
        let PermitRequest { plan, permits, lease, .. } = wanted;
        let (granted, is_repeated, receipt) = match self.judge(wanted, now_ns) {
            Judged::Denied(denial) => return Verdict::Denied(denial),
            Judged::Repeated => {
                if let Some(lease) = lease {
                    self.end_or_renew(plan, (lease, permits.get()), true, now_ns);
                }
                (permits, true, Receipt::default())
            }
            Judged::Passes(permits) => {
                let mut words = vec![permits.get(), now_ns];
                for limit in plan.limits() {
                    let trace = self.state(limit, now_ns).take(limit, now_ns, permits, lease);
                    words.extend([trace.busy_until_ns, trace.epoch, trace.era]);
                }
                (permits, false, Receipt::new(words))
            }
        };
        Verdict::Granted(Grant {
            permits: granted.get(),
            remaining: self.remaining(plan, now_ns),
            window_ends_in_ns: plan.window_ends_in_ns(now_ns),
            is_repeated,
            receipt,
        })
    }

    /// Refunds permits, as many as every limit can take back. Returns their number.
    pub(super) fn refund(
        &mut self,
        plan: &MemoryPlan,
        receipt: &ReadReceipt,
        permits: u64,
        now_ns: u64,
    ) -> u64 {
        let back = GrantReturn { permits, ..receipt.back };
        let is_known = |limit| self.states.iter().any(|state| state.is_of(limit));
        if !plan.limits().iter().all(is_known) {
            return 0;
        }
        let each = || plan.limits().iter().zip(&receipt.traces);
        let min_refund = each().map(|(limit, &trace)| {
            // No limit may take back more than another can.
            self.seen(limit, now_ns).into_owned().refund(now_ns, back, trace)
        });
        let Some(min_refund) = min_refund.min().filter(|&min_refund| min_refund > 0) else {
            return 0;
        };
        for (limit, &trace) in each() {
            self.state(limit, now_ns).refund(
                now_ns,
                GrantReturn { permits: min_refund, ..back },
                trace,
            );
        }
        min_refund
    }

    /// Credits permits without a grant, as many as every limit has out. Returns their number.
    pub(super) fn credit(&mut self, plan: &MemoryPlan, permits: u64, now_ns: u64) -> u64 {
        let is_known = |limit| self.states.iter().any(|state| state.is_of(limit));
        if !plan.limits().iter().all(is_known) {
            return 0;
        }
        let seen = |limit| self.seen(limit, now_ns).into_owned().credit(now_ns, permits);
        let min_refund = plan.limits().iter().map(seen).min();
        let Some(min_refund) = min_refund.filter(|&min_refund| min_refund > 0) else { return 0 };
        for limit in plan.limits() {
            self.state(limit, now_ns).credit(now_ns, min_refund);
        }
        min_refund
    }

    /// Ends or renews leases. Returns the number of limits that still had them.
    pub(super) fn end_or_renew(
        &mut self,
        plan: &MemoryPlan,
        held: (LeaseId, u64),
        renews: bool,
        now_ns: u64,
    ) -> u64 {
        let mut found = 0_u64;
        for limit in plan.limits().iter().filter(|limit| limit.holds()) {
            let Some(state) = self.states.iter_mut().find(|state| state.is_of(limit)) else {
                continue;
            };
            let was_there = state.end_or_renew(limit, now_ns, held, renews);
            found = found.saturating_add(was_there.into());
        }
        found
    }

    /// Clears the use of these limits. Returns the number of limits that had any.
    pub(super) fn reset(&mut self, plan: &MemoryPlan, now_ns: u64, era: u64) -> u64 {
        self.era = era;
        let states = self.states.iter_mut();
        let named = states.filter(|state| plan.limits().iter().any(|limit| state.is_of(limit)));
        named.fold(0, |sum, state| sum.saturating_add(state.reset(now_ns, era).into()))
    }

    /// Invalidates the refunds of earlier grants, some of which this state does not include.
    pub(super) fn begin(&mut self, era: u64) {
        self.era = era;
        self.states.iter_mut().for_each(|state| state.begin(era));
    }

    /// Returns `true` if this key is indistinguishable from one that was never used.
    pub(super) fn may_be_evicted(&mut self, now_ns: u64) -> bool {
        // A hold is of the very state that took it.
        if self.reservations.is_some() {
            return false;
        }
        self.states.retain_mut(|state| !state.may_be_evicted(now_ns));
        self.states.is_empty()
    }

    /// Returns a limit's state as the given set would have it.
    fn seen(&self, limit: &Labelled, now_ns: u64) -> Cow<'_, State> {
        match self.states.iter().find(|state| state.is_of(limit)) {
            None => Cow::Owned(State::fresh(limit, now_ns, self.era)),
            Some(state) if state.has_numbers_of(limit) => Cow::Borrowed(state),
            Some(state) => {
                let mut state = state.clone();
                state.follow(limit, now_ns);
                Cow::Owned(state)
            }
        }
    }

    /// Returns a limit's state under the given set, to be changed.
    pub(super) fn state(&mut self, limit: &Labelled, now_ns: u64) -> &mut State {
        let index = self.states.iter().position(|state| state.is_of(limit));
        let index = index.unwrap_or_else(|| {
            // One at a time instead of the usual four: most keys have one or two.
            self.states.reserve_exact(1);
            self.states.push(State::fresh(limit, now_ns, self.era));
            self.states.len().saturating_sub(1)
        });
        #[expect(clippy::indexing_slicing, reason = "the index was found or created just now")]
        let state = &mut self.states[index];
        if !state.has_numbers_of(limit) {
            state.follow(limit, now_ns);
        }
        state
    }
}

/// The contents of a receipt.
pub(super) struct ReadReceipt {
    back: GrantReturn,
    traces: Vec<Trace>,
}

impl ReadReceipt {
    /// Reads the receipt of a grant under this set of limits.
    pub(super) fn of(receipt: &Receipt, plan: &MemoryPlan) -> Result<Self, StoreError> {
        let complain = || {
            StoreError::InvalidRequest("the receipt is not of a grant under these limits".into())
        };
        let expected = plan.limits().len().saturating_mul(EACH).saturating_add(HEAD);
        let words = receipt.words();
        let ([granted, start_ns], true) =
            (words.first_chunk().ok_or_else(complain)?, words.len() == expected)
        else {
            return Err(complain());
        };
        let traces = words.get(HEAD..).unwrap_or_default().chunks_exact(EACH);
        let traces = traces.filter_map(|words| match words {
            &[busy_until_ns, epoch, era] => Some(Trace { busy_until_ns, epoch, era }),
            _ => None,
        });
        let back = GrantReturn { granted: *granted, start_ns: *start_ns, permits: 0 };
        Ok(Self { back, traces: traces.collect() })
    }
}
