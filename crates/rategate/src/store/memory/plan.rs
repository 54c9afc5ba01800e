//! A set of limits, checked once, with the label rules that other stores share.

use std::sync::Arc;

use rategate_core::any_policy::AnyPolicy;
use rategate_core::error::ExceedsCapacity;

use crate::store::{PlanError, Rule};

/// The most limits of one set.
pub const MAX_LIMITS: usize = 16;
/// The longest label, in bytes.
const MAX_LABEL_BYTES: usize = 32;

/// A set of limits that a [`MemoryStore`](super::MemoryStore) has checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    limits: Box<[Labelled]>,
}

/// One limit, and the label that names its states besides the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Labelled {
    pub(super) label: Arc<str>,
    pub(super) rule: Rule,
}

impl MemoryPlan {
    pub(super) fn new(rules: &[(&str, Rule)]) -> Result<Self, PlanError> {
        if rules.is_empty() || rules.len() > MAX_LIMITS {
            let why = format!("a set has 1 to {MAX_LIMITS} limits, not {}", rules.len());
            return Err(PlanError { label: None, why });
        }
        for (at, (label, rule)) in rules.iter().enumerate() {
            let complain =
                |why: &str| PlanError { label: Some((*label).to_owned()), why: why.to_owned() };
            if !is_label(label) {
                return Err(complain("a label is 1 to 32 letters, digits, `-`, `_` and `.`"));
            }
            if rules.iter().take(at).any(|(other, _)| other == label) {
                return Err(complain("two limits of one set have this label; each needs its own"));
            }
            if matches!(rule, Rule::Window(window) if window.starts_at_grant()) {
                return Err(complain("in a store the grid of windows starts at the clock's zero"));
            }
        }
        let limits =
            rules.iter().map(|&(label, rule)| Labelled { label: Arc::from(label), rule }).collect();
        Ok(Self { limits })
    }

    pub(super) fn limits(&self) -> &[Labelled] {
        &self.limits
    }

    /// Returns `true` if a decision needs a lease id.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.limits.iter().any(Labelled::holds)
    }

    /// Refuses more permits than one of the limits could ever let pass.
    pub(super) fn check(&self, permits: u64) -> Result<(), ExceedsCapacity> {
        let capacity = |limit: &Labelled| match limit.rule {
            // It has no capacity: any number passes.
            Rule::Bucket(bucket) if bucket.rate() == rategate_core::rate::Rate::UNLIMITED => {
                u64::MAX
            }
            rule => rule.capacity(),
        };
        match self.limits.iter().map(capacity).find(|&capacity| permits > capacity) {
            Some(capacity) => Err(ExceedsCapacity::new(permits, capacity)),
            None => Ok(()),
        }
    }

    /// Returns the most permits of one call, where there is such a number.
    pub(super) fn capacity(&self) -> u64 {
        self.limits.iter().map(|limit| limit.rule.capacity()).min().unwrap_or(0)
    }

    /// Returns the time until the first of the current windows ends.
    pub(super) fn window_ends_in_ns(&self, now_ns: u64) -> Option<u64> {
        let windows = self.limits.iter().filter_map(|limit| match &limit.rule {
            Rule::Window(window) => Some(window.border_in_ns(now_ns, 1)),
            _ => None,
        });
        windows.min()
    }
}

impl Labelled {
    pub(super) const fn holds(&self) -> bool {
        matches!(self.rule, Rule::InFlight(..))
    }

    /// Returns the core's policy, where that keeps the state.
    pub(super) fn policy(&self) -> Option<AnyPolicy> {
        match self.rule {
            Rule::Bucket(bucket) => Some(bucket.into()),
            Rule::Log(log) => Some(log.into()),
            Rule::Window(window) => Some(window.into()),
            Rule::InFlight(..) => None,
        }
    }
}

fn is_label(label: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !label.is_empty() && label.len() <= MAX_LABEL_BYTES && label.bytes().all(is_known)
}
