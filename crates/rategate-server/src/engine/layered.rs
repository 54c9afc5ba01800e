//! Several rules for the same descriptors: a request comes under all of them, and the strictest
//! one answers.
//!
//! A descriptor with several rules becomes one item for each rule, by name. So everything that
//! holds for the items of a request (all or nothing, quotas, stores) holds for them. The answer
//! has one part for each original item.

use std::cmp::Reverse;
use std::num::NonZeroU64;

use rategate::Clock;
use smallvec::SmallVec;

use super::answer::{Answer, Decided, ItemResult, Verdict};
use super::live::Live;
use super::request::{Item, Request, Target};
use crate::rule::Rule;

/// The rules of each item of a request.
pub(super) struct Layers<'a> {
    items: Vec<Layer<'a>>,
}

/// The values of a descriptor.
type Values<'a> = SmallVec<[&'a [u8]; 4]>;

/// An item, with the rules that it comes under and the values that select their counters.
struct Layer<'a> {
    item: Item<'a>,
    rules: Vec<(&'a Rule, Values<'a>)>,
}

impl<'a> Layers<'a> {
    /// Returns the layers of a request, if any of its descriptors comes under several rules.
    pub(super) fn of<C: Clock + Clone>(live: &'a Live<C>, request: &Request<'a>) -> Option<Self> {
        let items = request.items.iter().map(|item| {
            let mut rules = Vec::new();
            if let Target::Descriptor { domain, entries, limit: None } = item.target {
                let all = live.matcher.find_all(domain.as_bytes(), entries);
                if all.len() > 1 {
                    let all = all.iter().filter_map(|index| live.matcher.rules().get(*index));
                    rules = all.map(|rule| (&**rule, rule.varying(entries).collect())).collect();
                }
            }
            Layer { item: *item, rules }
        });
        let items: Vec<Layer<'a>> = items.collect();
        items.iter().any(|layer| !layer.rules.is_empty()).then_some(Self { items })
    }

    /// Returns the items to be decided.
    pub(super) fn items(&self) -> Vec<Item<'_>> {
        let mut items = Vec::new();
        for Layer { item, rules } in &self.items {
            if rules.is_empty() {
                items.push(*item);
            }
            items.extend(rules.iter().map(|(rule, values)| {
                let target = Target::Rule { name: &rule.name, values };
                Item { target, ..*item }
            }));
        }
        items
    }

    /// Returns the index of the original item of an item to be decided.
    pub(super) fn origin(&self, decided: usize) -> usize {
        let mut end = 0_usize;
        let is_before = |size: &usize| {
            end = end.saturating_add(*size);
            end <= decided
        };
        self.sizes().into_iter().take_while(is_before).count()
    }

    /// Returns the answer for the original items.
    pub(super) fn fold(&self, answer: Answer) -> Answer {
        folded(&self.sizes(), answer)
    }

    /// Returns the decision for the original items.
    pub(super) fn folded(&self, decided: Decided) -> Decided {
        let sizes = self.sizes();
        let fold = move |answer| folded(&sizes, answer);
        match decided {
            Decided::Now(answer) => Decided::Now(answer.map(fold)),
            Decided::Later(answer) => Decided::Later(Box::pin(async { answer.await.map(fold) })),
        }
    }

    /// Returns the number of items to be decided for each original item.
    fn sizes(&self) -> SmallVec<[usize; 4]> {
        self.items.iter().map(|layer| layer.rules.len().max(1)).collect()
    }
}

/// Returns an answer with one part for each original item, of so many parts.
fn folded(sizes: &[usize], answer: Answer) -> Answer {
    let mut results = answer.results.into_iter();
    let results = sizes.iter().filter_map(|size| strictest(results.by_ref().take(*size)));
    Answer { allowed: answer.allowed, results: results.collect() }
}

/// Returns the part that denies, with the longest wait of several; else the one with the least
/// remaining.
pub(super) fn strictest(results: impl Iterator<Item = ItemResult>) -> Option<ItemResult> {
    results.min_by_key(|result| {
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
