//! The partitioned mode: this node's partition of each key's limit, decided here.
//!
//! [`member`](super::member) knows how large the partition is.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

use rategate_core::any_policy::AnyPolicy;
use rategate_core::debt::Debt;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::verdict::Verdict;

use super::builder::SetupError;
use super::deadline::{Deadline, PendingCall};
use super::decision::{DecidedBy, Decision, DecisionFuture};
use super::inner::Inner;
use super::member::{Change, KeyChange, Membership};
use super::mode::PartitionConfig;
use super::partition::partition;
use super::remembered_ns;
use crate::clock::Clock;
use crate::store::{Key, Rule, Store};

/// The number of shards, each with a lock.
const SHARDS: usize = 64;

/// A node's partition of a limit, and its keys.
pub(super) struct Partitioned {
    rule: SharedRule,
    pub(super) membership: Membership,
    shards: Box<[Mutex<Shard>]>,
    max_keys: usize,
    hasher: RandomState,
}

#[derive(Default)]
struct Shard {
    keys: HashMap<Key, KeyShare>,
    /// The number of keys after the last eviction pass.
    retained: usize,
}

/// This node's partition of a key's limit.
struct KeyShare {
    ledger: Ledger<AnyPolicy>,
    share: u64,
    /// The number of the latest change applied to it.
    number: u64,
}

impl Partitioned {
    pub(super) fn new(
        rules: &[(&str, Rule)],
        shares: PartitionConfig,
        max_keys: usize,
    ) -> Result<Self, SetupError> {
        let [(label, rule)] = rules else { return Err(SetupError::SeveralShared) };
        let config = shares.config()?;
        let whole = SharedRule { rule: *rule, drift_ppm: shares.drift_ppm };
        let retained = partition(rule, rule.capacity(), shares.drift_ppm);
        let memory_ns = retained.map_or(0, |retained| remembered_ns(&retained));
        Ok(Self {
            rule: whole,
            membership: Membership::new(label, config, rule.capacity(), memory_ns),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            max_keys: max_keys.div_ceil(SHARDS),
            hasher: RandomState::new(),
        })
    }

    /// Decides with this node's partition. Returns `None` if there is no capacity for a new key.
    fn decide(
        &self,
        key: &[u8],
        permits: NonZeroU64,
        now_ns: u64,
        number: u64,
    ) -> Option<Decision> {
        let index = usize::try_from(self.hasher.hash_one(key)).unwrap_or(0) % SHARDS;
        let mut shard = self.shards.get(index)?.lock().unwrap_or_else(PoisonError::into_inner);
        if !shard.keys.contains_key(key) {
            shard.evict_idle(self.max_keys, now_ns);
            if shard.keys.len() >= self.max_keys {
                return None;
            }
            let key_share = KeyShare::fresh(&self.rule, self.membership.first())?;
            shard.keys.insert(Key::from(key), key_share);
        }
        let key_share = shard.keys.get_mut(key)?;
        if key_share.number != number {
            self.membership
                .since(key_share.number, |shown| key_share.apply_change(&self.rule, shown));
        }
        Some(key_share.decide(now_ns, permits))
    }
}

impl Shard {
    /// Evicts keys whenever their number has doubled since the last pass.
    fn evict_idle(&mut self, capacity: usize, now_ns: u64) {
        if self.keys.len() < self.retained.saturating_mul(2).max(16).min(capacity) {
            return;
        }
        self.keys.retain(|_, key_share| !key_share.ledger.is_as_fresh(now_ns));
        self.retained = self.keys.len();
    }
}

impl KeyShare {
    fn decide(&mut self, now_ns: u64, permits: NonZeroU64) -> Decision {
        if self.share == 0 {
            return Decision::denied(DecidedBy::Share, None);
        }
        match self.ledger.try_acquire(now_ns, permits.get()) {
            Ok(Verdict::Granted(grant)) => {
                Decision::granted(DecidedBy::Share).leaving(grant.remaining)
            }
            Ok(Verdict::Denied(denial)) => {
                Decision::denied(DecidedBy::Share, denial.retry_after_ns)
            }
            // More than the partition, but not more than the limit.
            Err(_) => Decision::denied(DecidedBy::Share, None),
        }
    }

    /// Creates the state of an unknown key.
    fn fresh(rule: &SharedRule, first: Change) -> Option<Self> {
        // A ledger needs at least one permit; an empty partition grants nothing.
        let ledger = Ledger::new(rule.key_share(first.share.max(1))?, first.at_ns);
        Some(Self { ledger, share: first.share, number: first.number })
    }

    fn apply_change(&mut self, rule: &SharedRule, shown: KeyChange) {
        match shown {
            KeyChange::StartsFresh(first) => {
                if let Some(fresh) = Self::fresh(rule, first) {
                    *self = fresh;
                }
            }
            KeyChange::Resized(change) => self.resize(rule, change),
        }
    }

    /// Applies a change of the partition's size.
    ///
    /// Gained permits count as used at that instant, except for those that no member has had for
    /// long enough.
    fn resize(&mut self, rule: &SharedRule, change: Change) {
        let Change { number, at_ns, from, share, fresh } = change;
        self.number = number;
        self.share = share;
        let Some(policy) = rule.key_share(share) else { return };
        let stale = share.saturating_sub(from).saturating_sub(fresh);
        if from == 0 {
            self.ledger = Ledger::new(policy, at_ns);
        } else {
            self.ledger.reconfigure(at_ns, policy);
        }
        // All of it, even if the node itself has more in use than its old partition: that ages out
        // on its own. The amount is at most the partition, so it can be owed.
        let _ = self.ledger.charge(at_ns, stale, Debt::CARRIED);
    }
}

/// The rule that is partitioned, and the drift of the clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedRule {
    rule: Rule,
    drift_ppm: u32,
}

impl SharedRule {
    /// Returns the policy of a partition; `None` for an empty one.
    fn key_share(&self, share: u64) -> Option<AnyPolicy> {
        match partition(&self.rule, share, self.drift_ppm)? {
            Rule::Bucket(bucket) => Some(bucket.into()),
            Rule::Log(log) => Some(log.into()),
            Rule::Window(_) | Rule::Calendar(_) | Rule::InFlight(..) => None,
        }
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Decides a call in this mode.
    pub(super) fn partitioned(
        self: &Arc<Self>,
        shared: &Partitioned,
        key: &[u8],
        permits: NonZeroU64,
    ) -> DecisionFuture {
        let requested_ns = self.clock.now_ns();
        let call = || -> Arc<dyn Deadline> {
            PendingCall::new(self, Key::from(key), permits, true, requested_ns)
        };
        let waits = shared.membership.wait_for_word(key, permits, call);
        waits.unwrap_or_else(|| self.now(Ok(self.share_decides(shared, key, permits, None))))
    }

    /// Decides with the current partition, or without the store if that has lapsed.
    pub(super) fn share_decides(
        &self,
        shared: &Partitioned,
        key: &[u8],
        permits: NonZeroU64,
        retry_in_ns: Option<NonZeroU64>,
    ) -> Decision {
        let now_ns = self.clock.now_ns();
        let now = shared.membership.now(now_ns);
        if now.is_lapsed {
            return self.without_store(&Key::from(key), permits, retry_in_ns, true);
        }
        let decision = shared.decide(key, permits, now_ns, now.number);
        decision.unwrap_or(Decision::denied(DecidedBy::Share, None))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rategate_core::gcra::Gcra;
    use rategate_core::sliding_log::SlidingLog;

    use super::{Change, KeyChange, KeyShare, Ledger, Limit, Rule, SharedRule};

    fn key_share_of(rule: SharedRule, share: u64) -> KeyShare {
        KeyShare { ledger: Ledger::new(rule.key_share(share).unwrap(), 0), share, number: 0 }
    }

    /// A partition that grows and shrinks gains nothing, not even the fractions of a permit that
    /// are rounded each time.
    #[test]
    fn changes_of_a_share_earn_nothing() {
        let rule = Rule::Bucket(Gcra::new("7/s".parse().unwrap(), 100).unwrap());
        let rule = SharedRule { rule, drift_ppm: 0 };
        let mut key_share = key_share_of(rule, 60);
        for permits in [57, 1] {
            let _ = key_share.ledger.try_acquire(0, permits).unwrap();
        }
        let at_ns = 100_000_001;
        let had = key_share.ledger.remaining(at_ns);
        for (number, share) in (1_u64..).zip([61, 60].into_iter().cycle()).take(200) {
            let from = key_share.share;
            key_share.apply_change(
                &rule,
                KeyChange::Resized(Change { number, at_ns, from, share, fresh: 0 }),
            );
            assert!(key_share.ledger.remaining(at_ns) <= had, "after {number} changes");
        }
    }

    /// A node has used 50, is left with 33, and has 60 again.
    ///
    /// The 27 that it gains may have been used by others until then, so once its own 50 are over
    /// it has only 33.
    #[test]
    fn a_gain_counts_as_used_above_the_old_share() {
        let rule = Rule::Log(SlidingLog::new(100, Duration::from_micros(1)));
        let rule = SharedRule { rule, drift_ppm: 0 };
        let mut key_share = key_share_of(rule, 50);
        let _ = key_share.ledger.try_acquire(100, 50).unwrap();
        for (number, share, at_ns) in [(1, 33, 200), (2, 60, 900)] {
            let from = key_share.share;
            key_share.apply_change(
                &rule,
                KeyChange::Resized(Change { number, at_ns, from, share, fresh: 0 }),
            );
        }
        assert_eq!(key_share.ledger.remaining(900), 0);
        assert_eq!(key_share.ledger.remaining(1_100), 33);
    }

    /// Clocks that are fast by the allowed drift earn nothing.
    #[test]
    fn a_partition_allows_for_the_clock() {
        let log = SharedRule {
            rule: Rule::Log(SlidingLog::new(4, Duration::from_millis(1))),
            drift_ppm: 500,
        };
        let mut key_share = key_share_of(log, 2);
        let _ = key_share.ledger.try_acquire(0, 2).unwrap();
        assert_eq!(key_share.ledger.remaining(1_000_499), 0);
        assert_eq!(key_share.ledger.remaining(1_000_500), 2);

        // Half of 1000/s takes 2 ms for a permit, and 1.0005 us more on a fast clock.
        let bucket = Rule::Bucket(Gcra::new("1000/s".parse().unwrap(), 10).unwrap());
        let mut key_share = key_share_of(SharedRule { rule: bucket, drift_ppm: 500 }, 5);
        let _ = key_share.ledger.try_acquire(0, 5).unwrap();
        assert_eq!(key_share.ledger.remaining(2_001_000), 0);
        assert_eq!(key_share.ledger.remaining(2_001_001), 1);
    }
}
