//! The numbers of a limit for quota policies, also after a change of the limit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rategate::{AnyPolicy, Rate};

use super::QuotaPolicy;

/// The numbers of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    quota: u64,
    /// The window; `None` for limits of permits in flight.
    window: Option<Duration>,
}

impl Numbers {
    /// Returns the numbers of a limit, if its kind has some: of several those that a client reaches
    /// first.
    pub(crate) fn of(policies: impl IntoIterator<Item = AnyPolicy>) -> Option<Self> {
        let each = policies.into_iter().map(|policy| Self::of_policy(&policy));
        each.collect::<Option<Vec<Self>>>()?.into_iter().min_by_key(|numbers| numbers.quota)
    }

    fn of_policy(policy: &AnyPolicy) -> Option<Self> {
        let within =
            |quota, window_ns| Self { quota, window: Some(Duration::from_nanos(window_ns)) };
        Some(match policy {
            // The quota of a bucket is its burst, and its window the time to fill it.
            AnyPolicy::Gcra(bucket) => {
                let burst = bucket.burst_size().get();
                within(burst, time_of(burst, bucket.rate())?)
            }
            // The permits that may start together, and their time once the limit is warm.
            AnyPolicy::WarmUp(warm_up) => {
                let permits = warm_up.max_request();
                within(permits, time_of(permits, warm_up.rate())?)
            }
            AnyPolicy::SlidingLog(log) => within(log.permits(), log.held_for_ns()),
            AnyPolicy::FixedWindow(window) => match window.period_ns() {
                Some(period_ns) => within(window.permits(), period_ns.get()),
                // Its windows differ in length: the one that is announced stays.
                None => Self { quota: window.permits(), window: None },
            },
            AnyPolicy::CommitLog(log) => within(log.permits(), log.cools_for_ns()),
            AnyPolicy::Concurrency(limit) => Self { quota: limit.permits(), window: None },
            // Those that hold once the slow start is over.
            AnyPolicy::SlowStart(slow) => Self::of_policy(&slow.policy())?,
            _ => return None,
        })
    }

    /// Returns the policy with these numbers, the name and unit of `given`, and its window if they
    /// have none.
    fn announced(self, given: &QuotaPolicy) -> Option<QuotaPolicy> {
        given.changed(self.quota, self.window)
    }
}

/// Returns the time that permits take at a finite rate, rounded up.
fn time_of(permits: u64, rate: Rate) -> Option<u64> {
    let (per_period, period_ns) = rate.fraction()?;
    let time_ns = u128::from(permits).checked_mul(period_ns.into())?.div_ceil(per_period.into());
    Some(u64::try_from(time_ns).unwrap_or(u64::MAX))
}

/// The policies of a layer since its limit was changed, computed once per tier and change.
#[derive(Debug)]
pub(crate) struct Followed {
    /// The number of changes that the configured policy accounts for.
    from: u64,
    latest: Mutex<Latest>,
}

#[derive(Debug, Default)]
struct Latest {
    changes: u64,
    by_tier: BTreeMap<usize, Option<Arc<QuotaPolicy>>>,
}

impl Followed {
    pub(crate) fn new(changes: u64) -> Self {
        Self { from: changes, latest: Mutex::default() }
    }

    /// Returns the policy after `changes` changes, or `None` if `given` is still right.
    pub(crate) fn policy(
        &self,
        changes: u64,
        given: &QuotaPolicy,
        tier: impl FnOnce() -> usize,
        numbers: impl FnOnce(usize) -> Option<Numbers>,
    ) -> Option<Arc<QuotaPolicy>> {
        if changes == self.from {
            return None;
        }
        let tier = tier();
        let known = {
            let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            (latest.changes == changes).then(|| latest.by_tier.get(&tier).cloned()).flatten()
        };
        if let Some(known) = known {
            return known;
        }
        let announced = numbers(tier).and_then(|numbers| numbers.announced(given)).map(Arc::new);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.changes != changes {
            *latest = Latest { changes, by_tier: BTreeMap::new() };
        }
        latest.by_tier.insert(tier, announced.clone());
        announced
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Numbers;
    use crate::headers::{QuotaPolicy, QuotaUnit};

    #[test]
    fn new_numbers_keep_the_name_the_unit_and_a_window() {
        let window = Duration::from_millis(1500);
        let given = QuotaPolicy::new("p", 5, window).unwrap().unit(QuotaUnit::Tokens);
        let announced = |quota, window| Numbers { quota, window }.announced(&given).unwrap();
        let policy =
            |quota, window| QuotaPolicy::new("p", quota, window).unwrap().unit(QuotaUnit::Tokens);
        assert_eq!(announced(7, None), policy(7, window));
        assert_eq!(announced(7, Some(window * 2)), policy(7, window * 2));
        let given = QuotaPolicy::in_flight("p", 5).unwrap();
        let announced = Numbers { quota: 7, window: None }.announced(&given).unwrap();
        assert_eq!(announced.item(), r#""p";q=7;qu="concurrent-requests""#);
    }
}
