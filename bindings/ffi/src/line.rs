//! The lines of callers that a store has denied, one for each key.
//!
//! A store keeps no queue. If all callers of a process that wait for a key asked again at the same
//! instant, the last of them might be first, and a crowd would cost a request of each for each
//! permit. So they stand in a line here, in the order of their calls. The first asks the store
//! again when its denial said so; a grant that leaves permits lets as many of the next ask too.
//!
//! Requests that were under way together may be granted later than an earlier one was denied. Such
//! a grant goes to the earlier caller, if that waits for as many permits, and the later one has its
//! place.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use rategate::distributed::{Distributed, Grant};
use rategate_redis::client::RedisStore;

/// The lines of one process.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The limiter, to which the grants of callers that have left go back.
    limiter: Distributed<RedisStore>,
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
    /// The grant of a later caller, until this one takes it.
    handed: Option<Grant>,
    waker: Option<Waker>,
}

/// A caller's place in a line, which it leaves when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Arc<Lines>,
    key: Arc<[u8]>,
    number: u64,
}

/// The next act of a caller in a line.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It has the grant of a later caller.
    Granted(Grant),
    /// It asks the store.
    Ask,
    /// It is the first, and asks at that instant.
    Until(u64),
    /// It is woken when that changes.
    Behind,
}

impl Lines {
    pub(crate) fn new(limiter: Distributed<RedisStore>) -> Self {
        let (count, last_number) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { limiter, by_key: Mutex::default(), count, last_number }
    }

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
        let waiter = Waiter { permits, retry_ns, asks: false, handed: None, waker: None };
        line.waiters.insert(number, waiter);
        self.count.store(lines.len(), Ordering::Relaxed);
        drop(lines);
        Place { lines: Arc::clone(self), key: Arc::clone(key), number }
    }

    /// Hands a grant to the first caller before `number` that waits for as many permits. Returns it
    /// if there is none.
    pub(crate) fn hand_to_earlier(
        &self,
        key: &[u8],
        number: u64,
        permits: u64,
        grant: Grant,
    ) -> Option<Grant> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Some(grant);
        }
        let mut lines = self.lock();
        let earlier = lines.get_mut(key).and_then(|line| {
            let mut earlier = line.waiters.range_mut(..number).map(|(_, waiter)| waiter);
            earlier
                .find(|waiter| waiter.permits == permits && !waiter.asks && waiter.handed.is_none())
        });
        let Some(earlier) = earlier else { return Some(grant) };
        earlier.handed = Some(grant);
        let waker = earlier.waker.take();
        drop(lines);
        waker.into_iter().for_each(Waker::wake);
        None
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
        if let Some(grant) = waiter.handed.take() {
            return Turn::Granted(grant);
        }
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
            let _ = line.remove(self.number);
            let mut left = remaining.unwrap_or(0);
            let mut woken = Vec::new();
            for waiter in line.waiters.values_mut() {
                let Some(rest) = left.checked_sub(waiter.permits) else { break };
                left = rest;
                if !waiter.asks && waiter.handed.is_none() {
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
    /// Removes a caller. Returns a grant that it has not taken, and its permits.
    fn remove(&mut self, number: u64) -> Option<(NonZeroU64, Grant)> {
        let waiter = self.waiters.remove(&number)?;
        if waiter.asks {
            self.asking = self.asking.saturating_sub(1);
        }
        NonZeroU64::new(waiter.permits).zip(waiter.handed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut untaken = None;
        self.changed(|line| {
            untaken = line.remove(self.number);
            Vec::new()
        });
        if let Some((permits, grant)) = untaken {
            self.lines.limiter.refund(&self.key, permits, grant);
        }
    }
}
