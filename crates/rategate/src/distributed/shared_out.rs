//! The partitioned mode: this node's partition of each key's limit, decided here.
//!
//! [`member`](super::member) knows how large the partition is.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

use rategate_core::any_policy::AnyPolicy;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::verdict::Verdict;

use super::builder::SetupError;
use super::deadline::{Deadline, PendingCall};
use super::decision::{By, Deciding, Decision};
use super::inner::Inner;
use super::member::{Change, Membership, Shown};
use super::mode::Shares;
use super::portion::portion;
use super::remembered_ns;
use crate::clock::Clock;
use crate::store::{Key, Rule, Store};

/// The number of shards, each with a lock.
const SHARDS: usize = 64;

/// A node's partition of a limit, and its keys.
pub(super) struct SharedOut {
    rule: SharedRule,
    pub(super) membership: Membership,
    shards: Box<[Mutex<Shard>]>,
    most_keys: usize,
    hasher: RandomState,
}

#[derive(Default)]
struct Shard {
    keys: HashMap<Key, Part>,
    /// The number of keys after the last eviction pass.
    kept: usize,
}

/// This node's partition of a key's limit.
struct Part {
    ledger: Ledger<AnyPolicy>,
    share: u64,
    /// The number of the latest change applied to it.
    number: u64,
}

impl SharedOut {
    pub(super) fn new(
        rules: &[(&str, Rule)],
        shares: Shares,
        most_keys: usize,
    ) -> Result<Self, SetupError> {
        let [(label, rule)] = rules else { return Err(SetupError::SeveralShared) };
        let terms = shares.terms()?;
        let whole = SharedRule { rule: *rule, drift_ppm: shares.drift_ppm };
        let kept = portion(rule, rule.most(), shares.drift_ppm);
        let memory_ns = kept.map_or(0, |kept| remembered_ns(&kept));
        Ok(Self {
            rule: whole,
            membership: Membership::new(label, terms, rule.most(), memory_ns),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            most_keys: most_keys.div_ceil(SHARDS),
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
        let place = usize::try_from(self.hasher.hash_one(key)).unwrap_or(0) % SHARDS;
        let mut shard = self.shards.get(place)?.lock().unwrap_or_else(PoisonError::into_inner);
        if !shard.keys.contains_key(key) {
            shard.make_room(self.most_keys, now_ns);
            if shard.keys.len() >= self.most_keys {
                return None;
            }
            let part = Part::fresh(&self.rule, self.membership.first())?;
            shard.keys.insert(Key::from(key), part);
        }
        let part = shard.keys.get_mut(key)?;
        if part.number != number {
            self.membership.since(part.number, |shown| part.turn(&self.rule, shown));
        }
        Some(part.decide(now_ns, permits))
    }
}

impl Shard {
    /// Evicts keys whenever their number has doubled since the last pass.
    fn make_room(&mut self, most: usize, now_ns: u64) {
        if self.keys.len() < self.kept.saturating_mul(2).max(16).min(most) {
            return;
        }
        self.keys.retain(|_, part| !part.ledger.is_as_fresh(now_ns));
        self.kept = self.keys.len();
    }
}

impl Part {
    fn decide(&mut self, now_ns: u64, permits: NonZeroU64) -> Decision {
        if self.share == 0 {
            return Decision::denied(By::Share, None);
        }
        match self.ledger.try_acquire(now_ns, permits.get()) {
            Ok(Verdict::Granted(grant)) => Decision::granted(By::Share).leaving(grant.remaining),
            Ok(Verdict::Denied(denial)) => Decision::denied(By::Share, denial.retry_after_ns),
            // More than the partition, but not more than the limit.
            Err(_) => Decision::denied(By::Share, None),
        }
    }

    /// Creates the state of an unknown key.
    fn fresh(rule: &SharedRule, first: Change) -> Option<Self> {
        // A ledger needs at least one permit; an empty partition grants nothing.
        let ledger = Ledger::new(rule.part(first.share.max(1))?, first.at_ns);
        Some(Self { ledger, share: first.share, number: first.number })
    }

    fn turn(&mut self, rule: &SharedRule, shown: Shown) {
        match shown {
            Shown::Afresh(first) => {
                if let Some(fresh) = Self::fresh(rule, first) {
                    *self = fresh;
                }
            }
            Shown::Next(change) => self.resize(rule, change),
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
        let Some(policy) = rule.part(share) else { return };
        let stale = share.saturating_sub(from).saturating_sub(fresh);
        if from == 0 {
            self.ledger = Ledger::new(policy, at_ns);
        } else {
            self.ledger.reconfigure(at_ns, policy);
        }
        // All of it, even if the node itself has more in use than its old partition: that ages out
        // on its own. The amount is at most the partition, so it can be owed.
        let _ = self.ledger.debit(at_ns, stale);
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
    fn part(&self, share: u64) -> Option<AnyPolicy> {
        match portion(&self.rule, share, self.drift_ppm)? {
            Rule::Bucket(bucket) => Some(bucket.into()),
            Rule::Log(log) => Some(log.into()),
            Rule::Window(_) | Rule::InFlight(..) => None,
        }
    }
}

impl<S: Store, C: Clock + 'static> Inner<S, C> {
    /// Decides a call in this mode.
    pub(super) fn shared_out(
        self: &Arc<Self>,
        shared: &SharedOut,
        key: &[u8],
        permits: NonZeroU64,
    ) -> Deciding {
        let asked_ns = self.clock.now_ns();
        let call = || -> Arc<dyn Deadline> {
            PendingCall::new(self, Key::from(key), permits, true, asked_ns)
        };
        let waits = shared.membership.wait_for_word(key, permits, call);
        waits.unwrap_or_else(|| self.now(Ok(self.share_decides(shared, key, permits, None))))
    }

    /// Decides with the current partition, or without the store if that has lapsed.
    pub(super) fn share_decides(
        &self,
        shared: &SharedOut,
        key: &[u8],
        permits: NonZeroU64,
        asked_again_in_ns: Option<NonZeroU64>,
    ) -> Decision {
        let now_ns = self.clock.now_ns();
        let now = shared.membership.now(now_ns);
        if now.is_lapsed {
            return self.without_store(&Key::from(key), permits, asked_again_in_ns, true);
        }
        let decision = shared.decide(key, permits, now_ns, now.number);
        decision.unwrap_or(Decision::denied(By::Share, None))
    }
}

#[cfg(test)]
mod tests {
    use rategate_core::gcra::Gcra;
    use rategate_core::sliding_log::SlidingLog;

    use super::{Change, Ledger, Limit, Part, Rule, SharedRule, Shown};

    fn part_of(rule: SharedRule, share: u64) -> Part {
        Part { ledger: Ledger::new(rule.part(share).unwrap(), 0), share, number: 0 }
    }

    /// A partition that grows and shrinks gains nothing, not even the fractions of a permit that
    /// are rounded each time.
    #[test]
    fn changes_of_a_share_earn_nothing() {
        let rule = Rule::Bucket(Gcra::new("7/s".parse().unwrap(), 100).unwrap());
        let rule = SharedRule { rule, drift_ppm: 0 };
        let mut part = part_of(rule, 60);
        for permits in [57, 1] {
            let _ = part.ledger.try_acquire(0, permits).unwrap();
        }
        let at_ns = 100_000_001;
        let had = part.ledger.remaining(at_ns);
        for (number, share) in (1_u64..).zip([61, 60].into_iter().cycle()).take(200) {
            let from = part.share;
            part.turn(&rule, Shown::Next(Change { number, at_ns, from, share, fresh: 0 }));
            assert!(part.ledger.remaining(at_ns) <= had, "after {number} changes");
        }
    }

    /// A node has used 50, is left with 33, and has 60 again.
    ///
    /// The 27 that it gains may have been used by others until then, so once its own 50 are over
    /// it has only 33.
    #[test]
    fn a_gain_counts_as_used_by_who_used_more_than_his_share() {
        let rule = Rule::Log(SlidingLog::new(100, 1_000).unwrap());
        let rule = SharedRule { rule, drift_ppm: 0 };
        let mut part = part_of(rule, 50);
        let _ = part.ledger.try_acquire(100, 50).unwrap();
        for (number, share, at_ns) in [(1, 33, 200), (2, 60, 900)] {
            let from = part.share;
            part.turn(&rule, Shown::Next(Change { number, at_ns, from, share, fresh: 0 }));
        }
        assert_eq!(part.ledger.remaining(900), 0);
        assert_eq!(part.ledger.remaining(1_100), 33);
    }

    /// Clocks that are fast by the allowed drift earn nothing.
    #[test]
    fn a_part_allows_for_the_clock() {
        let log =
            SharedRule { rule: Rule::Log(SlidingLog::new(4, 1_000_000).unwrap()), drift_ppm: 500 };
        let mut part = part_of(log, 2);
        let _ = part.ledger.try_acquire(0, 2).unwrap();
        assert_eq!(part.ledger.remaining(1_000_499), 0);
        assert_eq!(part.ledger.remaining(1_000_500), 2);

        // Half of 1000/s takes 2 ms for a permit, and 1.0005 us more on a fast clock.
        let bucket = Rule::Bucket(Gcra::new("1000/s".parse().unwrap(), 10).unwrap());
        let mut part = part_of(SharedRule { rule: bucket, drift_ppm: 500 }, 5);
        let _ = part.ledger.try_acquire(0, 5).unwrap();
        assert_eq!(part.ledger.remaining(2_001_000), 0);
        assert_eq!(part.ledger.remaining(2_001_001), 1);
    }
}
