//! Wakers of tasks that wait for a limiter to close.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::PoisonError;
use std::task::Waker;

use crate::panics::quietly;
use crate::sync::{Mutex, MutexGuard};

/// Wakers that are called once, when a limiter closes.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    wakers: Mutex<Wakers>,
}

#[derive(Debug, Default)]
struct Wakers {
    by_id: BTreeMap<u64, Waker>,
    last_id: u64,
}

impl Listeners {
    /// Registers `waker`, in exchange for the one known under the same `id`. Returns the id.
    ///
    /// The caller checks afterwards if the limiter was closed meanwhile.
    pub(crate) fn listen(&self, id: Option<u64>, waker: Waker) -> u64 {
        let mut wakers = self.lock();
        let id = id.unwrap_or_else(|| {
            wakers.last_id = wakers.last_id.wrapping_add(1);
            wakers.last_id
        });
        let before = wakers.by_id.insert(id, waker);
        drop(wakers);
        // Outside the lock, because it may run any code.
        drop(before);
        id
    }

    pub(crate) fn leave(&self, id: u64) {
        let waker = self.lock().by_id.remove(&id);
        drop(waker);
    }

    /// Calls all wakers.
    pub(crate) fn call(&self) {
        let wakers = take(&mut self.lock().by_id);
        for waker in wakers.into_values() {
            quietly(|| waker.wake());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Wakers> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
