//! Local decisions while the store is unavailable.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use super::decision::{By, Decision};
use super::mode::{DEFAULT_DRIFT_PPM, WhenGone};
use super::portion::portion;
use super::remembered_ns;
use crate::clock::Clock;
use crate::store::{Ask, Key, MemoryStore, PlanError, Question, Receipt, Rule, Store, Verdict};

/// The configured fallback.
pub(super) enum Fallback<C: Clock + 'static> {
    Deny,
    Admit,
    /// A store of this node's own, with a partition of each limit.
    Local(Alone<C>),
    /// The partition of a limit is less than one permit.
    Nothing,
}

/// The limits that a node keeps alone.
pub(super) struct Alone<C: Clock + 'static> {
    store: Arc<MemoryStore<C>>,
    plan: Arc<<MemoryStore<C> as Store>::Plan>,
    /// The instant until which a predecessor process may have used all of it.
    used_until_ns: u64,
}

impl<C: Clock + Clone + 'static> Fallback<C> {
    pub(super) fn new(
        when_gone: WhenGone,
        rules: &[(&str, Rule)],
        clock: &C,
        most_keys: usize,
    ) -> Result<Self, PlanError> {
        let WhenGone::Local { nodes } = when_gone else {
            return Ok(if when_gone == WhenGone::Admit { Self::Admit } else { Self::Deny });
        };
        let parts: Option<Vec<(&str, Rule)>> =
            rules.iter().map(|(label, rule)| Some((*label, part_of(rule, nodes)?))).collect();
        let Some(parts) = parts else { return Ok(Self::Nothing) };
        let store = MemoryStore::with_room(clock.clone(), most_keys);
        let plan = store.plan(&parts)?;
        let memory_ns = parts.iter().map(|(_, rule)| remembered_ns(rule)).max().unwrap_or(0);
        let used_until_ns = clock.now_ns().saturating_add(memory_ns);
        Ok(Self::Local(Alone { store: Arc::new(store), plan: Arc::new(plan), used_until_ns }))
    }
}

impl<C: Clock + 'static> Fallback<C> {
    pub(super) fn decide(
        &self,
        key: &Key,
        permits: NonZeroU64,
        asked_again_in_ns: NonZeroU64,
        takes: bool,
    ) -> Decision {
        let asked_again_in_ns = Some(asked_again_in_ns);
        match self {
            Self::Deny | Self::Nothing => Decision::denied(By::Fallback, asked_again_in_ns),
            Self::Admit => Decision::granted(By::Fallback),
            Self::Local(Alone { store, plan, used_until_ns }) => {
                let left_ns = used_until_ns.saturating_sub(store.clock().now_ns());
                if let Some(left_ns) = NonZeroU64::new(left_ns) {
                    return Decision::denied(By::Fallback, Some(left_ns));
                }
                // A store in memory replies at once.
                let asked = if takes {
                    store.decide(plan, key, permits)
                } else {
                    store.peek(plan, key, permits)
                };
                match asked.wait() {
                    Ok(Verdict::Granted(grant)) => {
                        Decision::alone(grant.remaining, takes.then_some(grant.receipt))
                    }
                    Ok(Verdict::Denied(denial)) => {
                        let retry_after_ns = denial.retry_after_ns.or(asked_again_in_ns);
                        let denied = Decision::denied(By::Fallback, retry_after_ns);
                        denied.leaving(denial.remaining)
                    }
                    // More than this node's partition, but not more than the limit: the store may
                    // grant it.
                    Err(_) => Decision::denied(By::Fallback, asked_again_in_ns),
                }
            }
        }
    }
}

impl<C: Clock + 'static> Fallback<C> {
    /// Refunds permits that were granted alone.
    pub(super) fn give_back(&self, key: Key, permits: NonZeroU64, receipt: Option<Receipt>) {
        if let (Self::Local(Alone { store, plan, .. }), Some(receipt)) = (self, receipt) {
            let plan = Arc::clone(plan);
            store.put(Question::Refund { plan, key, receipt, permits }, Box::new(|_| ()));
        }
    }
}

/// Returns the rule of one partition, rounded down, as the nodes are not numbered.
fn part_of(rule: &Rule, nodes: NonZeroU32) -> Option<Rule> {
    portion(rule, rule.most().checked_div(nodes.get().into())?, DEFAULT_DRIFT_PPM)
}
