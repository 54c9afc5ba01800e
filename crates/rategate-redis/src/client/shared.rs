//! What the callers and the driver share: a queue with a bound, and counters.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rategate::store::{Fault, Gone};
use tokio::sync::Notify;

use super::item::Item;
use super::stats::Counters;

/// What the callers and the driver share.
pub(crate) struct Shared {
    inbox: Mutex<Inbox>,
    wake: Notify,
    /// Questions without an answer.
    open: AtomicUsize,
    most: usize,
    pub(crate) stats: Counters,
}

#[derive(Default)]
struct Inbox {
    items: Vec<Item>,
    is_closed: bool,
    /// The driver knows, or will look on its own.
    is_told: bool,
}

impl Shared {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            inbox: Mutex::default(),
            wake: Notify::new(),
            open: AtomicUsize::new(0),
            most,
            stats: Counters::default(),
        }
    }

    /// Puts a question, or says at once why not.
    pub(crate) fn put(&self, mut item: Item) {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.most {
            let why = format!("{} questions are without an answer already", self.most);
            self.stats.refused.one();
            item.hear(Err(Fault::Gone(Gone::Unable(why))));
            return;
        }
        let mut inbox = self.inbox();
        if inbox.is_closed {
            drop(inbox);
            item.hear(Err(Fault::Closed));
            return;
        }
        inbox.items.push(item);
        let is_told = mem::replace(&mut inbox.is_told, true);
        drop(inbox);
        if !is_told {
            self.wake.notify_one();
        }
    }

    /// All that was put since; none once the store is closed. A driver that will look on its own need not be told.
    pub(crate) fn take(&self, into: &mut Vec<Item>, looks_itself: bool) -> bool {
        let mut inbox = self.inbox();
        inbox.is_told = looks_itself;
        mem::swap(&mut inbox.items, into);
        !inbox.is_closed
    }

    pub(crate) fn close(&self) {
        self.inbox().is_closed = true;
        self.wake.notify_one();
    }

    pub(crate) async fn told(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn one_less(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // Nothing in it can be half done.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
