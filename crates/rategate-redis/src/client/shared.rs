//! State shared by the callers and the driver: a bounded queue, and counters.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rategate::store::{StoreError, Unavailable};
use tokio::sync::Notify;

use super::item::Item;
use super::stats::Counters;

/// The state that the callers and the driver share.
pub(crate) struct Shared {
    inbox: Mutex<Inbox>,
    wake: Notify,
    /// The number of requests without a reply.
    open: AtomicUsize,
    max_open: usize,
    pub(crate) stats: Counters,
}

#[derive(Default)]
struct Inbox {
    items: Vec<Item>,
    is_closed: bool,
    /// The driver was notified, or will look by itself.
    is_notified: bool,
}

impl Shared {
    pub(crate) fn new(max_open: usize) -> Self {
        Self {
            inbox: Mutex::default(),
            wake: Notify::new(),
            open: AtomicUsize::new(0),
            max_open,
            stats: Counters::default(),
        }
    }

    /// Submits a request, or answers it at once with an error.
    pub(crate) fn submit(&self, mut item: Item) {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max_open {
            let why = format!("{} requests await a reply; no more are accepted", self.max_open);
            self.stats.refused.one();
            item.respond(Err(StoreError::Unavailable(Unavailable::Unable(why))));
            return;
        }
        let mut inbox = self.inbox();
        if inbox.is_closed {
            drop(inbox);
            item.respond(Err(StoreError::Closed));
            return;
        }
        inbox.items.push(item);
        let is_notified = mem::replace(&mut inbox.is_notified, true);
        drop(inbox);
        if !is_notified {
            self.wake.notify_one();
        }
    }

    /// Takes all requests submitted since the last call. Returns `false` once the store is
    /// closed.
    ///
    /// A driver that will look by itself passes `polls_itself` and need not be notified.
    pub(crate) fn take(&self, into: &mut Vec<Item>, polls_itself: bool) -> bool {
        let mut inbox = self.inbox();
        inbox.is_notified = polls_itself;
        mem::swap(&mut inbox.items, into);
        !inbox.is_closed
    }

    pub(crate) fn close(&self) {
        self.inbox().is_closed = true;
        self.wake.notify_one();
    }

    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn one_less(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // No update of the inbox can be half done, so a poisoned lock is usable.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
