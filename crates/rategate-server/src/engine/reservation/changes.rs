//! Reports of what becomes of reservations, to the watchers of their rules.

use std::sync::Arc;

use rategate::Clock;
use rategate::charge::{Committed, Settled};
use rategate::store::EndOutcome;

use super::End;
use super::held_item::HeldItem;
use super::table::Entry;
use crate::engine::Inner;
use crate::engine::hold_change::{HoldChange, HoldOutcome};
use crate::engine::live::Live;
use crate::rule::Rule;

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Reports a change to the watcher of a rule, unless the rule exists no longer; to that of
    /// limits that come with calls for `None`.
    pub(super) fn report(&self, rule: Option<&Arc<Rule>>, change: &HoldChange) {
        match (rule, &self.inline_watch) {
            (Some(rule), _) => {
                if let Some(live) = &*self.live.load() {
                    live.report(rule, change);
                }
            }
            (None, Some(watch)) => watch.reservation(change),
            (None, None) => {}
        }
    }

    /// Reports that what was held has ended by its time.
    pub(in crate::engine) fn report_expired(&self, held: &HeldItem<C>) {
        // Permits in flight are no row of what is held.
        let released = if held.is_in_flight() { 0 } else { held.permits() };
        self.report(held.rule(), &HoldChange::expired(released));
    }

    /// Ends a reservation whose time is over: all of it, at the instant of its first hold to end.
    /// Returns `true` if it has ended so, now or before.
    pub(super) fn end_if_due(&self, entry: &mut Entry<C>, now_ns: u64) -> bool {
        if now_ns >= entry.due_ns
            && let Some(holds) = entry.expire()
        {
            self.reservations.counts.closed();
            holds.iter().for_each(|held| self.report_expired(held));
        }
        entry.is_over()
    }
}

impl<C: Clock + Clone> Live<C> {
    fn report(&self, rule: &Rule, change: &HoldChange) {
        let ruled = self.matcher.named(&rule.name).and_then(|(index, _)| self.ruled.get(index));
        if let Some(watch) = ruled.and_then(|ruled| ruled.watch.as_ref()) {
            watch.reservation(change);
        }
    }
}

impl End {
    /// Returns the change of a hold of `held` permits, of which `used` were used. What has ended
    /// before has been released then.
    pub(super) fn change(self, committed: Committed, held: u64, used: u64) -> HoldChange {
        let outcome = self.outcome(matches!(committed, Committed::Late(_)));
        let forgiven = match (self, committed) {
            (_, Committed::Late(charged)) => charged.forgiven,
            (Self::Commit, Committed::InTime(Settled::Owed { forgiven, .. })) => forgiven,
            _ => 0,
        };
        // An operation that never was says nothing about its estimate.
        let error = (self == Self::Commit).then(|| used.abs_diff(held));
        let released = if outcome == HoldOutcome::Late { 0 } else { held };
        HoldChange { outcome, taken: 0, released, error, forgiven }
    }

    pub(super) const fn outcome(self, is_late: bool) -> HoldOutcome {
        match self {
            _ if is_late => HoldOutcome::Late,
            Self::Commit => HoldOutcome::Committed,
            Self::Cancel => HoldOutcome::Cancelled,
        }
    }
}

impl HoldChange {
    /// Returns the change of the end of a reservation in a store, of which the outcome says all
    /// that is known here.
    pub(super) const fn of_stored(outcome: &EndOutcome) -> Option<Self> {
        let of = Self::of;
        Some(match outcome {
            EndOutcome::Cancelled(_) => of(HoldOutcome::Cancelled),
            EndOutcome::Late(charged) => {
                Self { forgiven: charged.forgiven, ..of(HoldOutcome::Late) }
            }
            EndOutcome::Committed(settled) => {
                let (error, forgiven) = match *settled {
                    Settled::Even => (0, 0),
                    Settled::Back { permits } => (permits, 0),
                    Settled::Owed { permits, forgiven } => {
                        (permits.saturating_add(forgiven), forgiven)
                    }
                };
                Self { error: Some(error), forgiven, ..of(HoldOutcome::Committed) }
            }
            EndOutcome::Unknown => return None,
        })
    }
}
