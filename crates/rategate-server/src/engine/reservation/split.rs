//! The items of a reservation by the party that keeps their counters.

use std::sync::Arc;
use std::time::Duration;

use rategate::Clock;
use smallvec::SmallVec;

use super::held_item::{HeldItem, HeldPermits, Holds};
use super::requests::Estimate;
use super::table::{OwnedUsage, Usages};
use super::{Cost, End};
use crate::engine::Engine;
use crate::engine::answer::{ItemResult, Verdict};
use crate::engine::counters::ActiveRule;
use crate::engine::error::EngineError;
use crate::engine::layered::{Layers, PartOf};
use crate::engine::live::{Live, Located};
use crate::engine::request::{Item, OwnedItem, Request, Target, Verb};
use crate::rule::{CounterLocation, Limit};

pub(super) const IN_PARTS: EngineError = EngineError::NotFor(
    "some rules of the descriptor count in this process, and others in a store or permits in \
     flight; a reservation of both names them as items of their own",
);

const IN_FLIGHT: &str =
    "counts permits in flight, which no request takes `once`: reserve or lease them under the id";

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
    /// The names of all rules that others of the operation replace.
    pub(super) replaced_rules: Vec<Arc<str>>,
}

/// An item that a store holds; of a descriptor with several rules, one part of it.
pub(super) struct StoredItem {
    /// The index of the item.
    pub(super) at: usize,
    pub(super) counter: Located,
    /// The number of permits to hold.
    pub(super) permits: u64,
    /// The cost of the item's usage, which is what it counts.
    pub(super) cost: Option<u64>,
    /// `true` if no other rule decides the item.
    alone: bool,
    /// The number that was asked for, before a share of the limit cut that.
    pub(super) requested: u64,
    /// `true` if a share of the limit bounds what is held.
    pub(super) is_cut: bool,
}

/// A rule that an item comes under.
struct Found {
    counter: Located,
    permits: u64,
    cost: Option<u64>,
    alone: bool,
}

/// The rules of an item.
type AllFound = SmallVec<[Found; 1]>;

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Returns `true` if the counters of any rule are in a store.
    pub(super) fn has_remotes(&self) -> bool {
        self.inner.live.load().as_ref().is_some_and(|live| live.has_remotes)
    }

    /// Splits the items of an operation. Returns `None` if none of them is held by a store.
    pub(super) fn split(
        &self,
        items: &[Item<'_>],
        verb: Verb,
    ) -> Result<Option<Split<C>>, EngineError> {
        if !self.has_remotes() {
            return Ok(None);
        }
        let Some(live) = self.inner.live.load_full() else { return Ok(None) };
        // Errors in an item are reported by the code for local items.
        let found = live.rules_of(items, verb)?;
        let all = || found.iter().flatten().filter_map(|found| live.ruled.get(found.counter.rule));
        if !all().any(is_stored) {
            return Ok(None);
        }
        let replaced: Vec<Arc<str>> =
            all().flat_map(|ruled| ruled.rule.replaces.iter().cloned()).collect();
        let names = self.inner.reservations.digest(None, items.iter().map(|item| &item.target));
        let mut split = Split {
            names,
            items: items.iter().map(OwnedItem::of).collect(),
            usages: OwnedUsage::of_all(items.iter()),
            stored: Vec::new(),
            here: Vec::new(),
            counts_here: false,
            replaced: Vec::new(),
            replaced_rules: replaced,
            live: Arc::clone(&live),
        };
        for ((at, item), found) in items.iter().enumerate().zip(found) {
            split.add(at, item, found)?;
        }
        Ok(Some(split))
    }
}

impl<C: Clock + Clone + 'static> Split<C> {
    fn add(&mut self, at: usize, item: &Item<'_>, mut found: AllFound) -> Result<(), EngineError> {
        let live = Arc::clone(&self.live);
        let ruled = |found: &Found| live.ruled.get(found.counter.rule);
        let replaced = &self.replaced_rules;
        let is_replaced =
            |found: &Found| ruled(found).is_some_and(|it| replaced.contains(&it.rule.name));
        let first = found.first().and_then(ruled);
        if let Some(first) = first.filter(|_| found.iter().all(is_replaced)) {
            self.replaced.push((at, first.result(Verdict::Replaced)));
            return Ok(());
        }
        found.retain(|found| !is_replaced(found));
        let is_in_store = |found: &Found| ruled(found).is_some_and(is_stored);
        if !found.iter().any(is_in_store) {
            let has_counter =
                |ruled: &ActiveRule<C>| ruled.counters.in_force().limit.policy().is_some();
            // What no rule is known of is a limit of the call, or no rule at all.
            let is_counted = !matches!(item.target, Target::Descriptor { limit: None, .. });
            self.counts_here |= match found.as_slice() {
                [] => is_counted,
                several => several.iter().any(|found| ruled(found).is_some_and(has_counter)),
            };
            self.here.push(at);
            return Ok(());
        }
        // What is not limited has nothing to hold.
        found.retain(|found| {
            let limit = ruled(found).map(|ruled| ruled.counters.in_force().limit);
            !matches!(limit, Some(Limit::Unlimited | Limit::Exempt))
        });
        if !found.iter().all(is_in_store) {
            return Err(IN_PARTS);
        }
        for found in found {
            let Found { counter, permits: requested, cost, alone } = found;
            let is_it = |other: &&StoredItem| other.counter == counter;
            if let Some(same) = self.stored.iter().find(is_it) {
                return Err(EngineError::DuplicateItem { first: same.at, second: at });
            }
            let Some(ruled) = live.ruled.get(counter.rule) else { continue };
            let (bounds, capacity) = (ruled.rule.hold_bounds, ruled.capacity());
            let (permits, is_cut) = (bounds.cut(requested, capacity), bounds.max_held.is_some());
            self.stored.push(StoredItem { at, counter, permits, cost, alone, requested, is_cut });
        }
        Ok(())
    }

    /// Checks that a store can hold the estimates.
    pub(super) fn check_estimates(&self) -> Result<(), EngineError> {
        let Some(none) = self.stored.iter().find(|item| item.permits == 0) else { return Ok(()) };
        let ruled = self.live.ruled.get(none.counter.rule).ok_or(EngineError::NotLoaded)?;
        Err(EngineError::NoPermits { item: none.at, rule: Arc::clone(&ruled.rule.name) })
    }

    /// Checks all items before any is sent: a request that is made at once holds no permits in
    /// flight, and leased permits take no charge.
    pub(super) fn check_once(&self, verb: Verb) -> Result<(), EngineError> {
        for item in &self.stored {
            let Some(ruled) = self.live.ruled.get(item.counter.rule) else { continue };
            if ruled.is_in_flight() {
                let rule = Arc::clone(&ruled.rule.name);
                return Err(EngineError::NotForItem { item: item.at, rule, why: IN_FLIGHT });
            }
            if verb == Verb::Charge && ruled.rule.location != CounterLocation::StoreExact {
                return Err(EngineError::not_charged(item.at, &ruled.rule));
            }
        }
        Ok(())
    }

    /// Returns the permits and the usages of the items.
    pub(super) fn estimates(&self) -> (SmallVec<[u64; 1]>, Usages) {
        (self.items.iter().map(OwnedItem::permits).collect(), self.usages.clone())
    }

    /// Returns `true` if this process remembers the id: it has a part of the reservation, or
    /// permits in flight.
    pub(super) fn is_remembered(&self) -> bool {
        self.counts_here || self.stored.iter().any(|item| self.is_in_flight_here(item))
    }

    /// Returns `true` for an item of permits in flight in this process.
    pub(super) fn is_in_flight_here(&self, item: &StoredItem) -> bool {
        let is_here = |ruled: &ActiveRule<C>| ruled.rule.location == CounterLocation::Here;
        self.live.ruled.get(item.counter.rule).is_some_and(is_here)
    }

    /// Returns the permits in flight of this process that are held since `sent_ns`.
    pub(super) fn in_flight(&self, estimates: &[Estimate], sent_ns: u64) -> Holds<C> {
        let held = |(item, estimate): (&StoredItem, &Estimate)| {
            let ends_ns = sent_ns.saturating_add(estimate.ends_in_ns?.get());
            let rule = Arc::clone(&self.live.ruled.get(item.counter.rule)?.rule);
            let (permits, ends_at) = (estimate.permits, Duration::from_nanos(ends_ns));
            let held = HeldPermits::InFlight { rule, permits, ends_at };
            Some(HeldItem::new(item.at, item.alone, held))
        };
        let here = self.stored.iter().zip(estimates);
        here.filter(|(item, _)| self.is_in_flight_here(item)).filter_map(held).collect()
    }

    /// Returns what was used of each hold in the store; `None` for all of it.
    pub(super) fn used(
        &self,
        costs: &[Cost<'_>],
        end: End,
    ) -> Result<Vec<Option<u64>>, EngineError> {
        let used = |item: &StoredItem| {
            let Some(ruled) = self.live.ruled.get(item.counter.rule) else { return Ok(None) };
            end.used((item.at, costs), (Some(&ruled.rule), item.alone))
        };
        self.stored.iter().map(used).collect()
    }
}

/// Returns `true` for a rule whose estimates a store holds, be it one of this process.
fn is_stored<C: Clock + Clone>(ruled: &ActiveRule<C>) -> bool {
    ruled.remote.is_some()
}

impl StoredItem {
    /// Returns `true` if a reservation of other permits may be this one: the share that bounds it,
    /// and the limit, may have been others then.
    pub(super) const fn may_hold(&self, permits: u64) -> bool {
        self.is_cut && 1 <= permits && permits <= self.requested
    }
}

impl<C: Clock + Clone + 'static> Live<C> {
    /// Returns the rules that each item comes under.
    fn rules_of(&self, items: &[Item<'_>], verb: Verb) -> Result<Vec<AllFound>, EngineError> {
        let request = Request { verb, items, counts_denied: false };
        let layers = Layers::of(Some(self), &request)?;
        let layered = layers.as_ref().map_or_else(|| items.to_vec(), Layers::items);
        let plain = |origin| PartOf { origin, alone: true, cost: None };
        let origins =
            layers.as_ref().map_or_else(|| (0..items.len()).map(plain).collect(), Layers::origins);
        let mut all: Vec<AllFound> = items.iter().map(|_| AllFound::new()).collect();
        for (item, PartOf { origin, alone, cost }) in layered.iter().zip(origins) {
            if let (Some(own), Some(counter)) = (all.get_mut(origin), self.found(&item.target)) {
                own.push(Found { counter, permits: item.permits, cost, alone });
            }
        }
        Ok(all)
    }
}
