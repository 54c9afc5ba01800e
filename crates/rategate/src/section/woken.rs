//! The waiters to wake once the lock is free.

use std::mem::take;
use std::sync::Arc;
use std::task::Waker;

use rategate_core::line::Wakes;

use crate::clock::wait::CancelToken;
use crate::panics::quietly;

/// A handle that wakes a waiter.
#[derive(Clone, Debug)]
pub(crate) enum Notifier {
    Task(Waker),
    /// Raised to end one wait, and lowered by its thread before it checks the state again.
    Thread(Arc<CancelToken>),
}

/// The waiters to wake, and the wakers to drop, once the lock is free: either may run any code.
///
/// Its own drop does both.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    pub(super) notifiers: Vec<Notifier>,
    pub(super) dropped: Vec<Notifier>,
    /// The number of tasks that have ended their waits.
    pub(super) tasks: u32,
}

impl Woken {
    pub(super) fn drop_later(&mut self, notifier: Notifier) {
        self.tasks = self.tasks.saturating_add(u32::from(matches!(notifier, Notifier::Task(_))));
        self.dropped.push(notifier);
    }
}

impl Wakes<Notifier> for Woken {
    fn settled(&mut self, notifier: Notifier) {
        self.tasks = self.tasks.saturating_add(u32::from(matches!(notifier, Notifier::Task(_))));
        self.notifiers.push(notifier);
    }

    fn rejected(&mut self, notifier: Notifier) {
        self.drop_later(notifier);
    }

    /// Wakes threads only: the wait of a task has not ended, and a timer watches for it.
    fn moved(&mut self, notifier: &Notifier) {
        if let Notifier::Thread(cancel) = notifier {
            self.notifiers.push(Notifier::Thread(Arc::clone(cancel)));
        }
    }

    /// Wakes tasks only: a thread wakes before its start by itself.
    fn roused(&mut self, notifier: &Notifier) {
        if let Notifier::Task(waker) = notifier {
            self.notifiers.push(Notifier::Task(waker.clone()));
        }
    }
}

impl Drop for Woken {
    #[inline]
    fn drop(&mut self) {
        if !self.notifiers.is_empty() || !self.dropped.is_empty() {
            self.wake();
        }
    }
}

impl Woken {
    #[cold]
    fn wake(&mut self) {
        for notifier in take(&mut self.notifiers) {
            match notifier {
                Notifier::Task(waker) => quietly(|| waker.wake()),
                Notifier::Thread(cancel) => cancel.cancel(),
            }
        }
        for notifier in take(&mut self.dropped) {
            quietly(|| drop(notifier));
        }
    }
}
