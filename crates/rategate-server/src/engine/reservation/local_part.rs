//! The items in this process of a reservation that has others in a store.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate::Clock;
use rategate_core::span::whole_ns;
use smallvec::SmallVec;

use super::held_item::EndedHold;
use super::requests::Estimate;
use super::split::Split;
use super::table::{Entry, State};
use super::{Cost, End, Verdicts};
use crate::engine::Engine;
use crate::engine::answer::{ItemResult, Verdict};
use crate::engine::error::EngineError;
use crate::engine::layered::strictest;
use crate::engine::request::{Item, OwnedItem, Request, Target, Verb};
use crate::engine::unique_id::UniqueId;
use crate::rule::Usage;

/// Results with the indices of their items.
type Results = Vec<(usize, ItemResult)>;

/// A reservation that is known here.
pub(super) struct Known {
    pub(super) verdicts: Verdicts,
    /// The time for which it lasts.
    pub(super) ends_after_ns: Option<NonZeroU64>,
    held: SmallVec<[EndedHold; 1]>,
}

/// The end of a reservation in this process.
pub(super) struct EndHere {
    /// The verdict of each item here.
    pub(super) own: Verdicts,
    /// `true` if they are repeated.
    pub(super) is_repeated: bool,
    /// The verdicts of all items, if the id is known here.
    pub(super) known: Option<SmallVec<[Verdict; 1]>>,
    /// `true` if its time had ended before, and that was noticed.
    pub(super) was_over: bool,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Returns the reservation of an id, if this process has a part of it.
    ///
    /// # Errors
    ///
    /// [`EngineError::OtherItems`] and [`EngineError::OtherNumber`]; and
    /// [`EngineError::TooManyReservations`] if it is none and cannot be remembered.
    pub(super) fn known_here(
        &self,
        split: &Split<C>,
        id: UniqueId,
    ) -> Result<Option<Known>, EngineError> {
        let reservations = &self.inner.reservations;
        let now_ns = self.inner.clock.now_ns();
        match reservations.lock(id).entry(now_ns) {
            Some(entry) if !split.is_of(entry) => Err(entry.other(split.items.len())),
            Some(entry) => {
                let (verdicts, ends_after_ns) = entry.repeated_reserve(now_ns);
                let (verdicts, held) = ((verdicts, entry.parts.clone()), entry.held());
                Ok(Some(Known { verdicts, ends_after_ns, held }))
            }
            None if split.is_remembered() => reservations.check_capacity().map(|()| None),
            None => Ok(None),
        }
    }

    /// Holds the items in this process beside those that a store was sent at `sent_ns`, and
    /// remembers the id where the stores alone do not know all of it. Returns the results, `true`
    /// if they are held, and the time for which that lasts here.
    pub(super) fn hold_here(
        &self,
        split: &Split<C>,
        id: UniqueId,
        ttl: Duration,
        (estimates, sent_ns): (&[Estimate], u64),
    ) -> Result<(Results, bool, Option<NonZeroU64>), EngineError> {
        let reservations = &self.inner.reservations;
        let now_ns = self.inner.clock.now_ns();
        let in_flight = split.in_flight(estimates, sent_ns);
        let is_needed = split.counts_here || !in_flight.is_empty();
        // What is not enforced denies nothing, so its id is remembered where there is capacity.
        let is_not_held = |estimate: &Estimate| {
            matches!(estimate.result.verdict, Verdict::Denied { enforced: false, .. })
        };
        let is_useful = estimates.iter().any(is_not_held);
        if split.here.is_empty() && !is_needed && !is_useful {
            return Ok((Results::new(), true, None));
        }
        let mut shard = reservations.lock(id);
        // Of another operation, without a store, that has come meanwhile.
        if let Some(entry) = shard.entry(now_ns) {
            return Err(entry.other(split.items.len()));
        }
        let capacity = reservations.check_capacity();
        if is_needed {
            capacity.clone()?;
        }
        let held =
            split.with_here(|items| self.inner.hold_items(items, ttl, &split.replaced_rules));
        let at = |at: usize| split.here.get(at).copied().unwrap_or(at);
        let (answer, mut holds) = held.map_err(|error| match error {
            EngineError::DuplicateItem { first, second } => {
                EngineError::DuplicateItem { first: at(first), second: at(second) }
            }
            error => error,
        })?;
        for held in &mut holds {
            held.set_at(at(held.at()));
        }
        holds.extend(in_flight);
        let first_ns = holds.iter().map(|held| whole_ns(held.ends_at())).min();
        let end_ns = first_ns.unwrap_or_else(|| now_ns.saturating_add(whole_ns(ttl)));
        if answer.allowed && (is_needed || (is_useful && capacity.is_ok())) {
            let ttl_ns = whole_ns(ttl);
            let entry = Entry::open(split.names, split.estimates(), holds, end_ns, ttl_ns);
            reservations.add(&mut shard, entry);
            reservations.counts.opened();
        }
        // The holds have read the clock after `now_ns`.
        let left_ns = NonZeroU64::new(end_ns.saturating_sub(self.inner.clock.now_ns()));
        let results = split.here.iter().copied().zip(answer.results).collect();
        Ok((results, answer.allowed, left_ns))
    }

    /// Returns the status of the items in this process, for as many permits.
    pub(super) fn peek_here(&self, split: &Split<C>) -> Result<Results, EngineError> {
        let answer = split.with_here(|items| {
            self.inner.decide_here(&Request { verb: Verb::Peek, items, counts_denied: false })
        })?;
        Ok(split.here.iter().copied().zip(answer.results).collect())
    }

    /// Returns the results of the items in this process of a reservation that is known.
    pub(super) fn results_here(&self, split: &Split<C>, known: &Known) -> Results {
        let (verdicts, parts) = &known.verdicts;
        let own = |at: &usize| verdicts.get(*at).copied().unwrap_or(Verdict::Unknown);
        let own = split.here.iter().map(own).collect();
        let is_open = known.ends_after_ns.is_some();
        let mut results = self.results_of(split, &(own, parts.clone()), is_open);
        if is_open {
            for (at, result) in &mut results {
                result.set_held_of(&known.held, *at);
            }
        }
        results
    }

    /// Returns the results of the items in this process; `verdicts` has one for each of those.
    pub(super) fn results_of(
        &self,
        split: &Split<C>,
        verdicts: &Verdicts,
        allowed: bool,
    ) -> Results {
        let answer = split.with_here(|items| self.status(indexed(items), allowed, verdicts));
        split.here.iter().copied().zip(answer.results).collect()
    }

    /// Ends what is held in this process.
    pub(super) fn end_held_here(
        &self,
        split: &Split<C>,
        id: UniqueId,
        used: &[Option<u64>],
        end: End,
    ) -> Result<EndHere, EngineError> {
        let reservations = &self.inner.reservations;
        let now_ns = self.inner.clock.now_ns();
        let mut shard = reservations.lock(id);
        let mut was_over = false;
        let (verdicts, is_repeated) = match shard.entry(now_ns) {
            None => {
                split.with_costs(used, |costs| self.check_costs(costs, end))?;
                let verdict = if split.counts_here { Verdict::Unknown } else { Verdict::Granted };
                let verdicts = split.here.iter().map(|_| verdict).collect();
                let (own, is_repeated) = ((verdicts, Vec::new()), !split.counts_here);
                return Ok(EndHere { own, is_repeated, known: None, was_over });
            }
            Some(entry) if entry.names != split.names => {
                let other = entry.other(split.items.len());
                split.with_costs(used, |costs| self.check_costs(costs, end))?;
                return Err(other);
            }
            Some(Entry { state: State::Settled(verdicts), parts, .. }) => {
                ((verdicts.clone(), parts.clone()), true)
            }
            Some(entry) => {
                was_over = self.inner.end_if_due(entry, now_ns);
                let (verdicts, _) =
                    split.with_costs(used, |costs| self.settle(entry, costs, end))?;
                shard.settled(verdicts.clone(), now_ns);
                (verdicts, false)
            }
        };
        drop(shard);
        let (verdicts, parts) = verdicts;
        let own = |at: &usize| verdicts.get(*at).copied().unwrap_or(Verdict::Unknown);
        let own: Verdicts = (split.here.iter().map(own).collect(), parts);
        if !is_repeated {
            split.with_here(|items| {
                let settled = self.status(indexed(items), true, &own);
                self.inner.notify_settled(indexed(items), &settled, was_over);
            });
        }
        Ok(EndHere { own, is_repeated, known: Some(verdicts), was_over })
    }
}

impl<C: Clock + Clone + 'static> Split<C> {
    /// Calls `act` with all items.
    fn with_all<R>(&self, act: impl FnOnce(&[Item<'_>]) -> R) -> R {
        let lists: Vec<_> = self.items.iter().map(OwnedItem::borrowed).collect();
        let usages: Vec<_> = self.usages.iter().map(|own| Some(own.as_ref()?.units())).collect();
        let items = self.items.iter().zip(&lists).enumerate().map(|(at, (item, lists))| {
            let usage = usages.get(at).and_then(Option::as_ref);
            let usage = usage.map(|(model, counts)| Usage { counts, model: *model });
            Item { usage, nth: Some(at), ..item.item(lists) }
        });
        act(&items.collect::<Vec<_>>())
    }

    /// Calls `act` with the costs of all items, of which so many permits were used.
    pub(super) fn with_costs<R>(
        &self,
        used: &[Option<u64>],
        act: impl FnOnce(&[Cost<'_>]) -> R,
    ) -> R {
        self.with_all(|items| {
            let costs = items.iter().zip(used).map(|(item, &permits)| {
                let Item { target, usage, .. } = *item;
                Cost { target, permits, usage }
            });
            act(&costs.collect::<Vec<_>>())
        })
    }

    /// Calls `act` with the items in this process.
    pub(super) fn with_here<R>(&self, act: impl FnOnce(&[Item<'_>]) -> R) -> R {
        self.with_all(|items| {
            let here = self.here.iter().filter_map(|at| items.get(*at).copied());
            act(&here.collect::<Vec<_>>())
        })
    }

    /// Returns `true` if a reservation is of these items and permits.
    fn is_of(&self, entry: &Entry<C>) -> bool {
        let (permits, usages) = self.estimates();
        entry.names == self.names && entry.permits == permits && entry.usages == usages
    }

    /// Returns the results in the order of the items. Of the parts of an item, the strictest
    /// counts,
    /// or that of an end which went least well.
    pub(super) fn gathered(&self, mut results: Results) -> SmallVec<[ItemResult; 1]> {
        results.extend(self.replaced.iter().cloned());
        let of_item = |at: usize| {
            let parts = || results.iter().filter(move |(item, _)| *item == at);
            let worst = parts().map(|(_, result)| rank(result.verdict)).max();
            let worst = parts().filter(|(_, result)| Some(rank(result.verdict)) == worst);
            let worst: Vec<ItemResult> = worst.map(|(_, result)| result.clone()).collect();
            let Some(mut own) = strictest(&worst).cloned() else { return ItemResult::UNMATCHED };
            if parts().nth(1).is_some() {
                own.set_parts(parts().map(|(_, result)| result.clone()).collect());
            }
            own
        };
        (0..self.items.len()).map(of_item).collect()
    }
}

/// Returns the targets of items with their indices in the call.
fn indexed<'a>(items: &[Item<'a>]) -> impl Iterator<Item = (usize, Target<'a>)> {
    items.iter().enumerate().map(|(at, item)| (item.nth.unwrap_or(at), item.target))
}

/// Returns how far an end is from one in time.
const fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Unavailable { .. } => 3,
        Verdict::Unknown => 2,
        Verdict::Late(_) => 1,
        _ => 0,
    }
}
