//! What a file of many limits is made of.

use rategate_core::portable::Numbers;
use serde::{Deserialize, Serialize};

use super::plain::Words;
use super::time::SavedAt;

/// What stands before all records: when they were saved, and the policies that were in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    saved_at: SavedAt,
    policies: Vec<PolicyWords>,
}

/// One limit: whose it is, which policy it has, and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Whose limit it is, in whatever bytes say that. A limiter on its own has none.
    pub key: Vec<u8>,
    /// Which of the header's policies was in force, from zero.
    pub policy: u32,
    /// The state in words, as [`save_state`](rategate_core::portable::save_state) or
    /// [`Ledger::save`](crate::Ledger::save) write it for the header's [instant](SavedAt::clock_ns).
    pub state: Vec<u64>,
}

/// A policy with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PolicyWords {
    tag: u16,
    numbers: Words,
}

impl Header {
    /// For records of limits under these policies. All their states are to be saved for this one instant.
    #[must_use]
    pub fn new(saved_at: SavedAt, policies: impl IntoIterator<Item = Numbers>) -> Self {
        let policies = policies.into_iter().map(PolicyWords::from).collect();
        Self { saved_at, policies }
    }

    /// When the records were saved.
    #[must_use]
    pub const fn saved_at(&self) -> &SavedAt {
        &self.saved_at
    }

    /// The policies that were in force.
    #[must_use]
    pub fn policies(&self) -> Vec<Numbers> {
        self.policies.iter().cloned().map(Numbers::from).collect()
    }

    /// Whether there is a policy of this number.
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
