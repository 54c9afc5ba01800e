//! A key's part in a joint acquisition of several limits, decided on a copy of its state.
//!
//! The key's shard stays locked until the whole is decided.

use std::fmt;
use std::num::NonZeroU64;

use rategate_core::concurrent::HasLockFree;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::verdict::{Refusal, Verdict};

use super::entries::Entries;
use super::error::KeyedError;
use super::key::Id;
use super::section::{Copied, KeyLocation, KeySection, PendingPolicy};
use super::table::Table;
use crate::clock::Clock;
use crate::decision::Grant;
use crate::keyed::joint::{
    AfterUnlock, EnterError, Held, JointLimit, JointLimiter, Lock, LockedRequest, Order, SHARD,
    opens_after,
};
use crate::sync::MutexGuard;

/// A key of a table, and the permits requested of it.
pub(super) struct JointKey<'a, I: Id, P: HasLockFree, C: Clock> {
    pub(super) table: &'a Table<I, P, C>,
    pub(super) location: KeyLocation<I>,
    pub(super) permits: u64,
}

/// A locked shard, and its keys that take part in the request.
struct ShardLockGuard<'a, I: Id, P: HasLockFree, C: Clock> {
    table: &'a Table<I, P, C>,
    entries: MutexGuard<'a, Entries<I, P, C>>,
    now_ns: u64,
    drafts: Vec<Draft<I, P>>,
    late: Vec<PendingPolicy<I, P, C>>,
}

/// A copy of a key's limit, before the decision.
struct Draft<I, P: HasLockFree> {
    at: usize,
    location: KeyLocation<I>,
    permits: u64,
    ledger: Ledger<P>,
}

impl<I: Id, P: HasLockFree, C: Clock> fmt::Debug for JointKey<'_, I, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointKey")
            .field("id", &self.location.id)
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}

impl<I: Id, P: HasLockFree, C: Clock + Clone> JointLimit for JointKey<'_, I, P, C> {
    fn lock(&self, is_spilled: bool) -> Result<Box<dyn Lock + '_>, KeyedError> {
        let permits = self.permits;
        if is_spilled {
            // Two parts of one table that find no capacity could share one limit, but not both be
            // parts of it.
            let (limiter, twice) = (self.table.spill(self.location.tier)?, KeyedError::TableFull);
            return Ok(Box::new(JointLimiter { limiter, permits, twice }));
        }
        Ok(match self.table.limiter_in_use(&self.location)? {
            Some(limiter) => {
                Box::new(JointLimiter { limiter, permits, twice: KeyedError::Duplicate })
            }
            None => Box::new(Self { ..*self }),
        })
    }
}

impl<I: Id, P: HasLockFree, C: Clock + Clone> Lock for JointKey<'_, I, P, C> {
    fn order(&self) -> Order {
        (SHARD, self.table.address(self.location.shard))
    }

    fn request(&self) -> LockedRequest {
        let word = |index| self.location.id.word(index);
        LockedRequest { permits: self.permits, key: [word(0), word(1)], tier: self.location.tier }
    }

    fn guard(&self) -> Result<Box<dyn Held + '_>, KeyedError> {
        let table = self.table;
        let mut entries = table.lock(self.location.shard);
        let now_ns = table.clock.now_ns();
        let mut late = Vec::new();
        let now_ns = KeySection::at(table, &mut entries, self.location, &mut late).begin(now_ns);
        Ok(Box::new(ShardLockGuard { table, entries, now_ns, drafts: Vec::new(), late }))
    }
}

impl<I: Id, P: HasLockFree, C: Clock + Clone> ShardLockGuard<'_, I, P, C> {
    fn section(&mut self, location: KeyLocation<I>) -> KeySection<'_, I, P, C> {
        KeySection {
            now_ns: self.now_ns,
            ..KeySection::at(self.table, &mut self.entries, location, &mut self.late)
        }
    }
}

impl<I: Id, P: HasLockFree, C: Clock + Clone> Held for ShardLockGuard<'_, I, P, C> {
    fn add(&mut self, at: usize, wanted: LockedRequest) -> Result<(), EnterError> {
        let location = self.table.location(I::of(wanted.key), wanted.tier);
        if self.drafts.iter().any(|draft| draft.location.id == location.id) {
            return Err(EnterError::Failed(KeyedError::Duplicate));
        }
        let ledger = match self.section(location).copy() {
            Copied::Ledger(ledger) => *ledger,
            Copied::Elsewhere => return Err(EnterError::Moved),
            Copied::TableFull => return Err(EnterError::Spilled),
        };
        self.drafts.push(Draft { at, location, permits: wanted.permits, ledger });
        Ok(())
    }

    fn opens_after(&mut self, wait_ns: u64) -> Result<(u64, usize), (usize, Refusal)> {
        let mut last = (wait_ns, 0);
        for draft in &self.drafts {
            let Some(permits) = NonZeroU64::new(draft.permits) else { continue };
            let opens_ns = opens_after(&draft.ledger, self.now_ns, wait_ns, permits)
                .map_err(|refusal| (draft.at, refusal))?;
            if opens_ns > last.0 {
                last = (opens_ns, draft.at);
            }
        }
        Ok(last)
    }

    fn take(&mut self, grants: &mut Vec<(usize, Grant)>) {
        for mut draft in std::mem::take(&mut self.drafts) {
            let now_ns = self.now_ns;
            if let Ok(Verdict::Granted(grant)) = draft.ledger.try_acquire(now_ns, draft.permits) {
                grants.push((draft.at, Grant::as_promised(&grant)));
            }
            self.section(draft.location).put(draft.ledger);
        }
    }

    fn release<'a>(mut self: Box<Self>) -> AfterUnlock<'a>
    where
        Self: 'a,
    {
        for draft in std::mem::take(&mut self.drafts) {
            self.section(draft.location).leave();
        }
        let Self { table, entries, late, .. } = *self;
        drop(entries);
        Box::new(move || table.update_limiters(late))
    }
}
