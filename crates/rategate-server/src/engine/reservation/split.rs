//! The items of a reservation by the party that keeps their counters.

use std::sync::Arc;

use rategate::Clock;
use smallvec::SmallVec;

use super::table::{OwnedUsage, Usages};
use super::{Cost, End};
use crate::engine::Engine;
use crate::engine::answer::{ItemResult, Verdict};
use crate::engine::counters::ActiveRule;
use crate::engine::error::EngineError;
use crate::engine::key::Key;
use crate::engine::layered::Layers;
use crate::engine::live::Live;
use crate::engine::request::{Item, OwnedItem, Request, Target, Verb};
use crate::rule::{Counts, Limit};

const IN_PARTS: EngineError = EngineError::NotFor(
    "some rules of the descriptor count in this process and others in a store; a reservation of \
     both names them as items of their own",
);

const NONE_IN_A_STORE: EngineError =
    EngineError::NotFor("what a store holds under an id is at least one permit");

/// The items of an operation on a reservation, some of which are in a store.
pub(super) struct Split<C: Clock> {
    pub(super) live: Arc<Live<C>>,
    /// The digest of all counters.
    pub(super) names: u64,
    pub(super) items: Vec<OwnedItem>,
    /// The units that the items used, in place of permits.
    pub(super) usages: Usages,
    pub(super) stored: Vec<StoredItem>,
    /// The indices of the items whose counters are not in a store.
    pub(super) here: Vec<usize>,
    /// `true` if any of those has a counter.
    pub(super) counts_here: bool,
    /// The items that another rule of the operation replaces.
    pub(super) replaced: Vec<(usize, ItemResult)>,
}

/// An item that a store holds; of a descriptor with several rules, one part of it.
pub(super) struct StoredItem {
    /// The index of the item.
    pub(super) at: usize,
    /// The index of the rule.
    pub(super) rule: usize,
    pub(super) key: Key,
    pub(super) permits: u64,
}

/// The rules of an item by their index, with the keys of their counters and what it counts there.
type Found = SmallVec<[(usize, Key, u64); 1]>;

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Splits the items of an operation. Returns `None` if none of them is held by a store.
    pub(super) fn split(
        &self,
        items: &[Item<'_>],
        verb: Verb,
    ) -> Result<Option<Split<C>>, EngineError> {
        let Some(live) = self.inner.live.load_full().filter(|live| live.has_remotes) else {
            return Ok(None);
        };
        // Errors in an item are reported by the code for local items.
        let found = live.rules_of(items, verb)?;
        let all = || found.iter().flatten().filter_map(|(rule, ..)| live.ruled.get(*rule));
        if !all().any(is_stored) {
            return Ok(None);
        }
        let replaced: Vec<Arc<str>> =
            all().flat_map(|ruled| ruled.rule.replaces.iter().cloned()).collect();
        let names = self.inner.reservations.digest(None, items.iter().map(|item| &item.target));
        let mut split = Split {
            names,
            items: items.iter().map(OwnedItem::of).collect(),
            usages: OwnedUsage::of_all(items.iter().map(|item| item.usage)),
            stored: Vec::new(),
            here: Vec::new(),
            counts_here: false,
            replaced: Vec::new(),
            live: Arc::clone(&live),
        };
        for ((at, item), found) in items.iter().enumerate().zip(found) {
            split.add(at, item, found, &replaced)?;
        }
        Ok(Some(split))
    }
}

impl<C: Clock + Clone + 'static> Split<C> {
    fn add(
        &mut self,
        at: usize,
        item: &Item<'_>,
        mut found: Found,
        replaced: &[Arc<str>],
    ) -> Result<(), EngineError> {
        let live = Arc::clone(&self.live);
        let ruled = |rule: usize| live.ruled.get(rule);
        let is_replaced =
            |rule: usize| ruled(rule).is_some_and(|it| replaced.contains(&it.rule.name));
        let first = found.first().and_then(|(rule, ..)| ruled(*rule));
        if let Some(first) = first.filter(|_| found.iter().all(|(rule, ..)| is_replaced(*rule))) {
            self.replaced.push((at, first.result(Verdict::Replaced)));
            return Ok(());
        }
        found.retain(|(rule, ..)| !is_replaced(*rule));
        let is_in_store = |(rule, ..): &(usize, Key, u64)| ruled(*rule).is_some_and(is_stored);
        if !found.iter().any(is_in_store) {
            let has_counter =
                |ruled: &ActiveRule<C>| ruled.counters.in_force().limit.policy().is_some();
            // What no rule is known of is a limit of the call, or no rule at all.
            let is_counted = !matches!(item.target, Target::Descriptor { limit: None, .. });
            self.counts_here |= match found.as_slice() {
                [] => is_counted,
                several => several.iter().any(|(rule, ..)| ruled(*rule).is_some_and(has_counter)),
            };
            self.here.push(at);
            return Ok(());
        }
        // What is not limited has nothing to hold.
        found.retain(|(rule, ..)| {
            let limit = ruled(*rule).map(|ruled| ruled.counters.in_force().limit);
            !matches!(limit, Some(Limit::Unlimited | Limit::Exempt))
        });
        if !found.iter().all(is_in_store) {
            return Err(IN_PARTS);
        }
        for (rule, key, permits) in found {
            let same = self.stored.iter().find(|other| other.rule == rule && other.key == key);
            if let Some(same) = same {
                return Err(EngineError::DuplicateItem { first: same.at, second: at });
            }
            self.stored.push(StoredItem { at, rule, key, permits });
        }
        Ok(())
    }

    /// Checks that a store can hold the estimates.
    pub(super) fn check_estimates(&self) -> Result<(), EngineError> {
        let is_none = |item: &StoredItem| item.permits == 0;
        if self.stored.iter().any(is_none) { Err(NONE_IN_A_STORE) } else { Ok(()) }
    }

    /// Returns the permits and the usages of the items.
    pub(super) fn estimates(&self) -> (SmallVec<[u64; 1]>, Usages) {
        (self.items.iter().map(OwnedItem::permits).collect(), self.usages.clone())
    }

    /// Returns what was used of each hold in the store; `None` for all of it.
    pub(super) fn used(
        &self,
        costs: &[Cost<'_>],
        end: End,
    ) -> Result<Vec<Option<u64>>, EngineError> {
        let used = |item: &StoredItem| {
            let cost = costs.get(item.at);
            let (permits, usage) = cost.map_or((None, None), |cost| (cost.permits, cost.usage));
            let Some(ruled) = self.live.ruled.get(item.rule) else { return Ok(None) };
            let rule = &ruled.rule;
            match (end, permits, usage) {
                (End::Cancel, ..) => Ok(Some(0)),
                (End::Commit, None, None) => Ok(None),
                // The request stays one, however little was used.
                (End::Commit, ..) if rule.counts == Counts::Requests => Ok(None),
                (End::Commit, permits, usage) => {
                    let alone = self.stored.iter().filter(|other| other.at == item.at).count() == 1;
                    let amount = rule.counts.amount(permits.unwrap_or(0), usage.as_ref(), alone);
                    amount.map(Some).map_err(|why| rule.cost_error(why))
                }
            }
        };
        self.stored.iter().map(used).collect()
    }
}

/// Returns `true` for a rule whose estimates a store holds.
fn is_stored<C: Clock + Clone>(ruled: &ActiveRule<C>) -> bool {
    ruled.remote.is_some() && !ruled.is_in_flight()
}

impl<C: Clock + Clone + 'static> Live<C> {
    /// Returns the rules that each item comes under.
    fn rules_of(&self, items: &[Item<'_>], verb: Verb) -> Result<Vec<Found>, EngineError> {
        let request = Request { verb, items, counts_denied: false };
        let layers = Layers::of(Some(self), &request)?;
        let layered = layers.as_ref().map_or_else(|| items.to_vec(), Layers::items);
        let mut all: Vec<Found> = items.iter().map(|_| Found::new()).collect();
        for (nth, item) in layered.iter().enumerate() {
            let origin = layers.as_ref().map_or(nth, |layers| layers.origin(nth));
            if let (Some(own), Some((rule, key))) = (all.get_mut(origin), self.found(&item.target))
            {
                own.push((rule, key, item.permits));
            }
        }
        Ok(all)
    }
}
