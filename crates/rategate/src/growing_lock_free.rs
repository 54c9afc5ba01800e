//! The lock-free state in use, and the smaller ones before it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rategate_core::concurrent::{Concurrent, LockFree};

/// The number of times that a lock-free state can grow, enough for the largest.
///
/// Each larger one holds at least twice as much.
const GROWTHS: usize = 18;

/// A lock-free state that is replaced by a larger one when the limit has outgrown it.
///
/// A reader may still use the old one then, so the old one stays, sealed, as long as the limiter.
/// Together they take less than twice the memory of the largest.
#[derive(Debug)]
pub(crate) struct GrowingLockFree<T> {
    first: T,
    /// Absent until it has grown.
    larger: OnceLock<Box<Larger<T>>>,
}

#[derive(Debug)]
struct Larger<T> {
    lock_free_forms: [OnceLock<Box<T>>; GROWTHS],
    /// The number of times that it has grown. Written under the limiter's lock.
    growths: AtomicUsize,
}

impl<T> Default for Larger<T> {
    fn default() -> Self {
        Self { lock_free_forms: Default::default(), growths: AtomicUsize::new(0) }
    }
}

impl<T> Larger<T> {
    fn last(&self) -> Option<&T> {
        // Acquire: makes the larger state visible, which was stored before the count.
        let last = self.growths.load(Ordering::Acquire).checked_sub(1)?;
        self.lock_free_forms.get(last)?.get().map(|lock_free| &**lock_free)
    }
}

impl<T: LockFree> GrowingLockFree<T> {
    pub(crate) const fn new(first: T) -> Self {
        Self { first, larger: OnceLock::new() }
    }

    /// Returns the lock-free state in use. Where it cannot grow, this costs nothing.
    #[inline]
    pub(crate) fn current(&self) -> &T {
        if !T::GROWS {
            return &self.first;
        }
        self.larger.get().and_then(|larger| larger.last()).unwrap_or(&self.first)
    }

    /// Replaces a sealed lock-free state that the limit has outgrown by a larger one.
    ///
    /// Only the thread that has the limit's lock may call this.
    pub(crate) fn grow_for<L: Concurrent<LockFree = T>>(&self, limit: &mut L, now_ns: u64) {
        if !T::GROWS || !limit.has_outgrown(self.current()) {
            return;
        }
        let larger = self.larger.get_or_init(Box::default);
        let growths = larger.growths.load(Ordering::Relaxed);
        if let Some(cell) = larger.lock_free_forms.get(growths) {
            let _ = cell.set(Box::new(limit.lock_free(now_ns)));
            larger.growths.store(growths.saturating_add(1), Ordering::Release);
        }
    }
}
