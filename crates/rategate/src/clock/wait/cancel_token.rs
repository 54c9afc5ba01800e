//! The cancellation token that ends waits, and the sleep that it can end.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::assert_may_block;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, PerProcess, thread_local};

/// The longest single sleep in the operating system. Longer ones are cut, so none overflows
/// there.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// The end of a wait.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The instant has come.
    Due,
    /// The token was raised, before the wait or during it.
    Cancelled,
}

/// A cancellation token: ends all waits that use it, once and for good.
///
/// A limiter raises its token when it is closed. Clones are the same token. Only an
/// implementation of [`Clock`](crate::Clock) needs more than [`CancelToken::is_cancelled`] and
/// [`CancelToken::wait_on`].
#[derive(Clone, Debug)]
pub struct CancelToken {
    /// Separate in each process: a thread of the parent may hold the lock as it forks, and it is
    /// not there to be woken.
    signal: Arc<PerProcess<WakeSignal>>,
    raised: Arc<AtomicBool>,
    /// The flags of the tokens that this one was made [below](CancelToken::child), the topmost
    /// first.
    above: Arc<[Arc<AtomicBool>]>,
}

/// The condition that waiters sleep on.
///
/// The mutex guards only the moment between a check of the flags and the sleep.
#[derive(Debug, Default)]
struct WakeSignal {
    still: Mutex<()>,
    condvar: Condvar,
}

impl CancelToken {
    /// Creates a token that is not raised.
    #[must_use]
    pub fn new() -> Self {
        Self { signal: Arc::default(), raised: Arc::default(), above: Arc::default() }
    }

    /// Creates a token that is also raised when `self` is, or any that `self` is below.
    ///
    /// Raising it does not raise those.
    #[must_use]
    pub fn child(&self) -> Self {
        let above = self.above.iter().chain([&self.raised]).cloned().collect();
        Self { signal: Arc::clone(&self.signal), raised: Arc::default(), above }
    }

    /// Returns the token for one wait of this thread, not raised: its own, or one below `abort`.
    ///
    /// The thread uses its own token for wait after wait.
    pub(crate) fn of_one_wait(abort: Option<&Self>) -> Arc<Self> {
        thread_local! {
            static OURS: Arc<CancelToken> = Arc::default();
        }
        if let Some(abort) = abort {
            return Arc::new(abort.child());
        }
        // A thread that is ending may have lost its own already.
        let cancel = OURS.try_with(Arc::clone).unwrap_or_default();
        // Another holder may still wake an earlier wait; one wake too many does no harm.
        cancel.lower();
        cancel
    }

    /// Resets the token of one wait for the next wait.
    pub(crate) fn lower(&self) {
        self.raised.store(false, Ordering::Release);
    }

    /// Ends all waits that use the token, now and from now on.
    pub fn cancel(&self) {
        self.raised.store(true, Ordering::Release);
        self.nudge();
    }

    /// Returns `true` if the token has been raised.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.raised.load(Ordering::Acquire)
            || self.above.iter().any(|above| above.load(Ordering::Acquire))
    }

    /// Makes all waiters check their clock and the flag again.
    pub fn nudge(&self) {
        // A waiter that checked the flags before now is asleep once the lock is free, and is
        // woken.
        let signal = self.signal();
        drop(signal.lock());
        signal.condvar.notify_all();
    }

    /// Waits until `left` returns `None`, or the token is raised.
    ///
    /// `left` returns the longest time to sleep before it is called again. It is called after
    /// every wake, so no wait ends early. It must neither wait nor touch the token.
    ///
    /// Blocks the thread. In a debug build with the feature `tokio` it panics where that thread
    /// drives tasks.
    pub fn wait_on(&self, mut left: impl FnMut() -> Option<Duration>) -> Wake {
        let signal = self.signal();
        let mut guard = signal.lock();
        loop {
            if self.is_cancelled() {
                return Wake::Cancelled;
            }
            let Some(left) = left() else { return Wake::Due };
            assert_may_block();
            let woken = signal.condvar.wait_timeout(guard, left.min(MAX_WAIT));
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the same number for all tokens that one [nudge](Self::nudge) reaches.
    pub(crate) fn signal_id(&self) -> usize {
        Arc::as_ptr(&self.signal).addr()
    }

    fn signal(&self) -> &WakeSignal {
        self.signal.get_or_init(WakeSignal::default)
    }
}

impl WakeSignal {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.still.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}
