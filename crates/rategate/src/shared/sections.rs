//! Critical sections: what runs under a limiter's lock, and what its end wakes.

use rategate_core::ledger::Ledger;

use super::Shared;
use super::locked::Locked;
use crate::clock::{Clock, NeverBack};
use crate::error::Closed;
use crate::section::{CriticalSection, Woken};
use crate::sync::MutexGuard;

impl<C: Clock> Shared<C> {
    /// Runs `act` under the lock, at one reading of the clock, with the queue served up to then.
    pub(crate) fn section<T>(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_>) -> T,
    ) -> Result<T, Closed> {
        Ok(self.run_section(self.lock_open()?, |section| {
            section.serve();
            act(section)
        }))
    }

    /// Changes the limit in a way that may help waiters.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Ledger, u64) -> T,
    ) -> Result<T, Closed> {
        self.section_in_order(|section| section.change(change))
    }

    /// Runs `act` under the lock, at a reading that is not before those of any decision so far.
    ///
    /// This is for actions that depend on when those decisions were made.
    pub(crate) fn section_in_order<T>(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_>) -> T,
    ) -> Result<T, Closed> {
        Ok(self.run_section_at(self.lock_open()?, NeverBack::now_in_order_ns, |section| {
            section.serve();
            act(section)
        }))
    }

    /// Runs `act` under the lock of a limiter that may be closed: the queue is then empty, and
    /// the state stays behind the mutex.
    pub(crate) fn section_even_if_closed<T>(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_>) -> T,
    ) -> T {
        self.run_section(self.lock(), |section| {
            section.serve();
            act(section)
        })
    }

    /// Runs `act` to join the queue, under the lock. Joining itself decides whether to serve
    /// the queue.
    pub(crate) fn section_to_join<T>(
        &self,
        act: impl FnOnce(&mut CriticalSection<'_>) -> T,
    ) -> Result<T, Closed> {
        Ok(self.run_section(self.lock_open()?, act))
    }

    /// Runs `act` under the lock, and serves only as many waiters as `act` does.
    pub(crate) fn section_to_serve<T>(&self, act: impl FnOnce(&mut CriticalSection<'_>) -> T) -> T {
        self.run_section(self.lock(), act)
    }

    pub(super) fn run_section<T>(
        &self,
        locked: MutexGuard<'_, Locked>,
        act: impl FnOnce(&mut CriticalSection<'_>) -> T,
    ) -> T {
        self.run_section_at(locked, NeverBack::now_ns, act)
    }

    pub(super) fn run_section_at<T>(
        &self,
        locked: MutexGuard<'_, Locked>,
        read_ns: impl Fn(&NeverBack<C>) -> u64,
        act: impl FnOnce(&mut CriticalSection<'_>) -> T,
    ) -> T {
        // It wakes when it is dropped, which is after the lock even where something panics.
        let mut woken = Woken::default();
        let mut locked = locked;
        let state = locked.state();
        state.limit_mut().seal(self.lock_free());
        // Inside the lock: another thread's reading could overtake one from outside.
        let now_ns = read_ns(&self.clock);
        let mut section = CriticalSection::new(state, &mut woken, now_ns).on(&self.clock);
        let result = act(&mut section);
        self.end_section(locked, woken, now_ns);
        result
    }

    /// Ends a critical section, and then wakes the waiters that it has made due.
    pub(super) fn end_section(
        &self,
        locked: MutexGuard<'_, Locked>,
        mut woken: Woken,
        now_ns: u64,
    ) {
        let must_arm = self.close_section(locked, &mut woken, now_ns);
        self.wake(woken, must_arm);
    }

    /// Puts the state into its lock-free form if no caller waits, and releases the lock.
    ///
    /// Returns `true` if the timer of the tasks has to be set anew.
    pub(super) fn close_section(
        &self,
        mut locked: MutexGuard<'_, Locked>,
        woken: &mut Woken,
        now_ns: u64,
    ) -> bool {
        let state = locked.state();
        if !state.is_queued(now_ns) && !self.is_closed() {
            state.limit_mut().open(self.lock_free(), now_ns);
        }
        state.must_arm(woken, self.clock.is_real_time())
    }

    pub(super) fn wake(&self, woken: Woken, must_arm: bool) {
        drop(woken);
        if must_arm && let Some(timekeeper) = self.on_demand().timekeeper.get() {
            timekeeper.wake_by_ref();
        }
    }

    /// Locks the state of a limiter that is not closed.
    pub(super) fn lock_open(&self) -> Result<MutexGuard<'_, Locked>, Closed> {
        let locked = self.lock();
        if self.is_closed() { Err(Closed) } else { Ok(locked) }
    }
}
