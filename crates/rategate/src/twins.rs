//! The twin in use, and the smaller ones before it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rategate_core::concurrent::{Concurrent, Twin};

/// Each larger twin holds twice as much at least, so these are enough for the largest.
const GROWTHS: usize = 18;

/// A twin that makes room for a larger one when the limit has outgrown it.
///
/// A reader may still hold the old twin then, so it stays: sealed, for as long as the limiter. All
/// together take less than twice the memory of the largest.
#[derive(Debug)]
pub(crate) struct Twins<T> {
    first: T,
    larger: [OnceLock<Box<T>>; GROWTHS],
    /// How often it has grown. Written under the limiter's lock.
    growths: AtomicUsize,
}

impl<T: Twin> Twins<T> {
    pub(crate) fn new(first: T) -> Self {
        Self { first, larger: Default::default(), growths: AtomicUsize::new(0) }
    }

    /// The twin in use. Where twins do not grow, this costs nothing.
    #[inline]
    pub(crate) fn current(&self) -> &T {
        if !T::GROWS {
            return &self.first;
        }
        // Acquire: the twin that was put there before the count.
        let last = self.growths.load(Ordering::Acquire).checked_sub(1);
        let larger = last.and_then(|last| self.larger.get(last)?.get());
        larger.map_or(&self.first, |larger| larger)
    }

    /// Puts a larger twin in place of a sealed one that the limit has outgrown. Only by the holder
    /// of the limit's lock.
    pub(crate) fn grow_for<L: Concurrent<Twin = T>>(&self, limit: &mut L, now_ns: u64) {
        if !T::GROWS || !limit.has_outgrown(self.current()) {
            return;
        }
        let growths = self.growths.load(Ordering::Relaxed);
        if let Some(place) = self.larger.get(growths) {
            let _ = place.set(Box::new(limit.twin(now_ns)));
            self.growths.store(growths.saturating_add(1), Ordering::Release);
        }
    }
}
