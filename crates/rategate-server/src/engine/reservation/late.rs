//! Commits after the end of a reservation: what was used is charged, where something had been held.

use std::sync::Arc;

use rategate::Clock;
use smallvec::SmallVec;

use super::held_item::EndedHold;
use super::table::PartVerdict;
use super::{Cost, End, Verdicts};
use crate::engine::Inner;
use crate::engine::answer::Verdict;
use crate::engine::decide::Seen;
use crate::engine::error::EngineError;
use crate::engine::hold_change::{HoldChange, HoldOutcome};
use crate::engine::layered::Layers;
use crate::engine::live::Live;
use crate::engine::request::{Item, Request, Target, Verb};

impl<C: Clock + Clone + 'static> Inner<C> {
    /// Charges what was used in the limits in which a reservation had held. A rule that exists no
    /// longer is charged nothing.
    pub(super) fn charge_late(
        &self,
        held: &[EndedHold],
        costs: &[Cost<'_>],
        end: End,
    ) -> Result<Verdicts, EngineError> {
        let used: Vec<u64> =
            held.iter().map(|held| held.used(costs, end)).collect::<Result<_, _>>()?;
        let live = self.live.load();
        let live = live.as_ref().ok_or(EngineError::NotLoaded)?;
        let items: SmallVec<[Item<'_>; 4]> =
            costs.iter().map(|cost| Item::of(cost.target, 0)).collect();
        // What is charged is known, so a reset stands for the verb.
        let request = Request { verb: Verb::Reset, items: &items, counts_denied: false };
        let layers = Layers::of(Some(&**live), &request)?;
        let layered = layers.as_ref().map_or_else(|| items.to_vec(), Layers::items);
        let is_several = layers.as_ref().is_some_and(Layers::has_several);
        let (mut charges, mut of): (Vec<Item<'_>>, Vec<(&EndedHold, u64)>) =
            (Vec::new(), Vec::new());
        for (nth, item) in layered.iter().enumerate() {
            let origin = layers.as_ref().map_or(nth, |layers| layers.origin(nth));
            let rule = live.rule_of(&item.target);
            let own = held.iter().zip(&used).find(|(held, _)| {
                let name = held.rule.as_ref().map(|rule| &rule.name);
                held.at() == origin && (rule.is_none() || rule.as_ref() == name)
            });
            if let Some((held, &permits)) = own {
                charges.push(Item { permits, nth: Some(origin), ..*item });
                of.push((held, permits));
            }
        }
        self.check_here(Some(live), &charges)?;
        let request = Request { verb: Verb::Charge, items: &charges, counts_denied: false };
        let answer = self.decide(Some(live), &request, Seen::default())?;
        let mut verdicts: SmallVec<[Verdict; 1]> = costs.iter().map(|_| Verdict::Late(0)).collect();
        let mut parts = Vec::new();
        for ((held, used), result) in of.into_iter().zip(answer.results) {
            let Verdict::Charged(permits) = result.verdict else { continue };
            let error = (end == End::Commit).then(|| used.abs_diff(held.permits));
            let change = HoldChange { error, ..HoldChange::of(HoldOutcome::Late) };
            self.report(held.rule.as_ref(), &change);
            let saturated = result.is_saturated() && permits > 0;
            if let Some(rule) = held.rule.as_ref().filter(|_| is_several || saturated) {
                let (at, rule, verdict) =
                    (held.at(), Arc::clone(&rule.name), Verdict::Late(permits));
                parts.push(PartVerdict { at, rule, verdict, saturated });
            }
            if let Some(Verdict::Late(most)) = verdicts.get_mut(held.at()) {
                *most = permits.max(*most);
            }
        }
        Ok((verdicts, parts))
    }
}

impl<C: Clock + Clone + 'static> Live<C> {
    /// Returns the name of the rule of a counter. `None` where a limit of the call stands for it.
    fn rule_of(&self, target: &Target<'_>) -> Option<Arc<str>> {
        Some(Arc::clone(&self.ruled.get(self.found(target)?.rule)?.rule.name))
    }
}
