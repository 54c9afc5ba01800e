//! The lock-free state in use.

use rategate_core::concurrent::Fast;
use rategate_core::ledger::Ledger;

use super::Shared;
use crate::clock::Clock;
use crate::on_demand::OnDemand;
use crate::sync::OnceLock;

/// Returns the lock-free state in use.
#[inline]
pub(super) fn current<'a>(first: &'a Fast, on_demand: &'a OnceLock<Box<OnDemand>>) -> &'a Fast {
    let later = on_demand.get().and_then(|on_demand| on_demand.later.get());
    later.and_then(|later| later.last()).unwrap_or(first)
}

impl<C: Clock> Shared<C> {
    /// Returns the lock-free state in use.
    #[inline]
    pub(super) fn lock_free(&self) -> &Fast {
        current(&self.first, &self.on_demand)
    }

    /// Replaces a sealed lock-free state that cannot hold the limit any more by another, sealed as
    /// well. After the last replacement the limit is decided under the lock.
    ///
    /// Returns `true` if it did. Only the thread that has the limit's lock may call this.
    pub(super) fn grow_for(&self, limit: &Ledger) -> bool {
        limit.has_outgrown(self.lock_free())
            && self.on_demand().later.get_or_init(Box::default).add(|| limit.sealed_form())
    }
}
