//! Observers of decisions.

use std::fmt::Debug;
use std::sync::Arc;

use super::answer::ItemResult;
use crate::rule::Rule;

/// An observer of all rules.
pub trait Observer: Send + Sync + Debug {
    /// Returns the watcher of a rule; of inline limits for `None`. Called when rules are loaded,
    /// again for rules that existed before.
    fn of_rule(&self, rule: Option<&Arc<Rule>>) -> Arc<dyn Watch>;
}

/// A watcher of one rule.
pub trait Watch: Send + Sync + Debug {
    /// Called after an item was taken, denied, refunded or reset, but not after a peek, at
    /// `now_ns` by the engine's clock. No lock is held. It runs on the path of each decision, so
    /// it should take no longer than the decision itself.
    fn decided(&self, now_ns: u64, key: &[u8], permits: u64, result: &ItemResult);
}
