//! The counter that an item names, whatever kind of limit it is under.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::keyed::Acquisition;
use rategate::{Clock, Status};

use super::answer::{ItemResult, Verdict, Watch};
use super::counted::{self, OwnLimit};
use super::counters::{ActiveRule, InForce};
use super::error::EngineError;
use super::inline::{Numbers, UnitWindow};
use super::key::Key;
use super::request::{Inline, Verb};
use crate::rule::{Limit, Over};

/// The counter of one item.
pub(super) enum Counter<'a, C: Clock> {
    Rule(&'a ActiveRule<C>, Key),
    Bucket(Arc<Numbers<Inline, C>>, Key),
    /// A caller's own limit, counted in windows of its unit.
    Window(Arc<Numbers<UnitWindow, C>>, Key, Box<OwnLimit>),
    /// A caller's own limit, counted in the rule's window.
    CallerLimit(&'a ActiveRule<C>, Key, Box<OwnLimit>),
}

/// The contribution of a counter to a decision that covers several.
pub(super) enum Joint<'a> {
    Acquisition(Acquisition<'a>),
    /// The counter counts nothing, and everything passes.
    Passes,
    /// The counter counts nothing, and nothing passes.
    Over,
}

impl<C: Clock + Clone> Counter<'_, C> {
    pub(super) fn decide(
        &self,
        clock: &C,
        verb: Verb,
        permits: u64,
    ) -> Result<ItemResult, EngineError> {
        let verb = if verb == Verb::Take && permits == 0 { Verb::Peek } else { verb };
        match self {
            Self::Rule(ruled, key) => {
                let permits =
                    if verb == Verb::Peek { ruled.rule.looked_for(permits) } else { permits };
                ruled.decide(clock, key, verb, permits)
            }
            Self::Bucket(numbers, key) => Ok(numbers.decide(clock, key, verb, permits)?.0),
            Self::Window(numbers, key, own) => {
                let now_ns = clock.now_ns();
                let decided = numbers.count(own, now_ns, key, (verb, permits))?;
                Ok(counted::result(own.window, own.display_limit, decided, now_ns))
            }
            Self::CallerLimit(ruled, key, own) => {
                ruled.count_lent(own, clock, key, (verb, permits))
            }
        }
    }

    /// Returns `true` if the counter counts every hit, whatever the result of the request's other
    /// items.
    pub(super) fn counts_all(&self) -> bool {
        match self {
            Self::Rule(ruled, _) => {
                ruled.rule.over == Over::Charge
                    || matches!(ruled.counters.in_force().limit, Limit::Counted(_))
            }
            Self::Window(..) | Self::CallerLimit(..) => true,
            Self::Bucket(..) => false,
        }
    }

    /// Joins a decision that passes all of its counters or none. `in_force` comes from
    /// [`Self::in_force`].
    pub(super) fn join<'s>(
        &'s self,
        in_force: Option<&InForce>,
        clock: &C,
        permits: u64,
    ) -> Joint<'s> {
        match (self, in_force) {
            (Self::Rule(ruled, key), Some(in_force)) => match ruled.table(in_force, clock) {
                Some(table) => Joint::Acquisition(table.attempt(key, permits)),
                None if ruled.uncounted(in_force).verdict.is_over() => Joint::Over,
                None => Joint::Passes,
            },
            (Self::Bucket(numbers, key), _) => Joint::Acquisition(numbers.attempt(key, permits)),
            // Windows that count every hit were counted before the joint decision.
            (Self::Rule(..) | Self::Window(..) | Self::CallerLimit(..), _) => Joint::Passes,
        }
    }

    pub(super) fn in_force(&self) -> Option<InForce> {
        match self {
            Self::Rule(ruled, _) => Some(ruled.counters.in_force()),
            _ => None,
        }
    }

    /// Returns the result of a take that has succeeded.
    pub(super) fn granted(&self, clock: &C) -> Result<ItemResult, EngineError> {
        match self {
            Self::Rule(ruled, key) => {
                let in_force = ruled.counters.in_force();
                match ruled.table(&in_force, clock) {
                    Some(_) if matches!(in_force.limit, Limit::Counted(_)) => self.held(clock),
                    Some(table) => {
                        let status = table.status(key).map(|status| (Verdict::Granted, status));
                        ruled.result_of(&in_force, status)
                    }
                    None => Ok(ruled.uncounted(&in_force)),
                }
            }
            Self::Bucket(numbers, key) => Ok(numbers.granted(clock, key)?.0),
            Self::Window(..) | Self::CallerLimit(..) => self.held(clock),
        }
    }

    /// Returns the result of a decision of a rule's table that left this status.
    pub(super) fn result_of(
        &self,
        clock: &C,
        verdict: Verdict,
        status: Status,
    ) -> Result<ItemResult, EngineError> {
        if let Self::Rule(ruled, _) = self {
            let in_force = ruled.counters.in_force();
            // By now it may count otherwise, or nothing.
            if in_force.policy().is_some() && !matches!(in_force.limit, Limit::Counted(_)) {
                return ruled.result_of(&in_force, Ok((verdict, status)));
            }
        }
        Ok(ItemResult { verdict, ..self.decide(clock, Verb::Peek, 0)? })
    }

    /// Returns the result of a hold in a window that counts every hit, which others may have
    /// exceeded since.
    fn held(&self, clock: &C) -> Result<ItemResult, EngineError> {
        let status = self.decide(clock, Verb::Peek, 0)?;
        Ok(ItemResult { verdict: Verdict::Granted, ..status })
    }

    /// Returns a denial for a counter that denied the request, whatever its status is by now.
    pub(super) fn denied(
        &self,
        clock: &C,
        permits: u64,
        retry_after_ns: Option<NonZeroU64>,
    ) -> Result<ItemResult, EngineError> {
        let mut result = self.decide(clock, Verb::Peek, permits)?;
        if !result.verdict.is_over() {
            result.verdict = Verdict::Denied { retry_after_ns, enforced: true };
        }
        Ok(result)
    }

    pub(super) fn is_enforced(&self) -> bool {
        match self {
            Self::Rule(ruled, _) => ruled.is_enforced(),
            _ => true,
        }
    }

    /// Returns `true` for a quota, which everything limited is if `all_are`.
    pub(super) fn is_quota(&self, all_are: bool) -> bool {
        let Self::Rule(ruled, _) = self else { return all_are };
        match ruled.counters.in_force().limit {
            Limit::Unlimited => false,
            // As where no rule matches.
            Limit::Exempt => all_are,
            _ => all_are || ruled.rule.quota,
        }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rule(one, key), Self::Rule(other, same)) => {
                Arc::ptr_eq(&one.counters, &other.counters) && key == same && !self.counts_all()
            }
            (Self::Bucket(one, key), Self::Bucket(other, same)) => {
                Arc::ptr_eq(one, other) && key == same
            }
            // A counter of every hit counts each item separately.
            _ => false,
        }
    }

    pub(super) fn ruled(&self) -> Option<&ActiveRule<C>> {
        match self {
            Self::Rule(ruled, _) => Some(ruled),
            _ => None,
        }
    }

    /// Notifies the watcher. `inline` watches inline limits.
    pub(super) fn notify_watch(
        &self,
        inline: Option<&Arc<dyn Watch>>,
        now_ns: impl FnOnce() -> u64,
        permits: u64,
        result: &ItemResult,
    ) {
        let (watch, key) = match self {
            Self::Rule(ruled, key) => (ruled.watch.as_ref(), key.as_slice()),
            Self::Bucket(_, key) => (inline, Numbers::<Inline, C>::own_key(key)),
            Self::Window(_, key, ..) => (inline, Numbers::<UnitWindow, C>::own_key(key)),
            Self::CallerLimit(_, key, ..) => (inline, key.as_slice()),
        };
        if let Some(watch) = watch {
            watch.decided(now_ns(), key, permits, result);
        }
    }
}
