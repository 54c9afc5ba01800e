//! The lock-free state in use, and the smaller ones before it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rategate_core::concurrent::Fast;
use rategate_core::ledger::Ledger;

/// The number of times that a lock-free state can be replaced, enough for the largest log: each
/// larger one holds at least twice as much.
const REPLACEMENTS: usize = 18;

/// A lock-free state that is replaced by another when the limit has outgrown it, or has become one
/// of another policy.
///
/// A reader may still use the old one then, so the old one stays, sealed, as long as the limiter.
/// Of a log that grows, all together take less than twice the memory of the largest.
#[derive(Debug)]
pub(crate) struct GrowingLockFree {
    first: Fast,
    /// Absent until it has been replaced.
    later: OnceLock<Box<Later>>,
}

#[derive(Debug, Default)]
struct Later {
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

impl GrowingLockFree {
    pub(crate) const fn new(first: Fast) -> Self {
        Self { first, later: OnceLock::new() }
    }

    /// Returns the first lock-free state. Once another is in use, it is sealed for good.
    #[inline]
    pub(crate) const fn first(&self) -> &Fast {
        &self.first
    }

    /// Returns the lock-free state in use.
    #[inline]
    pub(crate) fn current(&self) -> &Fast {
        self.later.get().and_then(|later| later.last()).unwrap_or(&self.first)
    }

    /// Replaces a sealed lock-free state that cannot hold the limit any more by another, sealed as
    /// well. After the last replacement the limit is decided under the lock.
    ///
    /// Returns `true` if it did. Only the thread that has the limit's lock may call this.
    pub(crate) fn grow_for(&self, limit: &Ledger) -> bool {
        if !limit.has_outgrown(self.current()) {
            return false;
        }
        let later = self.later.get_or_init(Box::default);
        let count = later.count.load(Ordering::Relaxed);
        let Some(cell) = later.forms.get(count) else { return false };
        let _ = cell.set(Box::new(limit.sealed_form()));
        later.count.store(count.saturating_add(1), Ordering::Release);
        true
    }
}
