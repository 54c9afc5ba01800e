//! The lines of callers that a store has denied, one for each key.
//!
//! A store keeps no queue. If all callers of a process that wait for a key asked again at the same
//! instant, the last of them might be first, and a crowd would cost a request of each for each
//! permit. So they stand in a line here, in the order of their calls. The first asks the store
//! again when its denial said so; a grant that leaves permits lets as many of the next ask too.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The lines of one process.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    by_key: Mutex<HashMap<Arc<[u8]>, Line>>,
    /// The number of lines, read without the lock.
    count: AtomicUsize,
    last_number: AtomicU64,
}

#[derive(Debug, Default)]
struct Line {
    /// By the number of their calls.
    waiters: BTreeMap<u64, Waiter>,
    /// The number of waiters whose request is under way.
    asking: usize,
}

#[derive(Debug)]
struct Waiter {
    permits: u64,
    /// The instant before which the store would deny again; 0 if it has not been asked.
    retry_ns: u64,
    asks: bool,
    waker: Option<Waker>,
}

/// A caller's place in a line, which it leaves when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Arc<Lines>,
    key: Arc<[u8]>,
    number: u64,
}

/// What a caller in a line does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It asks the store.
    Ask,
    /// It is the first, and asks at that instant.
    Until(u64),
    /// It is woken when that changes.
    Behind,
}

impl Lines {
    /// Returns the number of a call, by which it stands in a line.
    pub(crate) fn number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns `true` if callers wait for this key.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.lock().contains_key(key)
    }

    /// Returns the number of callers that wait for a key.
    pub(crate) fn waiting(&self, key: &[u8]) -> usize {
        self.lock().get(key).map_or(0, |line| line.waiters.len())
    }

    /// Adds a caller that the store has denied until `retry_ns`, or has not been asked.
    pub(crate) fn join(
        self: &Arc<Self>,
        key: &Arc<[u8]>,
        number: u64,
        permits: u64,
        retry_ns: u64,
    ) -> Place {
        let mut lines = self.lock();
        let line = lines.entry(Arc::clone(key)).or_default();
        line.waiters.insert(number, Waiter { permits, retry_ns, asks: false, waker: None });
        self.count.store(lines.len(), Ordering::Relaxed);
        drop(lines);
        Place { lines: Arc::clone(self), key: Arc::clone(key), number }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<[u8]>, Line>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Returns what the caller does now. It is woken when it may do more.
    pub(crate) fn turn(&self, now_ns: u64, waker: &Waker) -> Turn {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(&self.key) else { return Turn::Ask };
        let is_first = line.waiters.keys().next() == Some(&self.number);
        let Some(waiter) = line.waiters.get_mut(&self.number) else { return Turn::Ask };
        if waiter.asks {
            return Turn::Ask;
        }
        waiter.waker = Some(waker.clone());
        if !is_first || line.asking > 0 {
            return Turn::Behind;
        }
        if now_ns < waiter.retry_ns {
            return Turn::Until(waiter.retry_ns);
        }
        waiter.asks = true;
        line.asking = 1;
        Turn::Ask
    }

    /// Records that the store has denied the caller until `retry_ns`.
    pub(crate) fn denied(&self, retry_ns: u64) {
        self.changed(|line| {
            if let Some(waiter) = line.waiters.get_mut(&self.number) {
                waiter.retry_ns = retry_ns;
                if std::mem::take(&mut waiter.asks) {
                    line.asking = line.asking.saturating_sub(1);
                }
            }
            Vec::new()
        });
    }

    /// Leaves the line with a grant that leaves so many permits, for which the next may ask.
    pub(crate) fn granted(self, remaining: Option<u64>) {
        self.changed(|line| {
            line.remove(self.number);
            let mut left = remaining.unwrap_or(0);
            let mut woken = Vec::new();
            for waiter in line.waiters.values_mut() {
                let Some(rest) = left.checked_sub(waiter.permits) else { break };
                left = rest;
                if !waiter.asks {
                    waiter.asks = true;
                    line.asking = line.asking.saturating_add(1);
                    woken.extend(waiter.waker.take());
                }
            }
            woken
        });
    }

    /// Changes the line, and wakes those that the change concerns.
    fn changed(&self, change: impl FnOnce(&mut Line) -> Vec<Waker>) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(&self.key) else { return };
        let mut woken = change(line);
        if line.asking == 0
            && let Some((number, first)) = line.waiters.iter_mut().next()
            && *number != self.number
        {
            woken.extend(first.waker.take());
        }
        if line.waiters.is_empty() {
            lines.remove(&self.key);
            self.lines.count.store(lines.len(), Ordering::Relaxed);
        }
        drop(lines);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Line {
    fn remove(&mut self, number: u64) {
        if self.waiters.remove(&number).is_some_and(|waiter| waiter.asks) {
            self.asking = self.asking.saturating_sub(1);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.changed(|line| {
            line.remove(self.number);
            Vec::new()
        });
    }
}
