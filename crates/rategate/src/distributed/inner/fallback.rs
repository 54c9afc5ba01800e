//! Local decisions while the store is unavailable.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use rategate_core::fixed_window::Windows;
use rategate_core::gcra::Gcra;
use rategate_core::sliding_log::SlidingLog;

use super::decision::{DecidedBy, Decision};
use crate::clock::Clock;
use crate::distributed::mode::{DEFAULT_DRIFT_PPM, OnUnavailable};
use crate::distributed::remembered_ns;
use crate::store::{
    Key, MemoryStore, PlanError, Receipt, Rule, Store, StoreExt, StoreRequest, Verdict,
};

/// The whole, in parts per million.
const WHOLE_PPM: u64 = 1_000_000;

/// The fallback of [`OnUnavailable`], with the state that it needs.
pub(in crate::distributed) enum Fallback<C: Clock + 'static> {
    Deny,
    Admit,
    /// A store of this node's own, with a partition of each limit.
    Local(LocalFallback<C>),
    /// The partition of a limit is less than one permit.
    Nothing,
}

/// The limits that a node keeps alone.
pub(in crate::distributed) struct LocalFallback<C: Clock + 'static> {
    store: Arc<MemoryStore<C>>,
    plan: Arc<<MemoryStore<C> as Store>::Plan>,
    /// The instant until which a predecessor process may have used all of it.
    used_until_ns: u64,
}

impl<C: Clock + Clone + 'static> Fallback<C> {
    pub(in crate::distributed) fn new(
        on_unavailable: OnUnavailable,
        rules: &[(&str, Rule)],
        clock: &C,
        max_keys: usize,
    ) -> Result<Self, PlanError> {
        let OnUnavailable::Local { nodes } = on_unavailable else {
            return Ok(if on_unavailable == OnUnavailable::Admit {
                Self::Admit
            } else {
                Self::Deny
            });
        };
        let partitions: Option<Vec<(&str, Rule)>> =
            rules.iter().map(|(label, rule)| Some((*label, partition_of(rule, nodes)?))).collect();
        let Some(partitions) = partitions else { return Ok(Self::Nothing) };
        let store = MemoryStore::with_capacity(clock.clone(), max_keys);
        let plan = store.plan(&partitions)?;
        let now_ns = clock.now_ns();
        let matters_until_ns = |(_, rule): &(&str, Rule)| match rule {
            Rule::Window(window) if window.calendar().is_some() => {
                now_ns.saturating_add(window.border_in_ns(now_ns, 1))
            }
            rule => now_ns.saturating_add(remembered_ns(rule)),
        };
        let used_until_ns = partitions.iter().map(matters_until_ns).max().unwrap_or(now_ns);
        Ok(Self::Local(LocalFallback {
            store: Arc::new(store),
            plan: Arc::new(plan),
            used_until_ns,
        }))
    }
}

impl<C: Clock + 'static> Fallback<C> {
    pub(in crate::distributed) fn decide(
        &self,
        key: &Key,
        permits: NonZeroU64,
        retry_in_ns: NonZeroU64,
        takes: bool,
    ) -> Decision {
        let retry_in_ns = Some(retry_in_ns);
        match self {
            Self::Deny | Self::Nothing => Decision::denied(DecidedBy::Fallback, retry_in_ns),
            Self::Admit => Decision::granted(DecidedBy::Fallback),
            Self::Local(LocalFallback { store, plan, used_until_ns }) => {
                let left_ns = used_until_ns.saturating_sub(store.clock().now_ns());
                if let Some(left_ns) = NonZeroU64::new(left_ns) {
                    return Decision::denied(DecidedBy::Fallback, Some(left_ns));
                }
                // A store in memory replies at once.
                let pending = if takes {
                    store.decide(plan, key, permits)
                } else {
                    store.peek(plan, key, permits)
                };
                match pending.wait() {
                    Ok(mut verdict) => {
                        if let Verdict::Denied(denial) = &mut verdict {
                            denial.retry_after_ns = denial.retry_after_ns.or(retry_in_ns);
                        }
                        Decision::of_verdict(DecidedBy::Fallback, verdict, None, takes)
                    }
                    // More than this node's partition, but not more than the limit: the store may
                    // grant it.
                    Err(_) => Decision::denied(DecidedBy::Fallback, retry_in_ns),
                }
            }
        }
    }
}

impl<C: Clock + 'static> Fallback<C> {
    /// Refunds permits that were granted alone.
    pub(in crate::distributed) fn refund(
        &self,
        key: Key,
        permits: NonZeroU64,
        receipt: Option<Receipt>,
    ) {
        if let (Self::Local(LocalFallback { store, plan, .. }), Some(receipt)) = (self, receipt) {
            let plan = Arc::clone(plan);
            store.submit(StoreRequest::Refund { plan, key, receipt, permits }, Box::new(|_| ()));
        }
    }
}

/// Returns the rule of one partition, rounded down, as the nodes are not numbered.
fn partition_of(rule: &Rule, nodes: NonZeroU32) -> Option<Rule> {
    partition(rule, rule.capacity().checked_div(nodes.get().into())?)
}

/// Returns the rule for a partition of `share` of the [`capacity`](Rule::capacity) permits of a
/// rule.
///
/// The node keeps it alone, by a clock that may be faster than others by [`DEFAULT_DRIFT_PPM`].
/// Returns `None` where nothing is left, and for permits in flight.
///
/// A bucket's rate is divided as its burst is: the partitions' bursts and rates add up to no
/// more than the whole's. A fixed window becomes a log, as its grid would be that of the node's
/// clock. A calendar quota stays one: its borders follow the time since 1970 on each clock.
fn partition(rule: &Rule, share: u64) -> Option<Rule> {
    let total = rule.capacity();
    let share = share.min(total);
    match rule {
        Rule::Bucket(bucket) => {
            let slower = WHOLE_PPM.saturating_sub(DEFAULT_DRIFT_PPM.into());
            let rate = bucket.rate().part(share, NonZeroU64::new(total)?);
            let rate = rate.part(slower, NonZeroU64::new(WHOLE_PPM)?);
            Gcra::new(rate, share).ok().map(Rule::Bucket)
        }
        Rule::Log(log) => {
            let part =
                SlidingLog::try_new(share, Duration::from_nanos(longer(log.held_for_ns()))).ok()?;
            part.with_resolution(Duration::from_nanos(log.resolution_ns())).ok().map(Rule::Log)
        }
        Rule::Window(window) => match window.windows() {
            Windows::Even { period_ns, .. } => {
                SlidingLog::try_new(share, Duration::from_nanos(longer(period_ns.get())))
                    .ok()
                    .map(Rule::Log)
            }
            Windows::Of(_) => window.with_permits(share).ok().map(Rule::Window),
        },
        Rule::InFlight(..) => None,
    }
}

/// Returns the time that a fast clock shows when a length has passed.
fn longer(length_ns: u64) -> u64 {
    let drift_ns = u128::from(length_ns).saturating_mul(DEFAULT_DRIFT_PPM.into());
    let drift_ns = drift_ns.div_ceil(WHOLE_PPM.into());
    length_ns.saturating_add(u64::try_from(drift_ns).unwrap_or(u64::MAX))
}
