//! The policies of a limiter, as text or as tables.

use std::fmt;
use std::str::FromStr;

use rategate::error::PolicyTextError;
use rategate::{AllOf, AnyPolicy};
use rategate_testkit::scenario::{ScenarioError, policy_from};

/// The policies of a limiter: at least one, and a call passes all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies(pub(crate) AllOf);

impl Policies {
    /// Collects policies. `None` without any: nothing would be limited.
    #[must_use]
    pub fn new(policies: impl IntoIterator<Item = AnyPolicy>) -> Option<Self> {
        let all = AllOf::new(policies);
        (!all.policies().is_empty()).then_some(Self(all))
    }

    /// Reads one policy from a table: lines of keys and values in TOML, such as
    /// `policy = "fixed-window"`, `permits = 5` and `period = "1min"`, as the body of `[limit]` in
    /// a scenario file.
    ///
    /// # Errors
    ///
    /// [`ScenarioError`], which names the line, the key and what would be accepted.
    pub fn from_table(body: &str) -> Result<Self, ScenarioError> {
        policy_from(body).map(Self::from)
    }

    /// Returns the policies, in order.
    #[must_use]
    pub fn policies(&self) -> &[AnyPolicy] {
        self.0.policies()
    }
}

impl From<AnyPolicy> for Policies {
    fn from(policy: AnyPolicy) -> Self {
        Self(AllOf::new([policy]))
    }
}

impl FromStr for Policies {
    type Err = PolicyTextError;

    /// Reads `"10/s burst 5"`, `"100 per any minute"`, and several of them between semicolons.
    fn from_str(text: &str) -> Result<Self, PolicyTextError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
