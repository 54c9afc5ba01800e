//! The lock-free state in use, and the smaller ones before it.

use std::sync::atomic::{AtomicUsize, Ordering};

use rategate_core::concurrent::Fast;
use rategate_core::ledger::Ledger;

use super::Shared;
use crate::clock::Clock;
use crate::on_demand::OnDemand;
use crate::sync::OnceLock;

/// The number of times that a lock-free state can be replaced, enough for the largest log: each
/// larger one holds at least twice as much.
const REPLACEMENTS: usize = 18;

/// The lock-free states that have replaced the first, since the limit had outgrown it, or had become
/// one of another policy.
///
/// A reader may still use the old one then, so the old one stays, sealed, as long as the limiter.
/// Of a log that grows, all together take less than twice the memory of the largest.
#[derive(Debug, Default)]
pub(crate) struct Later {
    forms: [OnceLock<Box<Fast>>; REPLACEMENTS],
    /// The number of times that it has been replaced. Written under the limiter's lock.
    count: AtomicUsize,
}

impl Later {
    fn last(&self) -> Option<&Fast> {
        // Acquire: makes the later state visible, which was stored before the count.
        let last = self.count.load(Ordering::Acquire).checked_sub(1)?;
        self.forms.get(last)?.get().map(|lock_free| &**lock_free)
    }
}

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
        if !limit.has_outgrown(self.lock_free()) {
            return false;
        }
        let later = self.on_demand().later.get_or_init(Box::default);
        let count = later.count.load(Ordering::Relaxed);
        let Some(cell) = later.forms.get(count) else { return false };
        let _ = cell.set(Box::new(limit.sealed_form()));
        later.count.store(count.saturating_add(1), Ordering::Release);
        true
    }
}
