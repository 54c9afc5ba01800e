//! Reservations whose counters are all in this process.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::Clock;
use rategate::charge::{Committed, Settled};
use rategate_core::span::whole_ns;
use smallvec::SmallVec;

use super::table::{Entry, OwnedUsage, PartVerdict, State};
use super::{Cost, End, NOT_HELD, Reserved, Verdicts};
use crate::engine::Engine;
use crate::engine::answer::{Answer, Decided, ItemResult, Verdict};
use crate::engine::error::EngineError;
use crate::engine::request::{Item, Request, Target, Verb};
use crate::engine::unique_id::UniqueId;
use crate::rule::Usage;

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
        let usages = OwnedUsage::of_all(items.iter().map(|item| item.usage));
        let now_ns = self.inner.clock.now_ns();
        let mut shard = reservations.lock(id);
        if let Some(entry) = shard.entry(id, now_ns) {
            let is_same = entry.permits.iter().copied().eq(estimates) && entry.usages == usages;
            if entry.names != names || !is_same {
                return Err(EngineError::OtherItems);
            }
            let (verdicts, ends_after_ns) = entry.repeated_reserve(now_ns);
            let verdicts = (verdicts, entry.parts.clone());
            drop(shard);
            reservations.counts.repeated();
            let targets = items.iter().map(|item| item.target).enumerate();
            let answer = self.status(targets, ends_after_ns.is_some(), &verdicts);
            return Ok(Reserved { answer, is_repeated: true, ends_after_ns });
        }
        reservations.check_capacity()?;
        let (answer, holds) = self.inner.hold_items(items, ttl)?;
        if !answer.allowed {
            drop(shard);
            reservations.counts.denied();
            return Ok(Reserved { answer, is_repeated: false, ends_after_ns: None });
        }
        // Where nothing is counted the reservation lasts as long as it would otherwise.
        let last_ns = holds.iter().map(|(_, hold, _)| whole_ns(hold.ends_at())).max();
        let end_ns = last_ns.unwrap_or_else(|| now_ns.saturating_add(whole_ns(ttl)));
        let estimates = (estimates.collect(), usages);
        let ttl_ns = whole_ns(ttl);
        reservations.add(&mut shard, id, Entry::open(names, estimates, holds, end_ns, ttl_ns));
        drop(shard);
        reservations.counts.held();
        reservations.counts.opened();
        // The holds have read the clock after `now_ns`.
        let left_ns = end_ns.saturating_sub(self.inner.clock.now_ns());
        Ok(Reserved { answer, is_repeated: false, ends_after_ns: NonZeroU64::new(left_ns) })
    }

    /// Decides a request once all of whose counters are in this process.
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
        let usages = OwnedUsage::of_all(items.iter().map(|item| item.usage));
        let now_ns = self.inner.clock.now_ns();
        let mut shard = reservations.lock(id);
        if let Some(entry) = shard.entry(id, now_ns) {
            let is_same = entry.names == names
                && entry.permits.iter().copied().eq(permits)
                && entry.usages == usages;
            let State::Settled(verdicts) = &entry.state else {
                return Err(EngineError::OtherItems);
            };
            if !is_same {
                return Err(EngineError::OtherItems);
            }
            let verdicts = (verdicts.clone(), entry.parts.clone());
            drop(shard);
            reservations.counts.repeated();
            let answer = self.status(targets().enumerate(), true, &verdicts);
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
            reservations.add(&mut shard, id, entry);
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
        let targets = || costs.iter().map(|cost| cost.target);
        let mut shard = reservations.lock(id);
        let (verdicts, is_repeated) = match shard.entry(id, now_ns) {
            None => {
                reservations.counts.unknown();
                ((costs.iter().map(|_| Verdict::Unknown).collect(), Vec::new()), false)
            }
            Some(entry) if entry.names != names => return Err(EngineError::OtherItems),
            Some(Entry { state: State::Settled(verdicts), parts, .. }) => {
                reservations.counts.repeated();
                ((verdicts.clone(), parts.clone()), true)
            }
            Some(entry) => {
                let verdicts = self.settle(entry, costs, end)?;
                shard.settled(id, verdicts.clone(), now_ns);
                reservations.counts.ended(end, &verdicts.0);
                (verdicts, false)
            }
        };
        drop(shard);
        let has_effect = verdicts.0.iter().all(|&verdict| end.has_effect(verdict));
        let mut answer = self.status(targets().enumerate(), has_effect, &verdicts);
        if !is_repeated {
            answer.results.iter_mut().for_each(ItemResult::warn_of_settled);
            self.inner.notify_settled(targets().enumerate(), &answer);
        }
        Ok(Reserved { answer, is_repeated, ends_after_ns: None })
    }

    /// Ends a reservation that is open, or was when its time ended.
    pub(super) fn settle(
        &self,
        entry: &mut Entry<C>,
        costs: &[Cost<'_>],
        end: End,
    ) -> Result<Verdicts, EngineError> {
        let mut parts: Vec<PartVerdict> = Vec::new();
        let was_open = matches!(entry.state, State::Open { .. });
        let verdicts: SmallVec<[Verdict; 1]> = match &mut entry.state {
            State::Open { holds, .. } => {
                // Nothing is settled unless all costs are known.
                let used: Vec<u64> = end.used(holds, costs)?;
                let is_several = self.inner.comes_under_several(costs);
                let mut verdicts: SmallVec<[Verdict; 1]> =
                    costs.iter().map(|_| end.verdict(Committed::InTime(Settled::Even))).collect();
                for ((at, hold, rule), used) in std::mem::take(holds).into_iter().zip(used) {
                    // The limiter of a key is never closed.
                    let Ok(committed) = hold.commit(used) else { continue };
                    if is_several {
                        parts.push((at, Arc::clone(&rule.name), end.verdict(committed)));
                    }
                    if let Some(verdict) = verdicts.get_mut(at) {
                        *verdict = end.verdict(committed).or_later(*verdict);
                    }
                }
                verdicts
            }
            State::Ended { counted } => {
                let (usages, permits) = (&entry.usages, &entry.permits);
                let usages =
                    usages.iter().map(|own| Some((own.as_ref()?.counts(), own.as_ref()?.model())));
                let usages: Vec<_> = usages.collect();
                let (mut targets, mut at) = (Vec::new(), Vec::new());
                for (nth, cost) in costs.iter().enumerate().filter(|(at, _)| counted.contains(at)) {
                    let is_as_held = cost.permits.is_none() && cost.usage.is_none();
                    let held = usages.get(nth).and_then(Option::as_ref).filter(|_| is_as_held);
                    let held = held.map(|(counts, model)| Usage { counts, model: *model });
                    let estimate = permits.get(nth).copied().unwrap_or(0);
                    let item = Item::of(cost.target, cost.permits.unwrap_or(estimate));
                    targets.push(Item { usage: cost.usage.or(held), nth: Some(nth), ..item });
                    at.push(nth);
                }
                let charge = Request { verb: Verb::Charge, items: &targets, counts_denied: false };
                let charged = self.inner.decide_here(&charge)?;
                let mut verdicts: SmallVec<[Verdict; 1]> =
                    costs.iter().map(|_| Verdict::Late(0)).collect();
                for (at, result) in at.into_iter().zip(charged.results) {
                    let charged = result.part_verdicts(at).map(|(at, rule, verdict)| {
                        let verdict = match verdict {
                            Verdict::Charged(permits) => Verdict::Late(permits),
                            verdict => verdict,
                        };
                        (at, rule, verdict)
                    });
                    parts.extend(charged);
                    if let (Some(verdict), Verdict::Charged(permits)) =
                        (verdicts.get_mut(at), result.verdict)
                    {
                        *verdict = Verdict::Late(permits);
                    }
                }
                verdicts
            }
            State::Settled(verdicts) => return Ok((verdicts.clone(), entry.parts.clone())),
        };
        if was_open {
            self.inner.reservations.counts.closed();
        }
        Ok((verdicts, parts))
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
            result.set_verdicts(|rule| {
                let own = parts.iter().find(|(of, name, _)| *of == at && *name == rule.name);
                Some(own.map_or_else(|| verdict.of_nothing(), |(.., verdict)| *verdict))
            });
            result
        };
        Answer { allowed, results: targets.zip(verdicts).map(result).collect() }
    }
}
