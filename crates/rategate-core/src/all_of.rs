//! Several limits at once: a call passes only if all of them grant it, and otherwise takes
//! nothing from any.
//!
//! The start is the first instant at which all of them agree. The wait is therefore the longest
//! of all, and a denial takes no permit.
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::all_of::AllOf;
//! use rategate_core::gcra::Gcra;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::sliding_log::SlidingLog;
//! use rategate_core::verdict::Verdict;
//!
//! // Ten a second on average, and never more than 12 within any 2 seconds.
//! let rate = Gcra::per_second(10).burst(10);
//! let window = SlidingLog::new(12, Duration::from_secs(2));
//! let mut both = Ledger::new(AllOf::default().and(rate).and(window), 0);
//! let passed = (0..30).filter(|_| {
//!     matches!(both.try_acquire(500_000_000, 1), Ok(Verdict::Granted(_)))
//! });
//! assert_eq!(passed.count(), 10);
//! assert_eq!(both.remaining(1_000_000_000), 2, "five earned back, but the window allows 2");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::vec;
use alloc::vec::Vec;

use crate::any_policy::AnyPolicy;
use crate::error::LimitError;

/// Several policies that a call must pass together. Without any, everything passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllOf(Vec<AnyPolicy>);

impl AllOf {
    /// Collects policies, in order.
    #[must_use]
    pub fn new(policies: impl IntoIterator<Item = impl Into<AnyPolicy>>) -> Self {
        Self(policies.into_iter().map(Into::into).collect())
    }

    /// Adds a policy.
    ///
    /// ```
    /// use core::time::Duration;
    /// use rategate_core::all_of::AllOf;
    /// use rategate_core::gcra::Gcra;
    /// use rategate_core::sliding_log::SlidingLog;
    ///
    /// // Ten a second on average, and never more than 12 within any 2 seconds.
    /// let both = AllOf::default()
    ///     .and(Gcra::per_second(10).burst(10))
    ///     .and(SlidingLog::new(12, Duration::from_secs(2)));
    /// assert_eq!(both, "10/s burst 10; 12 per any 2s".parse()?);
    /// # Ok::<(), rategate_core::error::PolicyTextError>(())
    /// ```
    #[must_use]
    pub fn and(mut self, policy: impl Into<AnyPolicy>) -> Self {
        self.0.push(policy.into());
        self
    }

    /// Returns the policies, in order.
    #[must_use]
    pub fn policies(&self) -> &[AnyPolicy] {
        &self.0
    }

    /// Returns the maximum number of permits that an unused limit grants at one instant.
    #[must_use]
    pub fn max_at_once(&self) -> u64 {
        self.0.iter().map(AnyPolicy::max_at_once).min().unwrap_or(u64::MAX)
    }

    /// Checks that live limits can change from `old` to these.
    ///
    /// # Errors
    ///
    /// [`LimitError::OtherPolicy`] unless they are as many, and each [can
    /// follow](AnyPolicy::can_follow) the one in its place.
    pub fn can_follow(
        &self,
        old: impl ExactSizeIterator<Item = AnyPolicy>,
    ) -> Result<(), LimitError> {
        if old.len() != self.0.len() {
            return Err(LimitError::OtherPolicy);
        }
        self.0.iter().zip(old).try_for_each(|(new, old)| new.can_follow(&old))
    }
}

impl<P: Into<AnyPolicy>> From<P> for AllOf {
    fn from(policy: P) -> Self {
        Self(vec![policy.into()])
    }
}

impl From<Vec<AnyPolicy>> for AllOf {
    fn from(policies: Vec<AnyPolicy>) -> Self {
        Self(policies)
    }
}

impl From<&[AnyPolicy]> for AllOf {
    fn from(policies: &[AnyPolicy]) -> Self {
        Self(policies.to_vec())
    }
}

impl<const N: usize> From<[AnyPolicy; N]> for AllOf {
    fn from(policies: [AnyPolicy; N]) -> Self {
        Self(policies.to_vec())
    }
}

impl IntoIterator for AllOf {
    type Item = AnyPolicy;
    type IntoIter = vec::IntoIter<AnyPolicy>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<AnyPolicy> for AllOf {
    fn from_iter<I: IntoIterator<Item = AnyPolicy>>(policies: I) -> Self {
        Self::new(policies)
    }
}
