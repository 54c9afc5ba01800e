//! The time of a new reservation, by its rules.

use std::sync::Arc;
use std::time::Duration;

use rategate::Clock;
use smallvec::SmallVec;

use super::{DEFAULT_TTL, MAX_TTL};
use crate::engine::Inner;
use crate::engine::error::EngineError;
use crate::engine::layered::Layers;
use crate::engine::live::Live;
use crate::engine::request::{Item, Request, Target, Verb};
use crate::rule::{HoldBounds, Rule};

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Returns the time of a reservation of these items: as stated, or else the smallest default of
    /// their rules.
    ///
    /// # Errors
    ///
    /// [`EngineError::Ttl`], and those of the items.
    pub(super) fn ttl_of(
        &self,
        stated: Option<Duration>,
        items: &[Item<'_>],
    ) -> Result<Duration, EngineError> {
        let live = self.live.load();
        let rules = match live.as_ref() {
            // As a rule all have the same bounds, and need not be looked for, unless one is to be
            // named.
            Some(live) if live.bounds_holds || stated.is_some_and(is_beyond_default) => {
                live.rules_of_items(items)?
            }
            _ => SmallVec::new(),
        };
        let bounds = || rules.iter().map(|rule| rule.hold_bounds);
        let ttl = stated.or_else(|| bounds().map(|bounds| bounds.ttl).min()).unwrap_or(DEFAULT_TTL);
        let is_of_call = |item: &Item<'_>| match item.target {
            Target::Inline { .. } => true,
            Target::Descriptor { limit, .. } => limit.is_some(),
            Target::Rule { .. } => false,
        };
        // A limit of the call has no bound of its own.
        let most = if items.iter().any(is_of_call) { MAX_TTL } else { Duration::MAX };
        let strictest = rules.iter().min_by_key(|rule| rule.hold_bounds.max_ttl);
        let strictest = strictest.filter(|rule| rule.hold_bounds.max_ttl <= most);
        let max = strictest.map_or(MAX_TTL, |rule| rule.hold_bounds.max_ttl);
        if ttl.is_zero() || ttl > max {
            let rule = strictest.map(|rule| Arc::clone(&rule.name));
            return Err(EngineError::Ttl { rule, given: ttl, max });
        }
        Ok(ttl)
    }
}

fn is_beyond_default(ttl: Duration) -> bool {
    ttl.is_zero() || ttl > MAX_TTL
}

impl<C: Clock + Clone> Live<C> {
    /// Returns the rules of all items. What is faulty in an item is reported where it is held.
    fn rules_of_items(&self, items: &[Item<'_>]) -> Result<SmallVec<[&Arc<Rule>; 4]>, EngineError> {
        let request = Request { verb: Verb::Take, items, counts_denied: false };
        let layers = Layers::of(Some(self), &request)?;
        let layered = layers.as_ref().map_or_else(|| items.to_vec(), Layers::items);
        let rules = layered.iter().filter_map(|item| match item.target {
            Target::Rule { name, values } => {
                self.matcher.rules().get(self.located(name, values).ok()?.rule)
            }
            Target::Descriptor { domain, entries, .. } => {
                Some(self.matcher.find(domain.as_bytes(), entries)?.1)
            }
            Target::Inline { .. } => None,
        });
        Ok(rules.collect())
    }

    /// Returns `true` if any of the rules has bounds of its own on the time of reservations.
    pub(in crate::engine) fn has_hold_times(rules: &[Arc<Rule>]) -> bool {
        let default = HoldBounds::DEFAULT;
        rules.iter().any(|rule| {
            let HoldBounds { ttl, max_ttl, .. } = rule.hold_bounds;
            (ttl, max_ttl) != (default.ttl, default.max_ttl)
        })
    }
}
