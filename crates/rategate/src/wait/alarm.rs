//! The alarm that ends waits, and the sleep that it can end.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::assert_may_block;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, thread_local};

/// One wait of the operating system's. Longer ones are cut, so that no deadline overflows there.
const LONGEST: Duration = Duration::from_secs(86_400);

/// How a wait ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The instant has come.
    Due,
    /// The alarm was raised, before the wait or during it.
    Raised,
}

/// Wakes all who wait with it, once and for good: a limiter raises its alarm when it is closed.
///
/// Clones are the same alarm. Only somebody who writes a [`Clock`](crate::Clock) needs to know more
/// than [`Alarm::is_raised`] and [`Alarm::wait_on`].
#[derive(Clone, Debug)]
pub struct Alarm {
    bell: Arc<Bell>,
    raised: Arc<AtomicBool>,
    /// The flags of the alarms that this one was made [below](Alarm::below), the topmost first.
    above: Arc<[Arc<AtomicBool>]>,
}

/// What waiters sleep on. The mutex guards nothing but the moment between a look at the flags and
/// the sleep.
#[derive(Debug, Default)]
struct Bell {
    still: Mutex<()>,
    rung: Condvar,
}

impl Alarm {
    /// An alarm that nobody has raised.
    #[must_use]
    pub fn new() -> Self {
        Self { bell: Arc::default(), raised: Arc::default(), above: Arc::default() }
    }

    /// An alarm that is also raised when `self` is, or any that `self` is below. Raising it leaves
    /// those alone.
    #[must_use]
    pub fn below(&self) -> Self {
        let above = self.above.iter().chain([&self.raised]).cloned().collect();
        Self { bell: Arc::clone(&self.bell), raised: Arc::default(), above }
    }

    /// The alarm for one wait of this thread: its own, which it uses again and again, or one below
    /// `abort`. Down to begin with.
    pub(crate) fn of_one_wait(abort: Option<&Self>) -> Arc<Self> {
        thread_local! {
            static OURS: Arc<Alarm> = Arc::default();
        }
        if let Some(abort) = abort {
            return Arc::new(abort.below());
        }
        // A thread that is ending may have lost its own already.
        let alarm = OURS.try_with(Arc::clone).unwrap_or_default();
        // Whoever else holds it is late with waking an earlier wait; he disturbs nobody.
        alarm.lower();
        alarm
    }

    /// Makes an alarm for one wait fit for the next.
    pub(crate) fn lower(&self) {
        self.raised.store(false, Ordering::Release);
    }

    /// Wakes all who wait, now and from now on.
    pub fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.nudge();
    }

    /// Whether the alarm has been raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
            || self.above.iter().any(|above| above.load(Ordering::Acquire))
    }

    /// Makes all who wait look again at their clock, and at the flag.
    pub fn nudge(&self) {
        // Whoever looked at the flags before now is asleep once the lock is free, and hears it.
        drop(self.lock());
        self.bell.rung.notify_all();
    }

    /// Waits until `left` answers `None`, or the alarm is raised. `left` says for how long at most
    /// to sleep before it is asked again; it is asked after every wake, so nothing wakes early.
    ///
    /// `left` must neither wait nor touch the alarm.
    ///
    /// It blocks the thread. In a debug build with the feature `tokio` it panics where that thread drives tasks.
    pub fn wait_on(&self, mut left: impl FnMut() -> Option<Duration>) -> Wake {
        let mut held = self.lock();
        loop {
            if self.is_raised() {
                return Wake::Raised;
            }
            let Some(left) = left() else { return Wake::Due };
            assert_may_block();
            let woken = self.bell.rung.wait_timeout(held, left.min(LONGEST));
            held = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The same number for alarms that one [nudge](Self::nudge) reaches.
    pub(crate) fn bell_id(&self) -> usize {
        Arc::as_ptr(&self.bell).addr()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.bell.still.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Alarm {
    fn default() -> Self {
        Self::new()
    }
}
