//! The denial of one permit by a limit that decides under its lock.
//!
//! A limit without a lock-free state of its own is decided under its lock. Once it has denied one
//! permit there, the gate holds the instant until which that is so, and denies all tries for one
//! permit before then by one load and one reading of the clock, whatever the limit is.
//!
//! # Who writes what, and why it suffices
//!
//! Only the thread that holds the lock writes it: each section opens the gate before anything
//! changes, and a section that has denied one permit, while no caller waits, shuts it at its end.
//! A permit comes back, a caller joins and the numbers change only in such a section, so in between
//! no permit passes before the gate's instant. A denial linearises at the load; the clock is read
//! after it, so the wait is no longer than the true one.

use core::num::NonZeroU64;

use super::LockFreeVerdict;
use super::sync::{AtomicU64, Ordering};

/// The instant before which not one permit passes; 0 while that is not known.
#[derive(Debug)]
pub(super) struct Gate(AtomicU64);

/// Time alone does not open the gate.
const NEVER_NS: u64 = u64::MAX;

impl Gate {
    pub(super) fn open() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Opens the gate. Only by the thread that holds the lock.
    pub(super) fn unlock(&self) {
        // An open gate stays in the caches of its readers.
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    /// Shuts the gate until an instant, or until it is opened. Only by the thread that holds the
    /// lock.
    pub(super) fn shut(&self, until_ns: Option<u64>) {
        self.0.store(until_ns.unwrap_or(NEVER_NS), Ordering::Relaxed);
    }

    /// Denies one permit, or leaves the decision to the thread that holds the lock.
    #[inline]
    pub(super) fn try_acquire(&self, read_ns: impl Fn() -> u64, permits: u64) -> LockFreeVerdict {
        match self.0.load(Ordering::Relaxed) {
            0 => LockFreeVerdict::Sealed,
            _ if permits != 1 => LockFreeVerdict::Sealed,
            NEVER_NS => LockFreeVerdict::Denied { retry_after_ns: None },
            until_ns => match NonZeroU64::new(until_ns.saturating_sub(read_ns())) {
                None => LockFreeVerdict::Sealed,
                left_ns => LockFreeVerdict::Denied { retry_after_ns: left_ns },
            },
        }
    }
}
