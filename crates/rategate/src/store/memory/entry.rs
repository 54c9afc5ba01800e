//! What is remembered of one key, and a decision over several of its limits.

use std::borrow::Cow;
use std::num::NonZeroU64;

use super::plan::{Labelled, MemoryPlan};
use super::state::{Back, State, Trace};
use crate::store::{Denial, Fault, Grant, LeaseId, Receipt, Verdict};

/// The words of a receipt before those of each limit: how many permits, and when.
const HEAD: usize = 2;
/// And of each limit.
const EACH: usize = 3;

/// All limits of a key that somebody has used.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    states: Vec<State>,
    /// That of states which are to come.
    era: u64,
}

/// What is asked of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) plan: &'a MemoryPlan,
    pub(super) permits: NonZeroU64,
    pub(super) lease: Option<LeaseId>,
    /// Whether fewer will do.
    pub(super) is_debit: bool,
}

/// The answer, before anything is taken.
pub(super) enum Judged {
    Denied(Denial),
    /// So many pass.
    Passes(NonZeroU64),
    /// They have been granted before, and are held.
    Repeated,
}

impl Entry {
    /// A key that was never used.
    pub(super) const fn unused(era: u64) -> Self {
        Self { states: Vec::new(), era }
    }

    /// What would come of it. Changes nothing.
    pub(super) fn judge(&self, wanted: Wanted<'_>, now_ns: u64) -> Judged {
        let Wanted { plan, permits, lease, is_debit } = wanted;
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
        let passing = NonZeroU64::new(remaining).map_or(permits, |room| permits.min(room));
        match wait_ns {
            _ if is_repeated => Judged::Repeated,
            Some(0) => Judged::Passes(if is_debit { passing } else { permits }),
            _ => Judged::Denied(Denial {
                retry_after_ns: wait_ns.and_then(NonZeroU64::new),
                remaining,
            }),
        }
    }

    /// The least that any of the limits has.
    pub(super) fn remaining(&self, plan: &MemoryPlan, now_ns: u64) -> u64 {
        let limits = plan.limits().iter();
        let remaining = limits.map(|limit| self.seen(limit, now_ns).remaining(limit, now_ns));
        remaining.min().unwrap_or(u64::MAX)
    }

    /// Decides, and takes what is granted.
    pub(super) fn decide(&mut self, wanted: Wanted<'_>, now_ns: u64) -> Verdict {
        let Wanted { plan, permits, lease, .. } = wanted;
        let (granted, receipt) = match self.judge(wanted, now_ns) {
            Judged::Denied(denial) => return Verdict::Denied(denial),
            Judged::Repeated => {
                if let Some(lease) = lease {
                    self.end_or_renew(plan, (lease, permits.get()), true, now_ns);
                }
                (permits, Receipt::default())
            }
            Judged::Passes(permits) => {
                let mut words = vec![permits.get(), now_ns];
                for limit in plan.limits() {
                    let trace = self.state(limit, now_ns).take(limit, now_ns, permits, lease);
                    words.extend([trace.busy_until_ns, trace.past, trace.era]);
                }
                (permits, Receipt::new(words))
            }
        };
        Verdict::Granted(Grant {
            permits: granted.get(),
            remaining: self.remaining(plan, now_ns),
            window_ends_in_ns: plan.window_ends_in_ns(now_ns),
            receipt,
        })
    }

    /// Takes permits back, as many as every limit can. Says how many.
    pub(super) fn refund(
        &mut self,
        plan: &MemoryPlan,
        receipt: &ReadReceipt,
        permits: u64,
        now_ns: u64,
    ) -> u64 {
        let back = Back { permits, ..receipt.back };
        let is_known = |limit| self.states.iter().any(|state| state.is_of(limit));
        if !plan.limits().iter().all(is_known) {
            return 0;
        }
        let each = || plan.limits().iter().zip(&receipt.traces);
        let least = each().map(|(limit, &trace)| {
            // None of them may take back more than another can.
            self.seen(limit, now_ns).into_owned().refund(now_ns, back, trace)
        });
        let Some(least) = least.min().filter(|&least| least > 0) else { return 0 };
        for (limit, &trace) in each() {
            self.state(limit, now_ns).refund(now_ns, Back { permits: least, ..back }, trace);
        }
        least
    }

    /// Takes permits back without a grant, as many as every limit has out. Says how many.
    pub(super) fn give_back(&mut self, plan: &MemoryPlan, permits: u64, now_ns: u64) -> u64 {
        let is_known = |limit| self.states.iter().any(|state| state.is_of(limit));
        if !plan.limits().iter().all(is_known) {
            return 0;
        }
        let seen = |limit| self.seen(limit, now_ns).into_owned().give_back(now_ns, permits);
        let least = plan.limits().iter().map(seen).min();
        let Some(least) = least.filter(|&least| least > 0) else { return 0 };
        for limit in plan.limits() {
            self.state(limit, now_ns).give_back(now_ns, least);
        }
        least
    }

    /// Ends leases, or lets them go on. Says of how many limits they were still there.
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

    /// Forgets what was used. Says of how many limits anything was.
    pub(super) fn reset(&mut self, plan: &MemoryPlan, now_ns: u64, era: u64) -> u64 {
        self.era = era;
        let states = self.states.iter_mut();
        let named = states.filter(|state| plan.limits().iter().any(|limit| state.is_of(limit)));
        named.fold(0, |sum, state| sum.saturating_add(state.reset(now_ns, era).into()))
    }

    /// Grants of before give nothing back: some of them are not in it.
    pub(super) fn begin(&mut self, era: u64) {
        self.era = era;
        self.states.iter_mut().for_each(|state| state.begin(era));
    }

    /// Whether nobody could tell this key from one that was never used.
    pub(super) fn may_be_forgotten(&mut self, now_ns: u64) -> bool {
        self.states.retain_mut(|state| !state.may_be_forgotten(now_ns));
        self.states.is_empty()
    }

    /// A limit's state as the plan would have it.
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

    /// The same, to be changed.
    fn state(&mut self, limit: &Labelled, now_ns: u64) -> &mut State {
        let place = self.states.iter().position(|state| state.is_of(limit));
        let place = place.unwrap_or_else(|| {
            // Not four at once: most keys have one or two.
            self.states.reserve_exact(1);
            self.states.push(State::fresh(limit, now_ns, self.era));
            self.states.len().saturating_sub(1)
        });
        #[expect(clippy::indexing_slicing, reason = "the place was found or made just now")]
        let state = &mut self.states[place];
        if !state.has_numbers_of(limit) {
            state.follow(limit, now_ns);
        }
        state
    }
}

/// What the words of a receipt say.
pub(super) struct ReadReceipt {
    back: Back,
    traces: Vec<Trace>,
}

impl ReadReceipt {
    /// Reads the receipt of a grant of this plan.
    pub(super) fn of(receipt: &Receipt, plan: &MemoryPlan) -> Result<Self, Fault> {
        let complain = || Fault::Question("the receipt is not of a grant of this plan".into());
        let expected = plan.limits().len().saturating_mul(EACH).saturating_add(HEAD);
        let words = receipt.words();
        let ([granted, start_ns], true) =
            (words.first_chunk().ok_or_else(complain)?, words.len() == expected)
        else {
            return Err(complain());
        };
        let traces = words.get(HEAD..).unwrap_or_default().chunks_exact(EACH);
        let traces = traces.filter_map(|words| match words {
            &[busy_until_ns, past, era] => Some(Trace { busy_until_ns, past, era }),
            _ => None,
        });
        let back = Back { granted: *granted, start_ns: *start_ns, permits: 0 };
        Ok(Self { back, traces: traces.collect() })
    }
}
