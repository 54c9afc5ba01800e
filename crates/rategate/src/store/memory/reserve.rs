//! The requests of reservations, and the bound on the ids that a store remembers.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::entry::reservations::{Ending, Estimate};
use super::{MemoryStore, lock};
use crate::clock::Clock;
use crate::store::{Key, Reply, StoreError, Unavailable};

impl<C: Clock> MemoryStore<C> {
    pub(super) fn reserve(&self, key: &Key, estimate: Estimate<'_>) -> Result<Reply, StoreError> {
        let Estimate { plan, id, .. } = estimate;
        plan.check(estimate.needed().get()).map_err(StoreError::Exceeds)?;
        if self.ids.is_full() {
            self.forget_ids();
        }
        let admit = || if self.ids.take() { Ok(()) } else { Err(self.too_many_ids()) };
        let (mut shard, now_ns) = self.shard(key);
        shard.forget_over(key, id, &self.ids);
        let (reply, due_ns) = if let Some(entry) = shard.entry(key) {
            entry.reserve(estimate, now_ns, admit)?
        } else {
            let mut entry = shard.unused();
            let (reply, due_ns) = entry.reserve(estimate, now_ns, admit)?;
            if due_ns.is_some() {
                let remembered = shard.remember(Key::clone(key), entry);
                remembered.inspect_err(|_| self.ids.replace(1, 0))?;
            }
            (reply, due_ns)
        };
        if let Some(due_ns) = due_ns {
            shard.note_id(key, id, due_ns);
        }
        Ok(Reply::Reserved(reply))
    }

    pub(super) fn end(&self, key: &Key, ending: Ending<'_>) -> Reply {
        let Ending { id, .. } = ending;
        let (mut shard, now_ns) = self.shard(key);
        shard.forget_over(key, id, &self.ids);
        let mut unused = shard.unused();
        let (reply, moved) = shard.entry(key).unwrap_or(&mut unused).end(ending, now_ns);
        if let Some(moved) = moved {
            shard.move_id(key, id, moved, &self.ids);
        }
        Reply::Ended(reply)
    }

    /// Forgets what no shard has to remember any longer, some of each.
    pub(super) fn forget_ids(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.pass_to(self.clock.now_ns());
            shard.forget_ids(&self.ids);
        }
    }

    pub(super) fn too_many_ids(&self) -> StoreError {
        StoreError::Unavailable(Unavailable::Full(format!(
            "the store remembers {} ids, the maximum; one is forgotten when its request was \
             made, or its reservation has ended, ten minutes ago, or longer ago than that \
             could last",
            self.ids.max()
        )))
    }
}

/// The number of ids that a store remembers, and its bound.
#[derive(Debug)]
pub(super) struct IdCapacity {
    known: AtomicUsize,
    max: usize,
}

impl IdCapacity {
    pub(super) const fn new(max: usize) -> Self {
        Self { known: AtomicUsize::new(0), max }
    }

    pub(super) const fn max(&self) -> usize {
        self.max
    }

    pub(super) fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.known() >= self.max
    }

    /// Counts one more id, unless there are as many as are accepted.
    pub(super) fn take(&self) -> bool {
        let one_more = |known: usize| (known < self.max).then(|| known.saturating_add(1));
        self.known.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Counts ids that are forgotten, and others that are known again.
    pub(super) fn replace(&self, forgotten: usize, by: usize) {
        let changed = |known: usize| Some(known.saturating_sub(forgotten).saturating_add(by));
        let _ = self.known.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}
