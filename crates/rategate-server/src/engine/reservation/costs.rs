//! The costs that the ends of reservations state: checked where no hold does it, and reported.

use rategate::Clock;
use smallvec::SmallVec;

use super::{Cost, End};
use crate::engine::answer::{Answer, Verdict};
use crate::engine::error::EngineError;
use crate::engine::layered::Layers;
use crate::engine::request::{Item, Request, Verb};
use crate::engine::{Engine, tasks::Task};

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Checks the items of an end that no hold judges, as those of a known reservation are.
    ///
    /// # Errors
    ///
    /// Those of a charge of the same.
    pub(super) fn check_costs(&self, costs: &[Cost<'_>], end: End) -> Result<(), EngineError> {
        let live = self.inner.live.load();
        let live = live.as_deref();
        let items = costs.iter().map(|cost| {
            let (permits, usage) = match end {
                End::Commit => (cost.permits.unwrap_or(0), cost.usage),
                End::Cancel => (0, None),
            };
            Item { usage, ..Item::of(cost.target, permits) }
        });
        let items: SmallVec<[Item<'_>; 4]> = items.collect();
        let request = Request { verb: Verb::Charge, items: &items, counts_denied: false };
        let layers = Layers::of(live, &request)?;
        let layered = layers.as_ref().map_or_else(|| items.to_vec(), Layers::items);
        for item in &layered {
            let _: Task<'_, C> = self.inner.find(live, Verb::Peek, item)?;
        }
        Ok(())
    }
}

impl Answer {
    /// Sets the costs of the usages of items whose results are those of an earlier operation, and
    /// notes what a state could not count of them.
    pub(super) fn set_costs(&mut self, items: &[Item<'_>]) {
        for (result, item) in self.results.iter_mut().zip(items) {
            if let Some(usage) = &item.usage {
                result.set_cost_of(usage);
            }
            result.for_each_rule(|result, rule, alone| {
                let used = rule.counts.amount(item.permits, item.usage.as_ref(), alone);
                result.note_saturation(used.unwrap_or(0));
            });
        }
    }

    /// Sets the costs of the usages of a commit, and notes what a state cannot count of them.
    pub(super) fn note_costs(&mut self, costs: &[Cost<'_>], end: End) {
        if end == End::Cancel {
            return;
        }
        for (result, cost) in self.results.iter_mut().zip(costs) {
            let is_settled = matches!(result.verdict, Verdict::Committed(_) | Verdict::Late(_));
            if let Some(usage) = cost.usage.as_ref().filter(|_| is_settled) {
                result.set_cost_of(usage);
            }
            result.for_each_rule(|result, rule, alone| {
                let used = end.used(Some(cost), (Some(rule), alone)).ok().flatten();
                result.note_saturation(used.unwrap_or(0));
            });
        }
    }
}
