//! The driver: the one timer of all tasks that wait for a limiter.
//!
//! Its waker does not wake a task but serves the queue, wherever the timer happens to call it. So
//! no task has to be polled for others to get their permits: a task that is leaked, or whose
//! runtime has shut down, blocks no other.

use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::clock::Clock;
use crate::clock::wait::{GATHER_NS, Precision, Sleep, ThreadTimer, Timer};
use crate::panics::quietly;
use crate::shared::Shared;
use crate::sync::{AtomicBool, Ordering, PerProcess, TryMutex};

/// The number of waiters granted before the lock is free for a moment, and they are woken.
const BATCH: usize = 64;

/// The waker of a limiter's timer: it sets the timer, and serves the queue when it wakes.
struct Driver<C> {
    shared: Weak<Shared<C>>,
    /// Separate in each process: a fork copies the watch as it is, locked for ever if it was
    /// locked.
    watch_cell: PerProcess<WatchCell>,
}

/// The pending wait, and the flag that a call to serve it sets.
#[derive(Default)]
struct WatchCell {
    /// `true` if there has been a call since the last check.
    called: AtomicBool,
    /// Locked by the thread that serves. Other callers leave the work to that thread.
    watch: TryMutex<Watch>,
}

/// The wait for which the timer is set.
#[derive(Default)]
struct Watch {
    sleep: Option<Sleep>,
    /// The instant that the timer is set for, and the one at which it wakes.
    next_ns: u64,
    wake_ns: u64,
    /// The number of waiters that the last wake granted.
    granted: u32,
}

/// Has a timer made for waiting tasks, once a task first waits.
pub(super) fn install<C>(shared: &Shared<C>)
where
    C: Clock + 'static,
{
    shared.time_tasks_by(|shared| {
        Waker::from(Arc::new(Driver {
            shared: Arc::downgrade(shared),
            watch_cell: PerProcess::new(),
        }))
    });
}

impl<C> Wake for Driver<C>
where
    C: Clock + 'static,
{
    fn wake(self: Arc<Self>) {
        Self::wake_by_ref(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The thread that locks the watch checks the flag once more after it has unlocked it, so
        // a call is never lost. All of these are read-modify-writes, the last check too. So of a
        // call and that check one comes first: the check sees the call, or the call comes after
        // it and finds the watch free.
        let WatchCell { called, watch } = self.watch_cell.get_or_init(WatchCell::default);
        called.swap(true, Ordering::AcqRel);
        while called.fetch_or(false, Ordering::AcqRel) {
            let mut watch = match watch.try_lock() {
                Ok(watch) => watch,
                Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
                Err(TryLockError::WouldBlock) => return,
            };
            while called.swap(false, Ordering::AcqRel) {
                if let Some(shared) = self.shared.upgrade() {
                    watch.check(&shared, &Waker::from(Arc::clone(self)));
                }
            }
        }
    }
}

impl Watch {
    /// Grants what is due, and sets the timer for what comes next.
    fn check<C: Clock>(&mut self, shared: &Shared<C>, waker: &Waker) {
        let left_ns = |until_ns: u64| until_ns.saturating_sub(shared.now_ns());
        // The wake that roused the head, if it was the timer's.
        let mut woke_ns = None;
        loop {
            // A wake that was due, whatever comes next: those that would follow at once are
            // gathered.
            if self.sleep.is_some() && left_ns(self.wake_ns) == 0 {
                shared.waiter().woken(self.wake_ns);
                woke_ns = Some(self.wake_ns);
                self.drop_sleep();
            }
            let Some((next_ns, slack_ns)) = self.serve(shared, woke_ns) else {
                self.drop_sleep();
                return;
            };
            if self.sleep.is_none() || self.next_ns != next_ns {
                let wait = shared.waiter().as_to(Precision::Auto, slack_ns).planned(next_ns);
                (self.next_ns, self.wake_ns) = (next_ns, wait.wake_ns());
                self.drop_sleep();
                self.sleep = Some(begin(shared.clock(), self.wake_ns));
            }
            let Some(sleep) = &mut self.sleep else { continue };
            let context = &mut Context::from_waker(waker);
            match catch_unwind(AssertUnwindSafe(|| sleep.as_mut().poll(context))) {
                Ok(Poll::Pending) => return,
                // Too early; otherwise it is recorded above.
                Ok(Poll::Ready(())) if left_ns(self.wake_ns) > 0 => self.drop_sleep(),
                Ok(Poll::Ready(())) => {}
                // The runtime has shut down. The process is still there.
                Err(payload) => {
                    quietly(|| drop(payload));
                    self.drop_sleep();
                    self.sleep =
                        Some(ThreadTimer.after(Duration::from_nanos(left_ns(self.wake_ns))));
                }
            }
        }
    }

    /// Grants what is due. Returns when the next wait is, and how late it may be served.
    fn serve<C: Clock>(&mut self, shared: &Shared<C>, woke_ns: Option<u64>) -> Option<(u64, u64)> {
        let mut granted = 0_u32;
        loop {
            let (next_ns, slack_ns, left, has_more, takes) = shared.section_to_serve(|section| {
                let before = section.state().waiting();
                let has_more = section.serve_some(BATCH);
                section.rouse(woke_ns);
                granted = granted.saturating_add(before.saturating_sub(section.state().waiting()));
                let next_ns = section.arm();
                let state = section.state();
                (next_ns, state.limit().slack_ns(), state.waiting(), has_more, state.takes())
            });
            if has_more {
                continue;
            }
            // In a long queue a late wake costs a schedule nothing: the next waiters came long
            // ago.
            let is_long = !takes && left > granted.max(self.granted).saturating_mul(2);
            if granted > 0 {
                self.granted = granted;
            }
            let slack_ns = if is_long && granted > 1 { GATHER_NS } else { slack_ns };
            return next_ns.map(|next_ns| (next_ns, slack_ns));
        }
    }

    fn drop_sleep(&mut self) {
        let sleep = take(&mut self.sleep);
        quietly(|| drop(sleep));
    }
}

/// Starts a wait by the clock's timer, or by a thread if that timer fails.
fn begin<C: Clock>(clock: &C, until_ns: u64) -> Sleep {
    catch_unwind(AssertUnwindSafe(|| clock.sleep_until(until_ns))).unwrap_or_else(|payload| {
        quietly(|| drop(payload));
        ThreadTimer.after(Duration::from_nanos(until_ns.saturating_sub(clock.now_ns())))
    })
}
