//! What has been observed of a server over a connection: what it lacks, since when it has lost nothing, whether it answers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::group::Marker;

/// What has been observed of a server over one connection.
#[derive(Default)]
pub(crate) struct Observed {
    uses_scripts: AtomicBool,
    /// Since when it has lost nothing, by its clock.
    since_us: AtomicU64,
    /// What its marker was when it was greeted last.
    marker: Mutex<Option<Arc<Marker>>>,
    /// An answer has said that the marker is gone.
    is_lost: AtomicBool,
    /// A question was late here, and no greeting has been answered in time since.
    is_silent: AtomicBool,
    /// It may drop states of ours when its memory is full.
    may_evict: AtomicBool,
}

impl Observed {
    /// Whether the server has no functions, so that the script is called.
    pub(crate) fn uses_scripts(&self) -> bool {
        self.uses_scripts.load(Ordering::Relaxed)
    }

    /// The server has no functions.
    pub(crate) fn lacks_functions(&self) {
        self.uses_scripts.store(true, Ordering::Relaxed);
    }

    /// The marker that the server had when it was greeted last.
    pub(crate) fn marker(&self) -> Option<Arc<Marker>> {
        self.known_marker().clone()
    }

    /// Keeps what the server was found to have lost, and the marker that it has now.
    pub(crate) fn intact_since(&self, since_us: u64, marker: Marker) {
        self.since_us.store(since_us, Ordering::Relaxed);
        *self.known_marker() = Some(Arc::new(marker));
        self.is_lost.store(false, Ordering::Relaxed);
    }

    /// Keeps whether the server may drop states of ours.
    pub(crate) fn evicts(&self, may_evict: bool) {
        self.may_evict.store(may_evict, Ordering::Relaxed);
    }

    /// For how long it has lost nothing, at an instant of its clock, by an answer that came with its marker or without.
    /// `None` if it may drop states at any time.
    pub(crate) fn intact_for_ns(&self, now_us: u64, is_marked: bool) -> Option<u64> {
        if !is_marked {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        if self.may_evict.load(Ordering::Relaxed) {
            return None;
        }
        let since_us = self.since_us.load(Ordering::Relaxed);
        let intact_us = if is_marked { now_us.saturating_sub(since_us) } else { 0 };
        Some(intact_us.saturating_mul(1_000))
    }

    /// A question was late.
    pub(crate) fn falls_silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Ends a silence. Returns whether there was one.
    pub(crate) fn speaks(&self) -> bool {
        self.is_silent.swap(false, Ordering::Relaxed)
    }

    /// Whether it has to be greeted again to know what it has lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    fn known_marker(&self) -> MutexGuard<'_, Option<Arc<Marker>>> {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
