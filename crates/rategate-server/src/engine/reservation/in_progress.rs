//! Operations on one id, one after the other, where they wait for a store.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::engine::unique_id::UniqueId;

/// The ids with an operation in progress, and the tasks that wait for its end.
#[derive(Debug, Default)]
pub(super) struct InProgress {
    ids: Mutex<HashMap<UniqueId, Vec<Waker>>>,
}

/// An operation in progress. It ends with a drop.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    of: &'a InProgress,
    id: UniqueId,
}

impl InProgress {
    /// Begins an operation once no other is in progress under the id.
    pub(super) async fn begin(&self, id: UniqueId) -> Operation<'_> {
        poll_fn(|cx| {
            let mut ids = self.ids();
            if let Some(waiting) = ids.get_mut(&id) {
                if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                return Poll::Pending;
            }
            ids.insert(id, Vec::new());
            Poll::Ready(Operation { of: self, id })
        })
        .await
    }

    fn ids(&self) -> MutexGuard<'_, HashMap<UniqueId, Vec<Waker>>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let waiting = self.of.ids().remove(&self.id);
        // All of them: a task that is woken may have stopped waiting.
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn operations_of_one_id_come_one_after_the_other() {
        let (all, cx) = (InProgress::default(), &mut Context::from_waker(Waker::noop()));
        let [one, other] = [1, 2].map(|byte| UniqueId([byte; 16]));
        let mut first = pin!(all.begin(one));
        let Poll::Ready(running) = first.as_mut().poll(cx) else { panic!("the id is free") };
        let mut second = pin!(all.begin(one));
        assert!(second.as_mut().poll(cx).is_pending());
        assert!(pin!(all.begin(other)).as_mut().poll(cx).is_ready());
        // One that stops waiting delays no other.
        assert!(Box::pin(all.begin(one)).as_mut().poll(cx).is_pending());
        drop(running);
        let Poll::Ready(running) = second.as_mut().poll(cx) else { panic!("it is free again") };
        drop(running);
        assert!(all.ids().is_empty());
    }
}
