//! The header and the records of a snapshot of many limits.

use rategate_core::saved::Numbers;
use serde::{Deserialize, Serialize};

use super::time::SavedAt;
use super::words::Words;

/// The header before all records: the instant of saving, and the policies that were in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    saved_at: SavedAt,
    policies: Vec<PolicyWords>,
}

/// One limit: its key, its policy and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The key of the limit, in any bytes. A limiter on its own has none.
    pub key: Vec<u8>,
    /// The index of the policy in the header, from zero.
    pub policy: u32,
    /// The state in words.
    ///
    /// [`save_state`](rategate_core::saved::save_state) or
    /// [`Ledger::save`](crate::policy::Ledger::save) write it for the header's
    /// [instant](SavedAt::clock_ns).
    pub state: Vec<u64>,
}

/// A policy with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PolicyWords {
    tag: u16,
    numbers: Words,
}

impl Header {
    /// Creates a header for records of limits under these policies.
    ///
    /// The states of all records must be saved for this one instant.
    #[must_use]
    pub fn new(saved_at: SavedAt, policies: impl IntoIterator<Item = Numbers>) -> Self {
        let policies = policies.into_iter().map(PolicyWords::from).collect();
        Self { saved_at, policies }
    }

    /// Returns the instant of saving.
    #[must_use]
    pub const fn saved_at(&self) -> &SavedAt {
        &self.saved_at
    }

    /// Returns the policies that were in force.
    #[must_use]
    pub fn policies(&self) -> Vec<Numbers> {
        self.policies.iter().cloned().map(Numbers::from).collect()
    }

    /// Returns `true` if the header has a policy of this index.
    pub(super) fn has_policy(&self, policy: u32) -> bool {
        usize::try_from(policy).is_ok_and(|policy| policy < self.policies.len())
    }
}

impl From<Numbers> for PolicyWords {
    fn from(numbers: Numbers) -> Self {
        Self { tag: numbers.tag, numbers: Words(numbers.words) }
    }
}

impl From<PolicyWords> for Numbers {
    fn from(policy: PolicyWords) -> Self {
        Self { tag: policy.tag, words: policy.numbers.0 }
    }
}
