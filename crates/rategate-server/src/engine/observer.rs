//! Who looks on.

use std::fmt::Debug;
use std::sync::Arc;

use super::answer::Part;
use crate::rule::Rule;

/// Looks on at all rules.
pub trait Observer: Send + Sync + Debug {
    /// Whoever looks on at a rule; `None` for the limits that come with calls. Asked when rules are loaded: a rule that was
    /// there before is asked for again.
    fn of_rule(&self, rule: Option<&Arc<Rule>>) -> Arc<dyn Watch>;
}

/// Looks on at one rule.
pub trait Watch: Send + Sync + Debug {
    /// An item has been taken, refused, given back or forgotten, not only looked at, at `now_ns` by the engine's clock. Called while no lock is held, on the path of each
    /// decision: it should take no longer than the decision itself.
    fn decided(&self, now_ns: u64, key: &[u8], permits: u64, part: &Part);
}
