//! The instant at which unknown keys count as exhausted, after counters were lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rategate::keyed::Key;
use rategate::policy::HasLockFree;
use rategate::{Clock, Keyed};

/// An instant, once there is one.
#[derive(Debug, Default)]
pub(super) struct Exhausted {
    /// The instant plus one; 0 if there is none.
    at_ns: AtomicU64,
}

impl Exhausted {
    /// Sets the instant, unless it has a later one.
    pub(super) fn exhaust(&self, at_ns: u64) {
        self.at_ns.fetch_max(at_ns.saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn at_ns(&self) -> Option<u64> {
        self.at_ns.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Applies the instant to a table.
    pub(super) fn notify<K, P, C>(&self, table: &Keyed<K, P, C>)
    where
        K: Key + ?Sized,
        P: HasLockFree,
        C: Clock + Clone,
    {
        if let Some(at_ns) = self.at_ns() {
            table.charge_unknown_keys(Duration::from_nanos(at_ns));
        }
    }
}
