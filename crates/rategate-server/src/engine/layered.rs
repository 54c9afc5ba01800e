//! Several rules for the same descriptors: a call comes under all of them at once, and is answered by the one that says most.
//!
//! A descriptor that several rules are for becomes an item of each, by name, so that whatever holds for items of a request (all or
//! nothing, quotas, stores) holds for them. The parts of an answer are those of the items that were given.

use std::cmp::Reverse;
use std::num::NonZeroU64;

use rategate::Clock;
use smallvec::SmallVec;

use super::answer::{Answer, Decided, Part, Verdict};
use super::live::Live;
use super::request::{Item, Request, Target};
use crate::rule::Rule;

/// How many items each of a request's becomes, and of which rules.
pub(super) struct Layers<'a> {
    items: Vec<Layer<'a>>,
}

/// Values of a descriptor.
type Values<'a> = SmallVec<[&'a [u8]; 4]>;

/// An item: as it is, or as the rules that it comes under, each with the values that tell its counters apart.
struct Layer<'a> {
    item: Item<'a>,
    rules: Vec<(&'a Rule, Values<'a>)>,
}

impl<'a> Layers<'a> {
    /// The layers of a request, if any of its descriptors comes under several rules.
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

    /// The items to be decided.
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

    /// The answer to the items that were given.
    pub(super) fn folded(&self, decided: Decided) -> Decided {
        let sizes: SmallVec<[usize; 4]> =
            self.items.iter().map(|layer| layer.rules.len().max(1)).collect();
        let fold = move |answer: Answer| {
            let mut parts = answer.parts.into_iter();
            let parts = sizes.iter().filter_map(|size| strictest(parts.by_ref().take(*size)));
            Answer { allowed: answer.allowed, parts: parts.collect() }
        };
        match decided {
            Decided::Now(answer) => Decided::Now(answer.map(fold)),
            Decided::Later(answer) => Decided::Later(Box::pin(async { answer.await.map(fold) })),
        }
    }
}

/// The part that stands in the way, of several the one for longest; else the one with the least left.
fn strictest(parts: impl Iterator<Item = Part>) -> Option<Part> {
    parts.min_by_key(|part| {
        let wait_ns = match part.verdict {
            Verdict::Denied { .. } | Verdict::Gone { admitted: false, .. } => {
                part.verdict.retry_after_ns().map_or(u64::MAX, NonZeroU64::get)
            }
            Verdict::Gone { admitted: true, .. } => u64::MAX,
            _ => 0,
        };
        let left = part.remaining.unwrap_or(u64::MAX);
        (!part.verdict.is_over(), !part.verdict.is_refusal(), Reverse(wait_ns), left)
    })
}
