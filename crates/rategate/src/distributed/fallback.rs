//! What is decided here while the store is gone.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use super::decision::{By, Decision};
use super::mode::WhenGone;
use super::portion::portion;
use crate::clock::Clock;
use crate::store::{Ask, Key, MemoryStore, PlanError, Rule, Store, Verdict};

/// As was said for it.
pub(super) enum Fallback<C: Clock + 'static> {
    Deny,
    Admit,
    /// A store of this node's own, with a part of each limit.
    Local(Arc<MemoryStore<C>>, Arc<<MemoryStore<C> as Store>::Plan>),
    /// A part of a limit is no permit at all.
    Nothing,
}

impl<C: Clock + Clone + 'static> Fallback<C> {
    pub(super) fn new(
        when_gone: WhenGone,
        rules: &[(&str, Rule)],
        clock: &C,
    ) -> Result<Self, PlanError> {
        let WhenGone::Local { nodes } = when_gone else {
            return Ok(if when_gone == WhenGone::Admit { Self::Admit } else { Self::Deny });
        };
        let parts: Option<Vec<(&str, Rule)>> =
            rules.iter().map(|(label, rule)| Some((*label, part_of(rule, nodes)?))).collect();
        let Some(parts) = parts else { return Ok(Self::Nothing) };
        let store = MemoryStore::with_clock(clock.clone());
        let plan = store.plan(&parts)?;
        Ok(Self::Local(Arc::new(store), Arc::new(plan)))
    }
}

impl<C: Clock + 'static> Fallback<C> {
    pub(super) fn decide(
        &self,
        key: &Key,
        permits: NonZeroU64,
        asked_again_in_ns: Option<NonZeroU64>,
    ) -> Decision {
        match self {
            Self::Deny | Self::Nothing => Decision::denied(By::Fallback, asked_again_in_ns),
            Self::Admit => Decision::granted(By::Fallback),
            Self::Local(store, plan) => {
                // A store in memory answers at once.
                match store.decide(plan, key, permits).wait() {
                    Ok(Verdict::Granted(_)) => Decision::granted(By::Fallback),
                    Ok(Verdict::Denied(denial)) => {
                        Decision::denied(By::Fallback, denial.retry_after_ns)
                    }
                    // More than this node's part, and not more than the limit: the store may grant it.
                    Err(_) => Decision::denied(By::Fallback, asked_again_in_ns),
                }
            }
        }
    }
}

/// Rounded down: nobody says which of the nodes this is.
fn part_of(rule: &Rule, nodes: NonZeroU32) -> Option<Rule> {
    portion(rule, rule.most().checked_div(nodes.get().into())?)
}
