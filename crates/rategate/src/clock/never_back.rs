//! The clock as a limiter reads it: its readings never go back.

use super::Clock;
use crate::clock::wait::{CancelToken, Sleep, Timer, Wait, Wake};
use crate::sync::{AtomicU64, Ordering};

/// A clock of which each reading is the newest one so far, whatever the clock inside shows.
///
/// An earlier reading would make what was taken by a newer one count as not yet earned, and deny
/// callers whom no bound forbids. Clocks that [never go back](Clock::may_go_back) are read as they
/// are.
#[derive(Debug)]
pub(crate) struct NeverBack<C> {
    clock: C,
    newest_ns: AtomicU64,
}

impl<C: Clock> NeverBack<C> {
    /// Wraps `clock`, whose readings count from `seen_ns` on.
    pub(crate) fn new(clock: C, seen_ns: u64) -> Self {
        Self { clock, newest_ns: AtomicU64::new(seen_ns) }
    }

    /// Keeps readings from being before `seen_ns`, which another has read.
    pub(crate) fn note(&self, seen_ns: u64) {
        if self.clock.may_go_back() {
            self.newest(seen_ns);
        }
    }

    /// Returns the clock itself.
    pub(crate) const fn inner(&self) -> &C {
        &self.clock
    }

    #[inline]
    fn forward(&self, read_ns: u64) -> u64 {
        if self.clock.may_go_back() { self.newest(read_ns) } else { read_ns }
    }

    fn newest(&self, read_ns: u64) -> u64 {
        // A caller that knows of another's decision has to find its reading too.
        let known_ns = self.newest_ns.load(Ordering::Acquire);
        if read_ns <= known_ns {
            return known_ns;
        }
        self.newest_ns.fetch_max(read_ns, Ordering::AcqRel).max(read_ns)
    }
}

impl<C: Clock> Clock for NeverBack<C> {
    #[inline]
    fn now_ns(&self) -> u64 {
        self.forward(self.clock.now_ns())
    }

    fn now_in_order_ns(&self) -> u64 {
        self.forward(self.clock.now_in_order_ns())
    }

    fn may_go_back(&self) -> bool {
        false
    }

    fn wait(&self, until_ns: u64, cancel: &CancelToken) -> Wake {
        self.clock.wait(until_ns, cancel)
    }

    fn wait_as(&self, wait: Wait, cancel: &CancelToken) -> Wake {
        self.clock.wait_as(wait, cancel)
    }

    fn sleep(&self, requested_ns: u64) {
        self.clock.sleep(requested_ns);
    }

    fn is_real_time(&self) -> bool {
        self.clock.is_real_time()
    }

    fn wait_for_turn(
        &self,
        cancel: &CancelToken,
        left: &mut dyn FnMut() -> Option<std::time::Duration>,
    ) -> Wake {
        self.clock.wait_for_turn(cancel, left)
    }

    fn timer(&self) -> &dyn Timer {
        self.clock.timer()
    }

    fn sleep_until(&self, until_ns: u64) -> Sleep {
        self.clock.sleep_until(until_ns)
    }
}
