//! The policies in force, one per tier of keys, and their predecessors while a change is under
//! way.

use rategate_core::any_policy::AnyPolicy;
use rategate_core::packed::Packed;

use super::slots::MAX_VERSIONS;

/// The most tiers of one table. A change of all needs as many policy indices again.
pub const MAX_TIERS: usize = 31;

/// The policies of a table.
#[derive(Clone, Debug)]
pub(super) struct PolicyVersions {
    /// The policies by the index that states name. Index 0 names none.
    by_id: Vec<Option<PolicyVersion>>,
    /// The index of the policy in force for each tier.
    in_force: Vec<u8>,
    /// The number of policies so far.
    made: u32,
}

/// A policy in force for the keys of a tier, now or until a moment ago.
#[derive(Clone, Debug)]
pub(super) struct PolicyVersion {
    pub(super) policy: AnyPolicy,
    pub(super) tier: usize,
    /// The packed parameters, if states fit into a part of a word.
    pub(super) packed: Option<Packed>,
}

impl PolicyVersions {
    pub(super) fn new(policies: impl IntoIterator<Item = AnyPolicy>) -> Self {
        let mut policy_versions =
            Self { by_id: vec![None; MAX_VERSIONS], in_force: Vec::new(), made: 0 };
        for (policy, tier) in policies.into_iter().zip(0..MAX_TIERS) {
            let version = policy_versions.make(tier, policy);
            policy_versions.in_force.push(version);
        }
        policy_versions
    }

    /// Puts a policy into force for a tier. Returns the old and the new policy index.
    ///
    /// States that name the old index must be carried over before the next change.
    pub(super) fn change(&mut self, tier: usize, policy: AnyPolicy) -> Option<(u8, u8)> {
        let old = *self.in_force.get(tier)?;
        // All indices but those in force are free by now.
        for (index, version) in self.by_id.iter_mut().enumerate() {
            if !self.in_force.iter().any(|&version| usize::from(version) == index) {
                *version = None;
            }
        }
        let new = self.make(tier, policy);
        if let Some(in_force) = self.in_force.get_mut(tier) {
            *in_force = new;
        }
        Some((old, new))
    }

    /// Assigns a free index. They are used in rotation, so that each rests as long as possible.
    fn make(&mut self, tier: usize, policy: AnyPolicy) -> u8 {
        let packed = policy.packed();
        loop {
            self.made = self.made.wrapping_add(1);
            let next =
                usize::try_from(self.made).unwrap_or(0).checked_rem(MAX_VERSIONS).unwrap_or(0);
            let version = u8::try_from(next).unwrap_or(0);
            match self.by_id.get_mut(next) {
                Some(free @ None) if version > 0 => {
                    *free = Some(PolicyVersion { policy, tier, packed });
                    return version;
                }
                _ => {}
            }
        }
    }

    /// Returns the number of policies so far, wrapping: a different number after each change.
    #[cfg(feature = "serde")]
    pub(super) const fn made(&self) -> u32 {
        self.made
    }

    pub(super) fn tiers(&self) -> usize {
        self.in_force.len()
    }

    pub(super) fn get(&self, version: u8) -> Option<&PolicyVersion> {
        self.by_id.get(usize::from(version))?.as_ref()
    }

    /// Returns the policy in force for a tier, with its index.
    pub(super) fn of_tier(&self, tier: usize) -> Option<(u8, &PolicyVersion)> {
        let version = *self.in_force.get(tier)?;
        Some((version, self.get(version)?))
    }

    /// Returns one bit for each tier, which is set if operations under its policy have to be ended.
    pub(super) fn needing_ends(&self) -> u64 {
        let needs = |policy: &AnyPolicy| policy.counts_in_flight() || policy.follows_outcomes();
        self.in_force()
            .filter(|(_, version)| needs(&version.policy))
            .fold(0, |bits, (_, version)| bits | 1 << version.tier.min(63))
    }

    pub(super) fn in_force(&self) -> impl Iterator<Item = (u8, &PolicyVersion)> {
        (0..self.tiers()).filter_map(|tier| self.of_tier(tier))
    }
}
