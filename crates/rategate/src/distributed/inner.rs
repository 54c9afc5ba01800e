//! The state that all clones of a limiter share, and the choice of the mode that decides a call.

use std::num::NonZeroU64;
use std::sync::{Arc, Weak};

use super::counts::Counters;
use super::deadline::TaskDeadlines;
use super::decision::{By, Deciding, Decision, Grant, Told};
use super::fallback::Fallback;
use super::leased::{Entry, Leasing};
use super::renewals::Renewals;
use super::rounds::Rounds;
use super::shared_out::SharedOut;
use super::watch::{Change, Watch};
use crate::clock::Clock;
use crate::stats::events;
use crate::store::{Fault, Key, Rule, Store};
use rategate_core::error::ExceedsCapacity;

pub(super) struct Inner<S: Store, C: Clock + 'static> {
    pub(super) name: String,
    /// The limits by their labels, for display.
    pub(super) limits: Vec<(String, Rule)>,
    pub(super) store: Arc<S>,
    pub(super) store_plan: Arc<S::Plan>,
    /// The most permits of one call.
    pub(super) most: u64,
    /// The shortest time, in ns, for which any limit holds permits in flight; `None` without such
    /// a limit.
    pub(super) held_ns: Option<NonZeroU64>,
    pub(super) clock: C,
    /// The time that a call waits for the store, in ns.
    pub(super) budget_ns: u64,
    pub(super) watch: Watch,
    pub(super) fallback: Fallback<C>,
    pub(super) way: Way,
    pub(super) rounds: Rounds<Round>,
    pub(super) renewals: Renewals,
    pub(super) counters: Counters,
    pub(super) deadlines: TaskDeadlines,
}

/// The mode, with its state.
pub(super) enum Way {
    Exact,
    Leased(Leasing),
    SharedOut(Box<SharedOut>),
}

/// Background work that is due at an instant.
pub(super) enum Round {
    /// A key with borrowed permits, if it still exists.
    Key(Weak<Entry>),
    /// A heartbeat.
    Beat,
    /// Renewals of permits in flight.
    Renewals,
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Decides a call in this limiter's mode.
    pub(super) fn try_acquire(self: &Arc<Self>, key: &[u8], permits: u64) -> Deciding {
        let permits = match self.asked(permits) {
            Ok(permits) => permits,
            Err(decision) => return self.now(decision),
        };
        match &self.way {
            Way::Exact => self.exact(Key::from(key), permits, None),
            Way::Leased(leasing) => match leasing.entry(key, self) {
                Some(entry) => self.leased(&entry, permits),
                // There is no capacity for the key's lease.
                None => self.exact(Key::from(key), permits, None),
            },
            Way::SharedOut(shared) => self.shared_out(shared, key, permits),
        }
    }

    /// Completes a decision at once.
    #[inline]
    pub(super) fn now(&self, decision: Result<Decision, Fault>) -> Deciding {
        self.count(&decision);
        Deciding::now(decision)
    }

    /// Sends a waiting caller its decision.
    pub(super) fn tell_caller(&self, told: Told, decision: Result<Decision, Fault>) {
        self.count(&decision);
        told.send(decision);
    }

    fn count(&self, decision: &Result<Decision, Fault>) {
        if let Ok(decision) = decision {
            self.counters.add(decision);
        }
    }

    /// Checks the number of permits. Returns it, if the request needs a decision at all.
    pub(super) fn asked(&self, permits: u64) -> Result<NonZeroU64, Result<Decision, Fault>> {
        if permits > self.most {
            return Err(Err(Fault::Exceeds(ExceedsCapacity::new(permits, self.most))));
        }
        NonZeroU64::new(permits).ok_or(Ok(Decision::granted(By::Nobody)))
    }

    /// Decides a call without a reply of the store.
    ///
    /// A denial always states when to retry: at the breaker's next probe, or while that still lets
    /// all requests pass, after one more time budget.
    pub(super) fn without_store(
        &self,
        key: &Key,
        permits: NonZeroU64,
        asked_again_in_ns: Option<NonZeroU64>,
        takes: bool,
    ) -> Decision {
        let asked_next = || {
            let closed_for_ns =
                self.watch.closed_for_ns(self.store.part_of(key), self.clock.now_ns());
            closed_for_ns.or(NonZeroU64::new(self.budget_ns)).unwrap_or(NonZeroU64::MIN)
        };
        let asked_again_in_ns = asked_again_in_ns.unwrap_or_else(asked_next);
        self.fallback.decide(key, permits, asked_again_in_ns, takes)
    }

    /// Reports a change of the store's status. Called while no lock is held.
    pub(super) fn tell(&self, change: Change) {
        if let Some((sight, why)) = change {
            self.counters.changed();
            events::store(&self.name, sight, why.as_ref());
        }
    }

    /// Refunds permits of a grant to the party that granted them.
    pub(super) fn refund(self: &Arc<Self>, key: Key, permits: NonZeroU64, grant: Grant) {
        match (grant.by, &self.way) {
            (By::Store, _) => {
                if let Some(question) = self.returned(key, permits, grant) {
                    self.store.put(question, Box::new(|_| ()));
                }
            }
            (By::Lease, Way::Leased(leasing)) => {
                if let (Some(entry), Some(until_ns)) = (leasing.known(&key), grant.until_ns) {
                    self.give_back_borrowed(&entry, permits, until_ns);
                }
            }
            (By::Fallback, _) => self.fallback.give_back(key, permits, grant.receipt),
            (By::Lease | By::Share | By::Nobody, _) => {}
        }
    }

    /// Starts the limiter's background work.
    pub(super) fn begin(self: &Arc<Self>) {
        if let Way::SharedOut(shared) = &self.way {
            self.beat(shared);
        }
    }

    /// Leaves the group, if the limiter is a member of one.
    pub(super) fn leave(self: &Arc<Self>) {
        if let Way::SharedOut(shared) = &self.way {
            self.leave_group(shared);
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
                Round::Beat => {
                    if let Way::SharedOut(shared) = &self.way {
                        self.beat(shared);
                    }
                }
                Round::Renewals => self.renewal_round(),
                Round::Key(entry) => {
                    if let Some(entry) = entry.upgrade() {
                        self.leased_round(&entry);
                    }
                }
            }
        }
        self.rounds.next_ns()
    }
}
