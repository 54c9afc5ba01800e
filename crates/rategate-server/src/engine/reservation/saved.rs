//! Settled operations as rows of a file of counters.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rategate::Clock;
use rategate::policy::saved::RestoreContext;

use super::table::{BATCH, Reservations};
use crate::engine::snapshot::rows::SettledRow;

impl<C: Clock> Reservations<C> {
    /// Returns the key of the digests in rows.
    pub(in crate::engine) fn digest_key(&self) -> [u64; 2] {
        self.digests.key()
    }

    /// Takes over the key of the digests in rows. Returns `false` if another is in use.
    pub(in crate::engine) fn restore_digests(&self, key: [u64; 2]) -> bool {
        self.digests.restore(key)
    }

    /// Calls `write` with the rows of all that have been settled, a few at a time, as they are
    /// `saved_ns`.
    pub(in crate::engine) fn each_settled(
        &self,
        saved_ns: u64,
        mut write: impl FnMut(&[SettledRow]) -> io::Result<()>,
    ) -> io::Result<()> {
        for shard in &self.shards {
            let mut from = None;
            loop {
                let mut rows = Vec::new();
                let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
                from = shard.settlements.each_of(from, BATCH, |id, names, due_ns, outcome| {
                    let left_ns = due_ns.saturating_sub(saved_ns);
                    rows.extend((left_ns > 0).then_some(SettledRow {
                        id,
                        names,
                        left_ns,
                        outcome,
                    }));
                });
                // The output may be slow.
                drop(shard);
                write(&rows)?;
                if from.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Remembers what had been settled. Returns the number of ids that are known again, and of
    /// those that find no place.
    pub(in crate::engine) fn remember(
        &self,
        rows: Vec<SettledRow>,
        since: RestoreContext,
    ) -> (u64, u64) {
        let RestoreContext { now_ns, elapsed_ns } = since;
        let (mut known, mut lost) = (0_u64, 0_u64);
        for row in rows.into_iter().filter(|row| row.left_ns > elapsed_ns) {
            if self.check_capacity().is_err() {
                lost = lost.saturating_add(1);
                continue;
            }
            let SettledRow { id, names, left_ns, outcome } = row;
            let due_ns = now_ns.saturating_add(left_ns.saturating_sub(elapsed_ns));
            if self.lock_digest(id).settlements.add(id, names, due_ns, outcome) {
                self.known.fetch_add(1, Ordering::Relaxed);
            }
            known = known.saturating_add(1);
        }
        (known, lost)
    }
}
