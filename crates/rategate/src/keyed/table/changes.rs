//! Changes of a table: its policies, and whether it counts.

use std::sync::{Arc, OnceLock, PoisonError};

use rategate_core::any_policy::AnyPolicy;

use super::section::{KeyLocation, KeySection, PendingPolicy};
use crate::clock::Clock;
use crate::error::KeyedError;
use crate::error::ReconfigureError;
use crate::keyed::key::Id;
use crate::keyed::policy_versions::PolicyVersions;
use crate::limiter::Limiter;
use crate::stats::KeyStats;
use crate::sync::{AtomicU64, Ordering};

use super::{Stats, Table, write_version};

impl<I: Id, C: Clock + Clone> Table<I, C> {
    /// Puts a policy into force for a tier, shard by shard.
    pub(in crate::keyed) fn reconfigure(
        &self,
        tier: usize,
        policy: AnyPolicy,
    ) -> Result<(), KeyedError> {
        let tiers = self.spill.len();
        let mut policy_versions =
            self.policy_versions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((old_id, new_id)) = policy_versions.change(tier, policy) else {
            return Err(KeyedError::NoSuchTier { tier, tiers });
        };
        if let (Some(slots), Some(version)) = (&self.slots, policy_versions.get(new_id)) {
            write_version(slots, new_id, version);
        }
        let changed = Arc::new(PolicyVersions::clone(&policy_versions));
        let mut late = Vec::new();
        for shard in 0..self.shards.len() {
            let mut entries = self.lock(shard);
            let now_ns = self.clock.now_in_order_ns();
            // The id is unused: the whole shard is meant.
            let location = KeyLocation { id: I::of([0; 2]), hash: 0, shard, tier };
            let mut section = KeySection::at(self, &mut entries, location, &mut late);
            section.begin(now_ns);
            section.change(&changed, old_id, new_id);
        }
        self.set_limit(tier, policy);
        self.needs_ends.store(policy_versions.needing_ends(), Ordering::Relaxed);
        drop(policy_versions);
        self.update_limiters(late);
        self.update_spill_limiter(tier, new_id, policy);
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(in crate::keyed) fn set_stats(&self, keys: KeyStats<I>) {
        let policy_versions = self.policy_versions.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = (0..policy_versions.tiers()).map(|_| AtomicU64::new(0)).collect();
        if self.stats.set(Stats { keys, limits }).is_ok() {
            for (_, version) in policy_versions.in_force() {
                self.set_limit(version.tier, version.policy);
            }
        }
    }

    /// Reconfigures limiters while no lock is held. One closed meanwhile needs no change.
    pub(in crate::keyed) fn update_limiters(&self, late: Vec<PendingPolicy<I, C>>) {
        for mut one in late {
            loop {
                replace(&one.limiter, one.policy);
                // Another thread may have brought a newer policy, and been faster. The last thread
                // to reconfigure a limiter checks which one is in force. The key keeps its
                // limiter, as this handle exists.
                let entries = self.lock(one.location.shard);
                let at = entries.find(one.location.id, one.location.hash);
                let Some(entry) = at.and_then(|at| entries.at(at)) else { break };
                let Some(newer) = entries
                    .policy_versions
                    .get(entry.version)
                    .filter(|_| entry.version != one.version)
                else {
                    break;
                };
                (one.version, one.policy) = (entry.version, newer.policy);
            }
        }
    }

    pub(super) fn set_limit(&self, tier: usize, policy: AnyPolicy) {
        let limit = policy.max_at_once();
        if let Some(word) = self.stats.get().and_then(|stats| stats.limits.get(tier)) {
            word.store(limit, Ordering::Relaxed);
        }
    }

    /// Reconfigures the limit that new keys share.
    pub(super) fn update_spill_limiter(
        &self,
        tier: usize,
        mut version_id: u8,
        mut policy: AnyPolicy,
    ) {
        let Some(shared) = self.spill.get(tier).and_then(OnceLock::get) else { return };
        loop {
            replace(shared, policy);
            let policy_versions =
                self.policy_versions.lock().unwrap_or_else(PoisonError::into_inner);
            match policy_versions.of_tier(tier) {
                Some((newer_id, newer)) if newer_id != version_id => {
                    (version_id, policy) = (newer_id, newer.policy);
                }
                _ => return,
            }
        }
    }

    pub(in crate::keyed) fn needs_ends(&self, tier: usize) -> bool {
        self.needs_ends.load(Ordering::Relaxed) >> tier.min(63) & 1 == 1
    }

    pub(in crate::keyed) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(in crate::keyed) fn policy(&self, tier: usize) -> Result<AnyPolicy, KeyedError> {
        let policy_versions = self.policy_versions.lock().unwrap_or_else(PoisonError::into_inner);
        let tiers = policy_versions.tiers();
        let version =
            policy_versions.of_tier(tier).ok_or(KeyedError::NoSuchTier { tier, tiers })?;
        Ok(version.1.policy)
    }
}

/// Puts a policy into force in a limiter. It begins anew if it cannot follow the one before it. One
/// that is closed needs no change.
fn replace<C: Clock>(limiter: &Limiter<C>, policy: AnyPolicy) {
    if let Err(ReconfigureError::Limit(_)) = limiter.reconfigure(policy) {
        let _ = limiter.shared().restart_as(policy);
    }
}
