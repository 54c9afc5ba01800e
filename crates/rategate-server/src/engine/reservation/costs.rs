//! The costs that the ends of reservations state: checked where no hold does it, and reported.

use rategate::Clock;
use smallvec::SmallVec;

use super::{Cost, End};
use crate::engine::answer::{Answer, ItemResult, Verdict};
use crate::engine::error::EngineError;
use crate::engine::layered::Layers;
use crate::engine::request::{Item, Request, Verb};
use crate::engine::{Engine, tasks::Task};
use crate::rule::{Counts, Usage};

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Checks the items of an end that no hold judges, as those of a known reservation are.
    ///
    /// # Errors
    ///
    /// Those of a charge of the same.
    pub(super) fn check_costs(&self, costs: &[Cost<'_>], end: End) -> Result<(), EngineError> {
        let items = costs.iter().map(|cost| {
            let (permits, usage) = match end {
                End::Commit => (cost.permits.unwrap_or(0), cost.usage),
                End::Cancel => (0, None),
            };
            Item { usage, ..Item::of(cost.target, permits) }
        });
        self.check_items(Verb::Charge, &items.collect::<SmallVec<[Item<'_>; 4]>>())
    }

    /// Checks the items of an operation whose id is that of another: a fault in an item is the
    /// cause, and says more.
    pub(super) fn check_items(&self, verb: Verb, items: &[Item<'_>]) -> Result<(), EngineError> {
        let live = self.inner.live.load();
        let live = live.as_deref();
        let request = Request { verb, items, counts_denied: false };
        let layers = Layers::of(live, &request)?;
        let layered = layers.as_ref().map_or_else(|| items.to_vec(), Layers::items);
        for item in &layered {
            let _: Task<'_, C> = self.inner.find(live, Verb::Peek, item)?;
        }
        Ok(())
    }
}

impl Answer {
    /// Sets the costs of usages that were counted, and notes what a state could not count. Each
    /// item states its permits, and its usage if it has one.
    pub(super) fn set_costs<'u>(
        &mut self,
        stated: impl Iterator<Item = (u64, Option<&'u Usage<'u>>)>,
    ) {
        for (result, (permits, usage)) in self.results.iter_mut().zip(stated) {
            let is_counted = |it: &ItemResult| {
                !matches!(it.verdict, Verdict::Unknown | Verdict::Cancelled(_))
                    && !it.verdict.is_unavailable()
            };
            let usage = usage.filter(|_| is_counted(result));
            // As a rule there is nothing to say, and the rules need not be asked.
            if usage.is_none() && !result.may_be_saturated() {
                continue;
            }
            result.for_each_rule(|result, rule, alone| {
                let cost = rule.counts.amount(permits, usage, alone).ok();
                if usage.is_some() && matches!(rule.counts, Counts::Usage(_) | Counts::Money(_)) {
                    result.detail.get_or_insert_default().cost = cost;
                }
                result.note_saturation(cost.unwrap_or(0));
            });
        }
    }
}
