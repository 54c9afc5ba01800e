//! The counter that an item names, whatever sort of limit it is under.

use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::{Ask, Clock};

use super::answer::{Part, Verdict};
use super::counters::{InForce, Ruled};
use super::fault::Fault;
use super::inline::Numbers;
use super::key::Key;
use super::observer::Watch;
use super::request::{Inline, Override, Verb};

/// One counter.
pub(super) enum Counter<'a, C: Clock> {
    Rule(&'a Ruled<C>, Key),
    Bucket(Arc<Numbers<Inline, C>>, Key),
    Window(Arc<Numbers<Override, C>>, Key),
}

/// What a counter has to say to a call that others are part of.
pub(super) enum Joint<'a> {
    Ask(Ask<'a>),
    /// It counts nothing, and everything passes.
    Passes,
    /// It counts nothing, and nothing passes.
    Over,
}

impl<C: Clock + Clone> Counter<'_, C> {
    pub(super) fn decide(&self, clock: &C, verb: Verb, permits: u64) -> Result<Part, Fault> {
        let verb = if verb == Verb::Take && permits == 0 { Verb::Peek } else { verb };
        match self {
            Self::Rule(ruled, key) => ruled.decide(clock, key, verb, permits),
            Self::Bucket(numbers, key) => Ok(numbers.decide(clock, key, verb, permits)?.0),
            Self::Window(numbers, key) => Ok(numbers.decide(clock, key, verb, permits)?.0),
        }
    }

    /// As a part of a call that passes all of its counters or none. `in_force` is what [`Self::in_force`] said.
    pub(super) fn join<'s>(
        &'s self,
        in_force: Option<&InForce>,
        clock: &C,
        permits: u64,
    ) -> Joint<'s> {
        match (self, in_force) {
            (Self::Rule(ruled, key), Some(in_force)) => match ruled.table(in_force, clock) {
                Some(table) => Joint::Ask(table.ask(key, permits)),
                None if ruled.uncounted(in_force, key).verdict.is_over() => Joint::Over,
                None => Joint::Passes,
            },
            (Self::Rule(..), None) => Joint::Passes,
            (Self::Bucket(numbers, key), _) => Joint::Ask(numbers.ask(key, permits)),
            (Self::Window(numbers, key), _) => Joint::Ask(numbers.ask(key, permits)),
        }
    }

    pub(super) fn in_force(&self) -> Option<InForce> {
        match self {
            Self::Rule(ruled, _) => Some(ruled.counters.in_force()),
            _ => None,
        }
    }

    /// What is told of a take that is done.
    pub(super) fn granted(&self, clock: &C) -> Result<Part, Fault> {
        match self {
            Self::Rule(ruled, key) => {
                let in_force = ruled.counters.in_force();
                match ruled.table(&in_force, clock) {
                    Some(table) => {
                        let look = table.look(key).map(|look| (Verdict::Granted, look));
                        ruled.told(table, &in_force, key, look)
                    }
                    None => Ok(ruled.uncounted(&in_force, key)),
                }
            }
            Self::Bucket(numbers, key) => Ok(numbers.granted(clock, key)?.0),
            Self::Window(numbers, key) => Ok(numbers.granted(clock, key)?.0),
        }
    }

    /// What is told of a counter that stood in the way, whatever it has become by now.
    pub(super) fn denied(
        &self,
        clock: &C,
        permits: u64,
        retry_after_ns: Option<NonZeroU64>,
    ) -> Result<Part, Fault> {
        let mut part = self.decide(clock, Verb::Peek, permits)?;
        if !part.verdict.is_over() {
            part.verdict = Verdict::Denied { retry_after_ns, enforced: true };
        }
        Ok(part)
    }

    pub(super) fn is_enforced(&self) -> bool {
        match self {
            Self::Rule(ruled, key) => ruled.is_enforced(key),
            _ => true,
        }
    }

    pub(super) fn is_quota(&self) -> bool {
        matches!(self, Self::Rule(ruled, _) if ruled.rule.quota)
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rule(one, key), Self::Rule(other, same)) => {
                Arc::ptr_eq(&one.counters, &other.counters) && key == same
            }
            (Self::Bucket(one, key), Self::Bucket(other, same)) => {
                Arc::ptr_eq(one, other) && key == same
            }
            (Self::Window(one, key), Self::Window(other, same)) => {
                Arc::ptr_eq(one, other) && key == same
            }
            _ => false,
        }
    }

    pub(super) fn ruled(&self) -> Option<&Ruled<C>> {
        match self {
            Self::Rule(ruled, _) => Some(ruled),
            _ => None,
        }
    }

    /// Tells whoever looks on. `inline` looks on at limits that come with calls.
    pub(super) fn tell(
        &self,
        inline: Option<&Arc<dyn Watch>>,
        now_ns: impl FnOnce() -> u64,
        permits: u64,
        part: &Part,
    ) {
        let (watch, key) = match self {
            Self::Rule(ruled, key) => (ruled.watch.as_ref(), key.as_slice()),
            Self::Bucket(_, key) => (inline, Numbers::<Inline, C>::own_key(key)),
            Self::Window(_, key) => (inline, Numbers::<Override, C>::own_key(key)),
        };
        if let Some(watch) = watch {
            watch.decided(now_ns(), key, permits, part);
        }
    }
}
