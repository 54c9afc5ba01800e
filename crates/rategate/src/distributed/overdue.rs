//! The deadline of a caller that blocks: it does not depend on the store's own thread to be told that it is late.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::decision::Decision;
use super::inner::Inner;
use crate::clock::Clock;
use crate::store::{Key, Store};

/// A decision that the caller makes alone if no answer has come by its deadline.
pub(super) trait Overdue: Send + Sync {
    /// Returns how long the caller may wait yet; `None` once that is over.
    fn left(&self) -> Option<Duration>;

    /// Decides without the store.
    fn decide(&self) -> Decision;
}

/// A call that asks the store.
pub(super) struct Asking<S: Store, C: Clock + 'static> {
    pub(super) inner: Arc<Inner<S, C>>,
    pub(super) key: Key,
    pub(super) permits: NonZeroU64,
    pub(super) takes: bool,
    pub(super) asked_ns: u64,
}

impl<S: Store, C: Clock + 'static> Overdue for Asking<S, C> {
    /// The budget and a quarter: a store that says itself that it is late goes before this.
    fn left(&self) -> Option<Duration> {
        let budget_ns = self.inner.budget_ns;
        let until_ns = self.asked_ns.saturating_add(budget_ns).saturating_add(budget_ns >> 2);
        let left_ns = until_ns.saturating_sub(self.inner.clock.now_ns());
        (left_ns > 0).then(|| Duration::from_nanos(left_ns))
    }

    fn decide(&self) -> Decision {
        let decision = self.inner.without_store(&self.key, self.permits, None, self.takes);
        self.inner.counters.add(&decision);
        decision
    }
}

impl fmt::Debug for dyn Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Overdue")
    }
}
