//! The state that all clones of a limiter share, and the choice of the mode that decides a call.

pub(super) mod charges;
pub(super) mod counts;
pub(super) mod decision;
pub(super) mod fallback;
pub(super) mod leased;
pub(super) mod renewals;

use std::num::NonZeroU64;
use std::sync::{Arc, Weak};

use self::charges::Charges;
use self::counts::Counters;
use self::decision::deadline::TaskDeadlines;
use self::decision::{DecidedBy, Decision, DecisionFuture, DecisionSender, Grant};
use self::fallback::Fallback;
use self::leased::{Entry, Leasing};
use self::renewals::Renewals;
use super::rounds::WorkSchedule;
use super::watch::{Change, Watch};
use crate::clock::Clock;
use crate::stats::events;
use crate::store::{Key, Rule, Store, StoreError};
use rategate_core::debt::Debt;
use rategate_core::error::ExceedsCapacity;

pub(super) struct Inner<S: Store, C: Clock + 'static> {
    pub(super) name: String,
    /// The limits by their labels, for display.
    pub(super) limits: Vec<(String, Rule)>,
    pub(super) store: Arc<S>,
    pub(super) store_plan: Arc<S::Plan>,
    /// The way in which debts end.
    pub(super) debt: Debt,
    /// The most permits of one call.
    pub(super) capacity: u64,
    /// The shortest time, in ns, for which any limit holds permits in flight; `None` without such
    /// a limit.
    pub(super) held_ns: Option<NonZeroU64>,
    pub(super) clock: C,
    /// The time that a call waits for the store, in ns.
    pub(super) budget_ns: u64,
    pub(super) watch: Watch,
    pub(super) fallback: Fallback<C>,
    pub(super) strategy: Strategy,
    pub(super) rounds: WorkSchedule<BackgroundWork>,
    pub(super) renewals: Renewals,
    pub(super) counters: Counters,
    /// Charges that wait for the store.
    pub(super) charges: Charges,
    pub(super) deadlines: TaskDeadlines,
}

/// The mode, with its state.
pub(super) enum Strategy {
    Exact,
    Leased(Leasing),
}

/// Background work that is due at an instant.
pub(super) enum BackgroundWork {
    /// A key with borrowed permits, if it still exists.
    Key(Weak<Entry>),
    /// Renewals of permits in flight.
    Renewals,
    /// Charges that wait for the store.
    Charges,
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Decides a call in this limiter's mode.
    pub(super) fn try_acquire(self: &Arc<Self>, key: &[u8], permits: u64) -> DecisionFuture {
        let permits = match self.checked_permits(permits) {
            Ok(permits) => permits,
            Err(decision) => return self.now(decision),
        };
        match &self.strategy {
            Strategy::Exact => self.exact(Key::from(key), permits, None),
            Strategy::Leased(leasing) => match leasing.entry(key, self) {
                Some(entry) => self.leased(&entry, permits),
                // There is no capacity for the key's lease.
                None => self.exact(Key::from(key), permits, None),
            },
        }
    }

    /// Completes a decision at once.
    #[inline]
    pub(super) fn now(&self, decision: Result<Decision, StoreError>) -> DecisionFuture {
        self.count(&decision);
        DecisionFuture::now(decision)
    }

    /// Sends a waiting caller its decision.
    pub(super) fn reply_to(&self, caller: DecisionSender, decision: Result<Decision, StoreError>) {
        self.count(&decision);
        caller.send(decision);
    }

    fn count(&self, decision: &Result<Decision, StoreError>) {
        if let Ok(decision) = decision {
            self.counters.add(decision);
        }
    }

    /// Checks the number of permits. Returns it, if the request needs a decision at all.
    pub(super) fn checked_permits(
        &self,
        permits: u64,
    ) -> Result<NonZeroU64, Result<Decision, StoreError>> {
        if permits > self.capacity {
            return Err(Err(StoreError::Exceeds(ExceedsCapacity::new(permits, self.capacity))));
        }
        NonZeroU64::new(permits).ok_or(Ok(Decision::granted(DecidedBy::NoPermits)))
    }

    /// Decides a call without a reply of the store.
    ///
    /// A denial always states when to retry: at the breaker's next probe, or while that still lets
    /// all requests pass, after one more time budget.
    pub(super) fn without_store(
        &self,
        key: &Key,
        permits: NonZeroU64,
        retry_in_ns: Option<NonZeroU64>,
        takes: bool,
    ) -> Decision {
        let next_retry = || {
            let closed_for_ns =
                self.watch.closed_for_ns(self.store.backend_of(key), self.clock.now_ns());
            closed_for_ns.or(NonZeroU64::new(self.budget_ns)).unwrap_or(NonZeroU64::MIN)
        };
        let retry_in_ns = retry_in_ns.unwrap_or_else(next_retry);
        self.fallback.decide(key, permits, retry_in_ns, takes)
    }

    /// Reports a change of the store's status. Called while no lock is held.
    pub(super) fn report_change(&self, change: Change) {
        if let Some((store_status, why)) = change {
            self.counters.changed();
            events::store(&self.name, store_status, why.as_ref());
        }
    }

    /// Refunds permits of a grant to the party that granted them.
    pub(super) fn refund(self: &Arc<Self>, key: Key, permits: NonZeroU64, grant: Grant) {
        match (grant.by, &self.strategy) {
            (DecidedBy::Store, _) => {
                if let Some(request) = self.returned(key, permits, grant) {
                    self.store.submit(request, Box::new(|_| ()));
                }
            }
            (DecidedBy::Lease, Strategy::Leased(leasing)) => {
                if let (Some(entry), Some(until_ns)) = (leasing.known(&key), grant.until_ns) {
                    self.return_borrowed(&entry, permits, until_ns);
                }
            }
            (DecidedBy::Fallback, _) => self.fallback.refund(key, permits, grant.receipt),
            (DecidedBy::Lease | DecidedBy::NoPermits, _) => {}
        }
    }

    /// Runs background work until the limiter is dropped.
    pub(super) fn keep_attending(self: &Arc<Self>) {
        let left_ns = || {
            let next_ns = self.rounds.next_ns()?;
            Some(next_ns.saturating_sub(self.clock.now_ns()))
        };
        while self.rounds.wait(left_ns) {
            self.attend();
        }
    }

    /// Runs the work that is due. Returns the time of the next.
    pub(super) fn attend(self: &Arc<Self>) -> Option<u64> {
        while let Some(round) = self.rounds.take(self.clock.now_ns()) {
            match round {
                BackgroundWork::Renewals => self.renewal_round(),
                BackgroundWork::Charges => self.charge_round(),
                BackgroundWork::Key(entry) => {
                    if let Some(entry) = entry.upgrade() {
                        self.leased_round(&entry);
                    }
                }
            }
        }
        self.rounds.next_ns()
    }
}
