//! Reservations whose counters are all in this process.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::charge::{Committed, Settled};
use rategate::{Clock, Status};
use rategate_core::span::whole_ns;
use smallvec::SmallVec;

use super::held_item::{EndedHold, HeldItem};
use super::table::{Entry, OwnedUsage, PartVerdict, State};
use super::{Cost, End, NOT_HELD, Reserved, Verdicts};
use crate::engine::answer::{Answer, Decided, ItemResult, Verdict};
use crate::engine::counter::Counter;
use crate::engine::error::EngineError;
use crate::engine::hold_change::HoldChange;
use crate::engine::request::{Item, Request, Target, Verb};
use crate::engine::tasks::{PendingItem, Task};
use crate::engine::unique_id::UniqueId;
use crate::engine::{Engine, Inner};
use crate::rule::Rule;

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Holds the permits of all items under an id, or of none.
    pub(super) fn reserve_here(
        &self,
        id: UniqueId,
        ttl: Duration,
        items: &[Item<'_>],
    ) -> Result<Reserved, EngineError> {
        let reservations = &self.inner.reservations;
        let names = reservations.digest(None, items.iter().map(|item| &item.target));
        let estimates = items.iter().map(|item| item.permits);
        let usages = OwnedUsage::of_all(items.iter());
        let now_ns = self.inner.clock.now_ns();
        let mut shard = reservations.lock(id);
        if let Some(entry) = shard.entry(now_ns) {
            let is_same = entry.permits.iter().copied().eq(estimates) && entry.usages == usages;
            if entry.names != names || !is_same {
                let other = entry.other(items.len());
                self.check_items(Verb::Take, items)?;
                return Err(other);
            }
            let (verdicts, ends_after_ns) = entry.repeated_reserve(now_ns);
            let (verdicts, held) = ((verdicts, entry.parts.clone()), entry.held());
            drop(shard);
            reservations.counts.repeated();
            let targets = items.iter().map(|item| item.target).enumerate();
            let mut answer = self.status(targets, ends_after_ns.is_some(), &verdicts);
            answer.set_costs(items.iter().map(Item::stated));
            if answer.allowed {
                answer.set_held(&held, 0..items.len());
            }
            return Ok(Reserved { answer, is_repeated: true, ends_after_ns });
        }
        reservations.check_capacity()?;
        let (answer, holds) = self.inner.hold_items(items, ttl, &[])?;
        if !answer.allowed {
            drop(shard);
            return Ok(Reserved { answer, is_repeated: false, ends_after_ns: None });
        }
        // Where nothing is counted the reservation lasts as long as it would otherwise.
        let first_ns = holds.iter().map(|held| whole_ns(held.ends_at())).min();
        let end_ns = first_ns.unwrap_or_else(|| now_ns.saturating_add(whole_ns(ttl)));
        let estimates = (estimates.collect(), usages);
        let ttl_ns = whole_ns(ttl);
        reservations.add(&mut shard, Entry::open(names, estimates, holds, end_ns, ttl_ns));
        drop(shard);
        reservations.counts.opened();
        // The holds have read the clock after `now_ns`.
        let left_ns = end_ns.saturating_sub(self.inner.clock.now_ns());
        Ok(Reserved { answer, is_repeated: false, ends_after_ns: NonZeroU64::new(left_ns) })
    }

    /// Decides a request once all of whose counters are in this process. A repetition is counted by
    /// the caller.
    pub(super) fn once_here(
        &self,
        id: UniqueId,
        request: &Request<'_>,
    ) -> Result<Reserved, EngineError> {
        let Request { verb, items, .. } = *request;
        let reservations = &self.inner.reservations;
        let targets = || items.iter().map(|item| item.target);
        let names = reservations.digest(Some(verb), items.iter().map(|item| &item.target));
        let permits = items.iter().map(|item| item.permits);
        let usages = OwnedUsage::of_all(items.iter());
        let now_ns = self.inner.clock.now_ns();
        let mut shard = reservations.lock(id);
        if let Some(entry) = shard.entry(now_ns) {
            let is_same = entry.names == names
                && entry.permits.iter().copied().eq(permits)
                && entry.usages == usages;
            let verdicts = match &entry.state {
                State::Settled(verdicts) if is_same => (verdicts.clone(), entry.parts.clone()),
                _ => {
                    let other = entry.other(items.len());
                    self.check_items(verb, items)?;
                    return Err(other);
                }
            };
            drop(shard);
            let mut answer = self.status(targets().enumerate(), true, &verdicts);
            answer.set_costs(items.iter().map(Item::stated));
            return Ok(Reserved { answer, is_repeated: true, ends_after_ns: None });
        }
        reservations.check_capacity()?;
        let answer = self.inner.decide_here(request)?;
        if answer.allowed {
            let verdicts = answer.results.iter().map(|result| result.verdict).collect();
            let parts = answer.results.iter().enumerate();
            let parts = parts.flat_map(|(at, result)| result.part_verdicts(at)).collect();
            let permits = (permits.collect(), usages);
            let entry = Entry::made(names, permits, (verdicts, parts), now_ns);
            reservations.add(&mut shard, entry);
        }
        Ok(Reserved { answer, is_repeated: false, ends_after_ns: None })
    }

    /// Ends a reservation whose counters are all in this process.
    pub(super) fn end_here(
        &self,
        id: UniqueId,
        costs: &[Cost<'_>],
        end: End,
    ) -> Result<Reserved, EngineError> {
        let reservations = &self.inner.reservations;
        let names = reservations.digest(None, costs.iter().map(|cost| &cost.target));
        let now_ns = self.inner.clock.now_ns();
        let mut shard = reservations.lock(id);
        let (mut left, mut was_over) = (SmallVec::new(), false);
        let (verdicts, is_repeated) = match shard.entry(now_ns) {
            None => {
                self.check_costs(costs, end)?;
                reservations.counts.unknown();
                ((costs.iter().map(|_| Verdict::Unknown).collect(), Vec::new()), false)
            }
            Some(entry) if entry.names != names => {
                let other = entry.other(costs.len());
                self.check_costs(costs, end)?;
                return Err(other);
            }
            Some(Entry { state: State::Settled(verdicts), parts, .. }) => {
                reservations.counts.repeated();
                ((verdicts.clone(), parts.clone()), true)
            }
            Some(entry) => {
                was_over = self.inner.end_if_due(entry, now_ns);
                let (verdicts, left_by) = self.settle(entry, costs, end)?;
                left = left_by;
                shard.settled(verdicts.clone(), now_ns);
                (verdicts, false)
            }
        };
        drop(shard);
        let has_effect = verdicts.0.iter().all(|&verdict| end.has_effect(verdict));
        let results = self.inner.results_of_ends(costs, &verdicts, &left);
        let mut answer = results.map_or_else(
            || {
                let targets = || costs.iter().map(|cost| cost.target).enumerate();
                let answer = self.status(targets(), has_effect, &verdicts);
                if !is_repeated {
                    self.inner.notify_settled(targets(), &answer, was_over);
                }
                answer
            },
            |results| Answer { allowed: has_effect, results },
        );
        answer.set_costs(costs.iter().map(Cost::stated));
        Ok(Reserved { answer, is_repeated, ends_after_ns: None })
    }

    /// Ends a reservation that is open, or was when its time ended. Also returns what the ends of
    /// its holds left. The holds may end by their time meanwhile.
    pub(super) fn settle(
        &self,
        entry: &mut Entry<C>,
        costs: &[Cost<'_>],
        end: End,
    ) -> Result<(Verdicts, AllLeft), EngineError> {
        let mut parts: Vec<PartVerdict> = Vec::new();
        let mut left = AllLeft::new();
        let verdicts = match &mut entry.state {
            State::Open { holds, .. } => {
                // Nothing is settled unless all costs are known.
                let used =
                    |held: &HeldItem<C>| held.ended().map_or(Ok(0), |ended| ended.used(costs, end));
                let used = holds.iter().map(used).collect::<Result<SmallVec<[u64; 4]>, _>>()?;
                let is_several = self.inner.comes_under_several(costs);
                let mut verdicts: SmallVec<[Verdict; 1]> =
                    costs.iter().map(|_| end.verdict(Committed::InTime(Settled::Even))).collect();
                for (held, used) in std::mem::take(holds).into_iter().zip(used) {
                    let (at, permits) = (held.at(), held.permits());
                    let rule = held.rule().map(Arc::clone);
                    let Some((committed, status)) = held.commit(used, &self.inner.clock) else {
                        continue;
                    };
                    if let Committed::Late(_) = committed {
                        self.inner.report(rule.as_ref(), &HoldChange::expired(permits));
                    }
                    let change = end.change(committed, permits, used);
                    self.inner.report(rule.as_ref(), &change);
                    let saturated = rule.as_ref().is_some_and(|rule| match committed {
                        Committed::Late(charged) => rule.is_saturated_by(charged),
                        Committed::InTime(_) => false,
                    });
                    if let Some(rule) = rule.as_ref().filter(|_| is_several || saturated) {
                        let (rule, verdict) = (Arc::clone(&rule.name), end.verdict(committed));
                        parts.push(PartVerdict { at, rule, verdict, saturated });
                    }
                    if let Some(verdict) = verdicts.get_mut(at) {
                        *verdict = end.verdict(committed).or_later(*verdict);
                    }
                    left.push(LeftByEnd { at, rule, status });
                }
                verdicts
            }
            State::Ended { held } => {
                return Ok((self.inner.charge_late(held, costs, end)?, left));
            }
            State::Settled(verdicts) => {
                return Ok(((verdicts.clone(), entry.parts.clone()), left));
            }
        };
        self.inner.reservations.counts.closed();
        Ok(((verdicts, parts), left))
    }

    /// Returns the status of each counter, with the verdicts of an operation that has been made.
    /// The targets have their indices in the call. Of rules that exist no longer there is none.
    pub(super) fn status<'a>(
        &self,
        targets: impl Iterator<Item = (usize, Target<'a>)>,
        allowed: bool,
        (verdicts, parts): &Verdicts,
    ) -> Answer {
        let result = |((at, target), &verdict): ((usize, Target<'_>), &Verdict)| {
            let items = [Item { nth: Some(at), ..Item::of(target, 0) }];
            let request = Request { verb: Verb::Peek, items: &items, counts_denied: false };
            let status = match self.decide(&request) {
                Decided::Now(Ok(answer)) => answer.results.into_iter().next(),
                _ => None,
            };
            let status = status.unwrap_or(ItemResult { remaining: None, ..ItemResult::UNMATCHED });
            let is_counted = !matches!(
                status.verdict,
                Verdict::Unmatched | Verdict::Unlimited | Verdict::Replaced
            );
            // What is not counted has no other verdict, unless nothing is known.
            let keeps_own = !is_counted && matches!(verdict, Verdict::Granted | NOT_HELD);
            let verdict = if keeps_own { status.verdict } else { verdict };
            let mut result = ItemResult { verdict, ..status };
            let own = |rule: &Rule| parts.iter().find(|it| it.at == at && it.rule == rule.name);
            result.set_verdicts(|rule| own(rule).map(|own| own.verdict), verdict.of_nothing());
            if parts.iter().any(|part| part.saturated) {
                result.for_each_rule(|result, rule, _| {
                    if own(rule).is_some_and(|own| own.saturated) {
                        result.detail.get_or_insert_default().saturated = true;
                    }
                });
            }
            result
        };
        Answer { allowed, results: targets.zip(verdicts).map(result).collect() }
    }
}

impl<C: Clock> Entry<C> {
    /// Returns the error of another operation under its id, with so many items.
    pub(super) fn other(&self, given: usize) -> EngineError {
        match self.permits.len() {
            known if known != given => EngineError::OtherNumber { known, given },
            _ => EngineError::OtherItems,
        }
    }
}

/// The status of a limit after the end of a hold.
pub(super) struct LeftByEnd {
    /// The index of the item.
    at: usize,
    rule: Option<Arc<Rule>>,
    status: Status,
}

/// The statuses that the ends of the holds of a reservation left.
pub(super) type AllLeft = SmallVec<[LeftByEnd; 1]>;

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Returns the results of the end of a reservation, and notifies the watchers.
    ///
    /// They are those that a search for the status would find, which takes as long as the end.
    /// Returns `None` unless each item comes under the rule that held it and no other.
    fn results_of_ends(
        &self,
        costs: &[Cost<'_>],
        (verdicts, parts): &Verdicts,
        left: &AllLeft,
    ) -> Option<SmallVec<[ItemResult; 1]>> {
        let live = self.live.load();
        let live = live.as_deref().filter(|live| !live.matcher.is_layered())?;
        if left.is_empty() || left.len() != costs.len() || !parts.is_empty() {
            return None;
        }
        let mut counters: SmallVec<[Counter<'_, C>; 1]> = SmallVec::new();
        let mut results: SmallVec<[ItemResult; 1]> = SmallVec::with_capacity(costs.len());
        for ((nth, cost), verdict) in costs.iter().enumerate().zip(verdicts) {
            let left = left.iter().find(|left| left.at == nth)?;
            let item = self.find(Some(live), Verb::Take, &Item::of(cost.target, 0)).ok()?;
            let Task::Acquisition(PendingItem { counter, .. }) = item else { return None };
            let rule = left.rule.as_ref()?;
            let ruled = counter.ruled().filter(|ruled| Arc::ptr_eq(&ruled.rule, rule))?;
            if !ruled.rule.replaces.is_empty() {
                return None;
            }
            results.push(counter.result_of(&self.clock, *verdict, left.status).ok()?);
            counters.push(counter);
        }
        for (counter, result) in counters.iter().zip(&results) {
            self.notify_settled_one(counter, result, false);
        }
        Some(results)
    }
}

impl Answer {
    /// Sets what is held of each item; `indices` are those of the items in the reservation.
    pub(super) fn set_held(&mut self, held: &[EndedHold], indices: impl Iterator<Item = usize>) {
        for (result, at) in self.results.iter_mut().zip(indices) {
            result.set_held_of(held, at);
        }
    }
}

impl ItemResult {
    /// Sets what is held of the item at an index, and of its parts, where anything is counted.
    pub(super) fn set_held_of(&mut self, held: &[EndedHold], at: usize) {
        let is_held = |held: &&EndedHold, rule: Option<&Arc<Rule>>| {
            let name = held.rule.as_ref().map(|rule| &rule.name);
            held.at() == at && rule.is_none_or(|rule| Some(&rule.name) == name)
        };
        if self.parts().is_empty() {
            let own = held.iter().find(|held| is_held(held, None));
            if own.is_some() || self.verdict == NOT_HELD {
                self.set_held(own.map_or(0, |held| held.permits));
            }
            return;
        }
        let Some(detail) = &mut self.detail else { return };
        let mut parts = std::mem::take(&mut detail.parts);
        for part in &mut parts {
            let own = held.iter().find(|held| is_held(held, part.rule.as_ref()));
            if let Some(own) = own {
                part.set_held(own.permits);
            }
        }
        self.set_parts(parts);
    }
}
