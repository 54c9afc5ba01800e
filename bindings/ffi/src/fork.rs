//! Forks at instants at which no other thread is within a limiter.
//!
//! A forked child has one thread. A lock that another thread of its parent held stays locked
//! there, so a fork waits until none is held. Calls that hold the interpreter's lock need no more:
//! no other thread forks meanwhile. All others pass a gate: blocking calls, but for the time that
//! they wait, and the timer's wakes.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use rategate::wait::Sleep;

/// The threads within the gate, and above them the forks under way.
///
/// A lock would itself be one that another thread may hold at the fork.
static GATE: AtomicU64 = AtomicU64::new(0);
const ONE_FORK: u64 = 1 << 32;

/// The time between two looks at a gate that is to open or to empty.
const PAUSE: Duration = Duration::from_micros(20);

thread_local! {
    /// The calls of this thread within the gate, one within the other.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Keeps threads out of limiters from here until [`after_fork`], once those within have left.
///
/// The caller holds its interpreter's lock, and is in no call of a limiter.
pub fn before_fork() {
    GATE.fetch_add(ONE_FORK, Ordering::SeqCst);
    while !GATE.load(Ordering::SeqCst).is_multiple_of(ONE_FORK) {
        thread::sleep(PAUSE);
    }
}

/// Lets threads enter again.
pub fn after_fork(is_child: bool) {
    if is_child {
        // Other forks are the parent's.
        GATE.store(0, Ordering::SeqCst);
    } else {
        GATE.fetch_sub(ONE_FORK, Ordering::SeqCst);
    }
}

/// Runs a call of a limiter in a thread that may run while another forks.
pub fn within<T>(run: impl FnOnce() -> T) -> T {
    let _inside = (DEPTH.get() == 0).then(Inside::enter);
    run()
}

/// Runs a wait of a call, which holds no lock.
pub(crate) fn outside<T>(wait: impl FnOnce() -> T) -> T {
    let depth = DEPTH.get();
    if depth == 0 {
        return wait();
    }
    leave();
    let _back = Back;
    wait()
}

/// Returns a wait of a timer whose wake passes the gate.
pub(crate) fn gated(sleep: Sleep) -> Sleep {
    Box::pin(Gated(sleep))
}

struct Inside;

impl Inside {
    fn enter() -> Self {
        enter();
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        leave();
    }
}

struct Back;

impl Drop for Back {
    fn drop(&mut self) {
        enter();
    }
}

fn enter() {
    while GATE.fetch_add(1, Ordering::SeqCst) >= ONE_FORK {
        GATE.fetch_sub(1, Ordering::SeqCst);
        thread::sleep(PAUSE);
    }
    DEPTH.set(1);
}

fn leave() {
    DEPTH.set(0);
    GATE.fetch_sub(1, Ordering::SeqCst);
}

struct Gated(Sleep);

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = Waker::from(Arc::new(GatedWaker(context.waker().clone())));
        self.0.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

struct GatedWaker(Waker);

impl Wake for GatedWaker {
    fn wake(self: Arc<Self>) {
        within(|| self.0.wake_by_ref());
    }
}
