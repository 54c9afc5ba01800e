//! The parts of a limiter that are made when a caller first needs them.
//!
//! A limiter whose callers only try has none of them, unless its limit has outgrown its lock-free
//! form.

use std::process;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock as Unmodelled};
use std::task::Waker;

use rategate_core::concurrent::Fast;
use rategate_core::debt::Debt;

use crate::clock::wait::{CancelToken, Listeners, Precision, Waiter};
use crate::stats::LimitStats;
use crate::sync::{AtomicU64, OnceLock, Ordering};

/// The parts that waits, statistics, batches and the closing of a limiter need.
#[derive(Debug)]
pub(crate) struct OnDemand {
    /// Raised when the limiter is closed.
    pub(crate) cancel: CancelToken,
    /// Tasks that wait for a reservation, to be woken by the closing.
    pub(crate) listeners: Listeners,
    pub(crate) waiter: Waiter,
    /// Absent unless enabled.
    pub(crate) stats: OnceLock<LimitStats>,
    /// The bits of how debts end.
    pub(crate) debt: AtomicU64,
    /// The process in which all waiters are known to run.
    pub(crate) made_in: u32,
    /// Sets the timer of waiting tasks. Absent until a task waits.
    pub(crate) timekeeper: OnceLock<Waker>,
    /// Absent until a handle takes batches, or a caller reads the number of changes of the limit.
    batches: OnceLock<Arc<Batches>>,
    /// Absent until the lock-free state has been replaced.
    pub(crate) later: OnceLock<Box<Later>>,
}

/// The number of times that a lock-free state can be replaced, enough for the largest log: each
/// larger one holds at least twice as much.
const REPLACEMENTS: usize = 18;

/// The lock-free states that have replaced the first, since the limit had outgrown it, or had become
/// one of another policy.
///
/// A reader may still use the old one then, so the old one stays, sealed, as long as the limiter.
/// Of a log that grows, all together take less than twice the memory of the largest.
#[derive(Debug, Default)]
pub(crate) struct Later {
    forms: [Unmodelled<Box<Fast>>; REPLACEMENTS],
    /// The number of them. Written under the limiter's lock.
    count: AtomicUsize,
}

impl Later {
    /// Returns the newest.
    pub(crate) fn last(&self) -> Option<&Fast> {
        // Acquire: makes the later state visible, which was stored before the count.
        let last = self.count.load(Ordering::Acquire).checked_sub(1)?;
        self.forms.get(last)?.get().map(|lock_free| &**lock_free)
    }

    /// Adds another, if there is room. Returns `true` if so.
    pub(crate) fn add(&self, form: impl FnOnce() -> Fast) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let Some(cell) = self.forms.get(count) else { return false };
        let _ = cell.set(Box::new(form()));
        self.count.store(count.saturating_add(1), Ordering::Release);
        true
    }
}

/// The words that local handles read before they use a batch.
///
/// They are rarely written, and kept apart from words that often are.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Batches {
    /// The number of changes of the limit, closing included. Written under the lock.
    ///
    /// A handle that sees it late uses permits that it has, as if it had been a little faster.
    epoch: AtomicU64,
    /// The newest reading by a handle that took a batch, or by a caller that had to wait.
    seen_ns: AtomicU64,
}

impl Batches {
    /// Returns a number that differs after each change of the limit, and after the closing.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the newest time seen by a caller that took a batch or had to wait.
    #[inline]
    pub(crate) fn seen_ns(&self) -> u64 {
        self.seen_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn next_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn record_seen_ns(&self, now_ns: u64) {
        self.seen_ns.fetch_max(now_ns, Ordering::Relaxed);
    }
}

impl OnDemand {
    /// Returns the words that local handles read, if there may be any handles.
    pub(crate) fn batches(&self) -> Option<&Batches> {
        self.batches.get().map(|batches| &**batches)
    }

    /// Returns the words that local handles read, for a handle to keep.
    pub(crate) fn batches_or_new(&self) -> &Arc<Batches> {
        self.batches.get_or_init(Arc::default)
    }
}

impl Default for OnDemand {
    fn default() -> Self {
        Self {
            cancel: CancelToken::new(),
            listeners: Listeners::default(),
            waiter: Waiter::new(Precision::default(), 0),
            stats: OnceLock::new(),
            debt: AtomicU64::new(Debt::FORGOTTEN.bits()),
            made_in: process::id(),
            timekeeper: OnceLock::new(),
            batches: OnceLock::new(),
            later: OnceLock::new(),
        }
    }
}
