//! Observations of a server over one connection: missing functions, lost data, and late replies.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::marker::Marker;

/// Observations of a server over one connection.
#[derive(Default)]
pub(crate) struct Observed {
    uses_scripts: AtomicBool,
    /// The instant since when the server has lost nothing, by its clock.
    since_us: AtomicU64,
    /// The marker of the server at the last greeting.
    marker: Mutex<Option<Arc<Marker>>>,
    /// A reply has reported that the marker is missing.
    is_lost: AtomicBool,
    /// A request was late here, and no greeting has been answered in time since.
    is_silent: AtomicBool,
    /// The server may drop our states when its memory is full.
    may_evict: AtomicBool,
    /// By how much the server's clock was ahead of this machine's when it said its time, in us.
    ahead_us: AtomicI64,
}

impl Observed {
    /// Returns `true` if the server has no functions, so that the script is called.
    pub(crate) fn uses_scripts(&self) -> bool {
        self.uses_scripts.load(Ordering::Relaxed)
    }

    /// Records that the server has no functions.
    pub(crate) fn lacks_functions(&self) {
        self.uses_scripts.store(true, Ordering::Relaxed);
    }

    /// Returns the marker that the server had at the last greeting.
    pub(crate) fn marker(&self) -> Option<Arc<Marker>> {
        self.known_marker().clone()
    }

    /// Stores the instant since when the server has lost nothing, and its current marker.
    pub(crate) fn intact_since(&self, since_us: u64, marker: Marker) {
        self.since_us.store(since_us, Ordering::Relaxed);
        *self.known_marker() = Some(Arc::new(marker));
        self.is_lost.store(false, Ordering::Relaxed);
    }

    /// Records if the server may drop our states.
    pub(crate) fn evicts(&self, may_evict: bool) {
        self.may_evict.store(may_evict, Ordering::Relaxed);
    }

    /// Returns for how long the server has lost nothing at `now_us` of its clock, or `None` if it
    /// may drop states at any time.
    ///
    /// `is_marked` says if the reply confirmed the marker.
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

    /// Returns about what the server's clock shows when this machine's shows `wall_us`.
    pub(crate) fn time_us(&self, wall_us: u64) -> u64 {
        wall_us.saturating_add_signed(self.ahead_us.load(Ordering::Relaxed))
    }

    /// Records what the server's clock shows.
    pub(crate) fn shows_us(&self, now_us: u64, wall_us: u64) {
        let signed = |us| i64::try_from(us).unwrap_or(i64::MAX);
        let ahead_us = signed(now_us).saturating_sub(signed(wall_us));
        self.ahead_us.store(ahead_us, Ordering::Relaxed);
    }

    /// Records that a request was late.
    pub(crate) fn falls_silent(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Ends a silence. Returns `true` if there was one.
    pub(crate) fn speaks(&self) -> bool {
        self.is_silent.swap(false, Ordering::Relaxed)
    }

    /// Returns `true` if the server has to be greeted again to learn what it has lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    fn known_marker(&self) -> MutexGuard<'_, Option<Arc<Marker>>> {
        self.marker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
