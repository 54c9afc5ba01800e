//! Events for subscribers: the only file that names `tracing`.
//!
//! Without that feature, its functions do nothing. They are called while no lock is held,
//! because a subscriber may run any code.

use std::time::Duration;

#[cfg(feature = "tracing")]
use rategate_core::span::whole_ns;

#[cfg(feature = "distributed")]
use crate::store::{StoreStatus, Unavailable};

#[cfg(feature = "tracing")]
const TARGET: &str = "rategate";

#[inline]
pub(super) fn denied(limit: &str, permits: u64, retry_after: Option<Duration>) {
    #[cfg(feature = "tracing")]
    tracing::debug!(
        target: TARGET,
        limit,
        permits,
        retry_after_ns = retry_after.map(whole_ns),
        "denied"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = (limit, permits, retry_after);
}

pub(super) fn reconfigured(limit: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: TARGET, limit, "reconfigured");
    #[cfg(not(feature = "tracing"))]
    let _ = limit;
}

pub(super) fn closed(limit: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: TARGET, limit, "closed");
    #[cfg(not(feature = "tracing"))]
    let _ = limit;
}

/// Reports a change of the store's status at a distributed limiter.
#[cfg(feature = "distributed")]
pub(crate) fn store(limit: &str, store_status: StoreStatus, why: Option<&Unavailable>) {
    #[cfg(feature = "tracing")]
    {
        let why = why.map(ToString::to_string);
        match store_status {
            // The last failure, which is over.
            StoreStatus::Healthy => {
                tracing::info!(target: TARGET, limit, was = why, "the store is available again");
            }
            StoreStatus::Unavailable => {
                tracing::warn!(target: TARGET, limit, why, "the store is unavailable");
            }
            StoreStatus::Quarantined => {
                tracing::warn!(target: TARGET, limit, why, "the store may have lost grants");
            }
        }
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (limit, store_status, why);
}

#[cfg(feature = "tracing")]
pub(super) use self::warnings::Warnings;

#[cfg(feature = "tracing")]
mod warnings {
    use rategate_core::gcra::Gcra;
    use rategate_core::ledger::Ledger;
    use rategate_core::verdict::Verdict;

    use super::{Duration, TARGET, whole_ns};
    use crate::sync::Mutex;

    /// A warning that a table is full, at most once a second by the table's own clock.
    ///
    /// A flood of keys must not become a flood of log lines.
    #[derive(Debug)]
    pub(in super::super) struct Warnings {
        gate: Mutex<Option<Ledger>>,
    }

    impl Warnings {
        pub(in super::super) fn new() -> Self {
            Self { gate: Mutex::new(None) }
        }

        pub(in super::super) fn overflow(
            &self,
            limit: &str,
            now: Duration,
            so_far: impl Fn() -> u64,
        ) {
            if self.is_due(whole_ns(now)).unwrap_or(false) {
                tracing::warn!(target: TARGET, limit, overflows = so_far(), "the table is full");
            }
        }

        /// Returns `true` if a warning is due, or `None` while another thread decides that.
        fn is_due(&self, now_ns: u64) -> Option<bool> {
            let mut gate = self.gate.try_lock().ok()?;
            if gate.is_none() {
                *gate = Some(Ledger::new(Gcra::per_second(1), now_ns));
            }
            let verdict = gate.as_mut()?.try_acquire(now_ns, 1).ok()?;
            Some(matches!(verdict, Verdict::Granted(_)))
        }
    }
}
