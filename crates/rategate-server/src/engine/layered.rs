//! Items that come under several rules, or count something other than permits.
//!
//! A call comes under several rules where its descriptor matches several, where it names a rule
//! with several limits, and where a rule takes [also](Rule::also) from others. Such an item becomes
//! one for each rule, by name, with what it counts there. So everything that holds for the items of
//! a request (all or nothing, quotas, stores) holds for them. The answer has one part for each
//! original item: that of the strictest rule, with those of all rules in its
//! [detail](super::Detail).

use std::cmp::Reverse;
use std::num::NonZeroU64;
use std::sync::Arc;

use rategate::Clock;
use smallvec::SmallVec;

use super::answer::{Answer, Decided, ItemResult, Verdict};
use super::error::EngineError;
use super::live::Live;
use super::request::{Item, Request, Target, Verb};
use crate::rule::{CostError, Counts, NamedEntries, Rule};

/// The rules of each item of a request.
pub(super) struct Layers<'a> {
    items: Vec<Layer<'a>>,
}

/// An item, with the rules that it comes under. Without any, it is decided as it is.
struct Layer<'a> {
    item: Item<'a>,
    parts: Vec<Part<'a>>,
}

/// A rule of an item.
struct Part<'a> {
    rule: &'a Arc<Rule>,
    /// The values that select its counter.
    values: SmallVec<[&'a [u8]; 4]>,
    /// The permits that the item counts.
    permits: u64,
    /// These permits, if they are the cost of a usage.
    cost: Option<u64>,
}

/// The origin of an item to be decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartOf {
    /// The index of the original item.
    pub(super) origin: usize,
    /// `true` if no other rule decides the original item.
    pub(super) alone: bool,
    /// The cost of a usage, which is what the item counts.
    pub(super) cost: Option<u64>,
}

/// The costs of the parts of each original item that has parts.
type Shape = SmallVec<[Option<Box<[Option<u64>]>>; 4]>;

impl<'a> Layers<'a> {
    /// Returns the layers of a request, unless each of its items is decided as it is.
    ///
    /// # Errors
    ///
    /// [`EngineError::Cost`], and [`EngineError::Values`] for a rule with several limits.
    pub(super) fn of<C: Clock + Clone>(
        live: Option<&'a Live<C>>,
        request: &Request<'a>,
    ) -> Result<Option<Self>, EngineError> {
        let has_usage = || request.items.iter().any(|item| item.usage.is_some());
        let Some(live) = live.filter(|live| live.matcher.is_layered() || has_usage()) else {
            return Ok(None);
        };
        let items = request.items.iter().enumerate();
        let items =
            items.map(|(at, item)| Layer::of(live, (item.nth.unwrap_or(at), item), request.verb));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        let is_plain = items.iter().all(|layer| layer.parts.is_empty());
        Ok((!is_plain).then_some(Self { items }))
    }

    /// Returns `true` if any item comes under several rules.
    pub(super) fn has_several(&self) -> bool {
        self.items.iter().any(|layer| layer.parts.len() > 1)
    }

    /// Returns the items to be decided.
    pub(super) fn items(&self) -> Vec<Item<'_>> {
        let mut items = Vec::new();
        for Layer { item, parts } in &self.items {
            if parts.is_empty() {
                items.push(*item);
            }
            items.extend(parts.iter().map(|part| {
                let target = Target::Rule { name: &part.rule.name, values: &part.values };
                Item { target, permits: part.permits, usage: None, ..*item }
            }));
        }
        items
    }

    /// Returns the origins of the items to be decided, in their order.
    pub(super) fn origins(&self) -> Vec<PartOf> {
        let layers = self.items.iter().enumerate();
        let origins = layers.flat_map(|(origin, Layer { parts, .. })| {
            let alone = parts.len() <= 1;
            let costs = (0..parts.len().max(1)).map(|at| parts.get(at).and_then(|part| part.cost));
            costs.map(move |cost| PartOf { origin, alone, cost })
        });
        origins.collect()
    }

    /// Returns the index of the original item of an item to be decided.
    pub(super) fn origin(&self, decided: usize) -> usize {
        origin(self.items.iter().map(|layer| layer.parts.len().max(1)), decided)
    }

    /// Returns the answer for the original items.
    pub(super) fn fold(&self, answer: Answer) -> Answer {
        folded(self.shape(), answer)
    }

    /// Returns the decision for the original items.
    pub(super) fn folded(&self, decided: Decided) -> Decided {
        let shape = self.shape();
        let fold = move |answer: Result<Answer, EngineError>| match answer {
            Ok(answer) => Ok(folded(shape, answer)),
            Err(error) => Err(error.of_origin(|item| {
                let sizes = shape.iter().map(|costs| costs.as_ref().map_or(1, |costs| costs.len()));
                origin(sizes, item)
            })),
        };
        match decided {
            Decided::Now(answer) => Decided::Now(fold(answer)),
            Decided::Later(answer) => Decided::Later(Box::pin(async { fold(answer.await) })),
        }
    }

    fn shape(&self) -> Shape {
        let costs = |parts: &[Part<'_>]| parts.iter().map(|part| part.cost).collect();
        let layers = self.items.iter();
        layers.map(|layer| (!layer.parts.is_empty()).then(|| costs(&layer.parts))).collect()
    }
}

impl<'a> Layer<'a> {
    fn of<C: Clock + Clone>(
        live: &'a Live<C>,
        (nth, item): (usize, &Item<'a>),
        verb: Verb,
    ) -> Result<Self, EngineError> {
        let plain = Self { item: *item, parts: Vec::new() };
        let Some((first, entries)) = rules_of(live, &item.target, item.usage.is_some())? else {
            return match item.usage {
                Some(_) if item.target.has_own_limit() => Err(EngineError::NO_WEIGHTS),
                _ => Ok(plain),
            };
        };
        let mut all = first.clone();
        for index in first.iter().flat_map(|index| live.matcher.also(*index)) {
            if !all.contains(index) {
                all.push(*index);
            }
        }
        let rules = all.iter().filter_map(|index| live.matcher.rules().get(*index));
        let rules: SmallVec<[&Arc<Rule>; 4]> = rules.collect();
        if let ([rule], None) = (rules.as_slice(), item.usage)
            && rule.counts == Counts::Permits
        {
            return Ok(plain);
        }
        let alone = rules.len() == 1;
        let part = |rule: &&'a Arc<Rule>| {
            let values = rule.values_in(&entries).unwrap_or_default();
            let permits = rule.amount(item, verb, alone);
            let permits = permits.map_err(|why| rule.cost_error(nth, why))?;
            let is_cost = matches!(rule.counts, Counts::Usage(_) | Counts::Money(_));
            let cost = item.usage.filter(|_| is_cost).map(|_| permits);
            Ok(Part { rule, values, permits, cost })
        };
        let parts = rules.iter().map(part).collect::<Result<_, EngineError>>()?;
        Ok(Self { parts, ..plain })
    }
}

/// Returns the rules that a target names or matches, and the entries of the call. `None` where a
/// target is decided as it is, or is faulty.
#[expect(clippy::type_complexity, reason = "a pair, or nothing")]
fn rules_of<'a, C: Clock + Clone>(
    live: &'a Live<C>,
    target: &Target<'a>,
    has_usage: bool,
) -> Result<Option<(SmallVec<[usize; 4]>, NamedEntries<'a>)>, EngineError> {
    let matcher = &live.matcher;
    match *target {
        Target::Descriptor { domain, entries, limit: None } => {
            let all = matcher.find_all(domain.as_bytes(), entries);
            Ok((!all.is_empty()).then(|| (all.into(), entries.into())))
        }
        Target::Descriptor { .. } | Target::Inline { .. } => Ok(None),
        Target::Rule { name, values } => {
            let group = matcher.group(name);
            let Some(rule) = group.first().and_then(|index| matcher.rules().get(*index)) else {
                let Some((_, rule)) = matcher.named(name) else { return Ok(None) };
                // Tiers count and take from others as their rule does.
                if !has_usage && rule.also.is_empty() && rule.counts == Counts::Permits {
                    return Ok(None);
                }
                let Ok(located) = live.located(name, values) else { return Ok(None) };
                let (all, entries) = (std::iter::once(located.rule), rule.entries_of(values));
                return Ok(entries.map(|entries| (all.collect(), entries)));
            };
            let (needed, given) = (rule.values_counted(), values.len());
            let error = || EngineError::Values { rule: name.into(), needed, given };
            let entries = rule.entries_of(values).filter(|_| needed == given);
            Ok(Some((group.into(), entries.ok_or_else(error)?)))
        }
    }
}

impl Rule {
    /// Returns the values among the entries of a call with which a call names the rule. There
    /// may be further entries: a rule takes from others over some of its own.
    fn values_in<'e>(&self, entries: &[(&'e [u8], &'e [u8])]) -> Option<SmallVec<[&'e [u8]; 4]>> {
        let value = |(nth, entry): (usize, &crate::rule::Entry)| {
            let earlier = self.entries.iter().take(nth).filter(|one| one.key == entry.key).count();
            let mut own = entries.iter().filter(|(key, _)| *key == entry.key.as_bytes());
            own.nth(earlier).map(|(_, value)| *value)
        };
        let stated = self.entries.iter().enumerate().filter(|(_, entry)| entry.value.varies());
        stated.map(value).collect()
    }

    /// Returns what an item counts in this limit. A refund returns no request: the call was made.
    fn amount(&self, item: &Item<'_>, verb: Verb, alone: bool) -> Result<u64, CostError> {
        match (item.verb(verb), &self.counts) {
            (Verb::Refund, Counts::Requests) if !alone => return Ok(0),
            (Verb::Reset, _) => return Ok(item.permits),
            _ => {}
        }
        self.counts.amount(item.permits, item.usage.as_ref(), alone)
    }

    /// Returns the error for an item whose cost is unknown, at an index of the call.
    pub(super) fn cost_error(&self, item: usize, why: CostError) -> EngineError {
        EngineError::Cost { item, rule: Arc::clone(&self.name), why }
    }
}

/// Returns the index of the original item of an item to be decided, by the numbers of parts.
fn origin(sizes: impl Iterator<Item = usize>, decided: usize) -> usize {
    let mut end = 0_usize;
    let is_before = |size: &usize| {
        end = end.saturating_add(*size);
        end <= decided
    };
    sizes.take_while(is_before).count()
}

/// Returns an answer with one part for each original item.
fn folded(shape: Shape, answer: Answer) -> Answer {
    let mut results = answer.results.into_iter();
    let results = shape.into_iter().filter_map(|costs| {
        let Some(costs) = costs else { return results.next() };
        let parts = costs.iter().zip(results.by_ref()).map(|(cost, mut result)| {
            if cost.is_some() {
                result.detail.get_or_insert_default().cost = *cost;
            }
            result
        });
        let parts: Vec<ItemResult> = parts.collect();
        match parts.as_slice() {
            [_] => parts.into_iter().next(),
            _ => ItemResult::of_parts(parts),
        }
    });
    Answer { allowed: answer.allowed, results: results.collect() }
}

impl ItemResult {
    /// Returns the result of an item of several rules: that of the strictest, with all of them, and
    /// with the most that is held in any.
    fn of_parts(parts: Vec<Self>) -> Option<Self> {
        let mut strictest = strictest(&parts)?.clone();
        strictest.set_parts(parts);
        Some(strictest)
    }

    /// Sets the results of its rules, and what is held of it to the most that is held in any,
    /// unless they hold the costs of a usage.
    pub(super) fn set_parts(&mut self, parts: Vec<Self>) {
        // Costs are of several units, such as tokens and money.
        let is_usage = parts.iter().any(|part| part.cost().is_some());
        let held = parts.iter().filter_map(Self::held);
        let held = if is_usage && held.clone().nth(1).is_some() { None } else { held.max() };
        let detail = self.detail.get_or_insert_default();
        (detail.held, detail.parts) = (held, parts);
    }

    /// Sets the verdicts of its parts: that of an operation in each rule that it was about, and
    /// `otherwise` in others. It shows the strictest of the former: a rule that has come since
    /// counted nothing.
    pub(super) fn set_verdicts(
        &mut self,
        verdict_of: impl Fn(&Rule) -> Option<Verdict>,
        otherwise: Verdict,
    ) {
        let own = |part: &Self| part.rule.as_ref().and_then(|rule| verdict_of(rule));
        let Some(detail) = self.detail.as_mut().filter(|detail| !detail.parts.is_empty()) else {
            return;
        };
        let mut parts = std::mem::take(&mut detail.parts);
        for part in &mut parts {
            part.verdict = own(part).unwrap_or(otherwise);
        }
        let of_others = own(self).is_none();
        let about: Vec<Self> =
            parts.iter().filter(|part| of_others && own(part).is_some()).cloned().collect();
        if let Some(shown) = strictest(&about) {
            *self = shown.clone();
        } else if let Some(same) = parts.iter().find(|part| part.rule == self.rule) {
            self.verdict = same.verdict;
        }
        self.set_parts(parts);
    }
}

/// Returns the part that denies, with the longest wait of several; else the one with the least
/// remaining.
pub(super) fn strictest(parts: &[ItemResult]) -> Option<&ItemResult> {
    parts.iter().min_by_key(|result| {
        let wait_ns = match result.verdict {
            Verdict::Denied { .. } | Verdict::Unavailable { admitted: false, .. } => {
                result.verdict.retry_after_ns().map_or(u64::MAX, NonZeroU64::get)
            }
            Verdict::Unavailable { admitted: true, .. } => u64::MAX,
            _ => 0,
        };
        let left = result.remaining.unwrap_or(u64::MAX);
        (!result.verdict.is_over(), !result.verdict.is_refusal(), Reverse(wait_ns), left)
    })
}
