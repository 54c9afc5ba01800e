//! The form of a limit that decides under its lock: a gate in front of it.
//!
//! The gate is the instant before which not one permit passes. Once a permit has been denied under
//! the lock, further ones are denied here, by one load and one reading of the clock, whatever the
//! limit is.
//!
//! # Who writes what, and why it suffices
//!
//! Only the thread that holds the lock writes. It opens the gate at the begin of each section, and
//! shuts it at the end of one that has denied a permit and changed nothing since, while nobody
//! waits. Without a section nothing comes back and nobody waits, so no permit passes before that
//! instant. A denial linearises at the load of the gate. The clock is read after it, so the wait is
//! no longer than the true one.

use core::num::NonZeroU64;

use super::sync::{AtomicU64, Ordering};
use super::{LockFree, LockFreeVerdict, OwnedLockFree};
use crate::policy::Policy;

/// The lock-free form of a limit that has none: sealed, but for denials of one permit.
#[derive(Debug)]
pub struct Locked {
    opens_ns: AtomicU64,
}

impl Default for Locked {
    fn default() -> Self {
        Self { opens_ns: AtomicU64::new(0) }
    }
}

impl Locked {
    fn opens_ns(&self) -> u64 {
        self.opens_ns.load(Ordering::Acquire)
    }

    /// Sets the gate. Zero opens it.
    fn set(&self, opens_ns: u64) {
        // An open gate stays with its readers.
        if self.opens_ns.load(Ordering::Relaxed) != opens_ns {
            self.opens_ns.store(opens_ns, Ordering::Release);
        }
    }
}

impl LockFree for Locked {
    #[inline]
    fn try_acquire(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict {
        match self.opens_ns() {
            opens_ns if opens_ns > 0 && permits == 1 => {
                LockFreeVerdict::denied(opens_ns.saturating_sub(read_ns()))
            }
            _ => LockFreeVerdict::Sealed,
        }
    }

    fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let wait_ns = self.opens_ns().checked_sub(now_ns).and_then(NonZeroU64::new)?;
        (permits == 1).then_some(wait_ns.get())
    }

    fn remaining(&self, now_ns: u64) -> Option<u64> {
        (now_ns < self.opens_ns()).then_some(0)
    }

    fn shut(&self, opens_ns: u64) {
        self.set(opens_ns);
    }
}

impl<P: Policy> OwnedLockFree<P> for Locked {
    fn new(_policy: &P) -> Self {
        Self::default()
    }

    fn seal(&self, _policy: &P) -> Option<P::State> {
        self.set(0);
        None
    }

    fn open(&self, _policy: &P, _state: &P::State, _now_ns: u64) -> bool {
        false
    }
}
