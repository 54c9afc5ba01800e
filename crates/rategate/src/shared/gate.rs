//! The gate: the denial of a single permit without the lock.
//!
//! A limit without a lock-free state decides under its lock. Once it has denied one permit there,
//! the gate says until when that holds, and all tries for one permit before then are denied here,
//! by one load and one reading of the clock.
//!
//! # Who writes what, and why it suffices
//!
//! Only the thread that holds the lock writes the gate, at the end of each critical section: the
//! instant, if all that the section did was to deny one permit while nobody waits, and nothing
//! otherwise. Without a section nothing comes back and nobody waits, so no permit passes before
//! that instant. A denial linearises at the load of the gate. The clock is read after it, so the
//! wait is no longer than the true one.

use std::num::NonZeroU64;

use rategate_core::verdict::Denial;

use crate::sync::{AtomicU64, Ordering};

/// The first instant at which a permit passes, as far as is known.
#[derive(Debug)]
pub(super) struct Gate(AtomicU64);

/// No clock shows when: the permit comes back by an act.
const UNKNOWN_NS: u64 = u64::MAX;

impl Gate {
    pub(super) fn open() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Sets the instant before which no permit passes, or opens the gate. Only by the thread that
    /// holds the lock.
    pub(super) fn set(&self, opens_ns: Option<u64>) {
        let opens_ns = opens_ns.unwrap_or(0);
        // An open gate stays with its readers.
        if self.0.load(Ordering::Relaxed) != opens_ns {
            self.0.store(opens_ns, Ordering::Release);
        }
    }

    /// Returns the denial of one permit, or `None` if the lock has to decide.
    #[inline]
    pub(super) fn denial(&self, read_ns: impl FnOnce() -> u64) -> Option<Denial> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            UNKNOWN_NS => Some(Denial { retry_after_ns: None }),
            opens_ns => {
                let wait_ns = opens_ns.checked_sub(read_ns()).and_then(NonZeroU64::new)?;
                Some(Denial { retry_after_ns: Some(wait_ns) })
            }
        }
    }
}
