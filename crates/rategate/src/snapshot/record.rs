//! The header and the records of a snapshot of many limits.

use rategate_core::any_policy::AnyPolicy;
use serde::{Deserialize, Serialize};

use super::time::SavedAt;

/// The header before all records: the instant of saving, and the policies that were in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    saved_at: SavedAt,
    policies: Vec<AnyPolicy>,
}

/// One limit: its key, its policy and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The key of the limit, in any bytes. A limiter on its own has none.
    pub key: Vec<u8>,
    /// The index of the policy in the header, from zero.
    pub policy: u32,
    /// The state.
    ///
    /// [`save_state`](rategate_core::saved::save_state) or
    /// [`Ledger::save`](crate::policy::Ledger::save) write it for the header's
    /// [instant](SavedAt::clock_ns).
    pub state: Vec<u8>,
}

impl Header {
    /// Creates a header for records of limits under these policies.
    ///
    /// The states of all records must be saved for this one instant.
    #[must_use]
    pub fn new(saved_at: SavedAt, policies: impl IntoIterator<Item = AnyPolicy>) -> Self {
        Self { saved_at, policies: policies.into_iter().collect() }
    }

    /// Returns the instant of saving.
    #[must_use]
    pub const fn saved_at(&self) -> &SavedAt {
        &self.saved_at
    }

    /// Returns the policies that were in force.
    #[must_use]
    pub fn policies(&self) -> &[AnyPolicy] {
        &self.policies
    }

    /// Returns `true` if the header has a policy of this index.
    pub(super) fn has_policy(&self, policy: u32) -> bool {
        usize::try_from(policy).is_ok_and(|policy| policy < self.policies.len())
    }
}
