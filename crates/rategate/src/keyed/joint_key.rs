//! A key's part in a joint acquisition of several limits.
//!
//! The key's shard stays locked until the whole is decided. Until then the key's limit is out of
//! the table, and changed only if all limits grant.

use std::fmt;
use std::num::NonZeroU64;

use rategate_core::holds::HoldVerdict;
use rategate_core::ledger::Ledger;
use rategate_core::verdict::Verdict;

use super::entries::Entries;
use super::key::Id;
use super::table::Table;
use super::table::section::{KeyLocation, KeySection, Lent, PendingPolicy};
use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::KeyedError;
use crate::keyed::joint::{
    AfterUnlock, EnterError, GuardedBy, Held, HeldStatus, JointLimit, JointLimiter, Lock,
    LockedRequest, Opens, Order, SHARD,
};
use crate::status::Status;
use crate::sync::MutexGuard;

/// A key of a table, and the permits requested of it.
pub(super) struct JointKey<'a, I: Id, C: Clock> {
    pub(super) table: &'a Table<I, C>,
    pub(super) location: KeyLocation<I>,
    pub(super) permits: u64,
    /// The permits that have to be left beside those.
    pub(super) spared: u64,
}

/// A locked shard, and its keys that take part in the request.
struct ShardLockGuard<'a, I: Id, C: Clock> {
    table: &'a Table<I, C>,
    entries: MutexGuard<'a, Entries<I, C>>,
    now_ns: u64,
    drafts: Vec<Draft<I>>,
    late: Vec<PendingPolicy<I, C>>,
}

/// A key's limit, which is out of the table.
struct Draft<I> {
    at: usize,
    location: KeyLocation<I>,
    permits: u64,
    spared: u64,
    ledger: Box<Ledger>,
}

impl<I: Id, C: Clock> fmt::Debug for JointKey<'_, I, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointKey")
            .field("id", &self.location.id)
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}

impl<I: Id, C: Clock + Clone> JointLimit for JointKey<'_, I, C> {
    fn lock(&self, guarded_by: GuardedBy) -> Result<Box<dyn Lock + '_>, KeyedError> {
        let Self { table, permits, spared, .. } = *self;
        Ok(match table.guarding_limiter(&self.location, guarded_by)? {
            Some((limiter, twice)) => Box::new(JointLimiter { limiter, permits, spared, twice }),
            None => Box::new(Self { ..*self }),
        })
    }
}

impl<I: Id, C: Clock + Clone> Lock for JointKey<'_, I, C> {
    fn order(&self) -> Order {
        (SHARD, self.table.address(self.location.shard))
    }

    fn request(&self) -> LockedRequest {
        let word = |index| self.location.id.word(index);
        let Self { permits, spared, location, .. } = *self;
        LockedRequest { permits, spared, key: [word(0), word(1)], tier: location.tier }
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

impl<I: Id, C: Clock + Clone> ShardLockGuard<'_, I, C> {
    fn section(&mut self, location: KeyLocation<I>) -> KeySection<'_, I, C> {
        KeySection {
            now_ns: self.now_ns,
            ..KeySection::at(self.table, &mut self.entries, location, &mut self.late)
        }
    }
}

impl<I: Id, C: Clock + Clone> Held for ShardLockGuard<'_, I, C> {
    fn add(&mut self, at: usize, wanted: LockedRequest) -> Result<(), EnterError> {
        let location = self.table.location(I::of(wanted.key), wanted.tier);
        if self.drafts.iter().any(|draft| draft.location.id == location.id) {
            return Err(EnterError::Failed(KeyedError::Duplicate));
        }
        let mut section = self.section(location);
        let lent = section.lend();
        // The key may have been decided at a later reading of the clock.
        self.now_ns = section.now_ns;
        let ledger = match lent {
            Lent::Ledger(ledger) => ledger,
            Lent::Elsewhere => return Err(EnterError::Moved),
            Lent::TableFull => return Err(EnterError::Spilled),
        };
        let LockedRequest { permits, spared, .. } = wanted;
        self.drafts.push(Draft { at, location, permits, spared, ledger });
        Ok(())
    }

    fn opens(&mut self, after_ns: u64, each: &mut dyn FnMut(Opens)) {
        for draft in &self.drafts {
            let Some(permits) = NonZeroU64::new(draft.permits) else { continue };
            let permits = permits.saturating_add(draft.spared);
            each(Opens::of(draft.at, (&draft.ledger, self.now_ns), after_ns, permits));
        }
    }

    fn take(&mut self, grants: &mut Vec<(usize, Grant)>) {
        for draft in &mut self.drafts {
            let taken = draft.ledger.try_acquire(self.now_ns, draft.permits);
            if let Ok(Verdict::Granted(grant)) = taken {
                grants.push((draft.at, Grant::as_promised(&grant)));
            }
        }
    }

    fn hold(&mut self, ttl_ns: u64, with_status: bool, holds: &mut Vec<(usize, HeldStatus)>) {
        for draft in &mut self.drafts {
            let held = draft.ledger.try_hold(self.now_ns, draft.permits, ttl_ns);
            if let Ok(HoldVerdict::Held(hold)) = held {
                let status = with_status.then(|| Status::of_ledger(&draft.ledger, self.now_ns));
                holds.push((draft.at, (hold, status)));
            }
        }
    }

    fn release<'a>(mut self: Box<Self>) -> AfterUnlock<'a>
    where
        Self: 'a,
    {
        for draft in std::mem::take(&mut self.drafts) {
            self.section(draft.location).give_back(draft.ledger);
        }
        let Self { table, entries, late, .. } = *self;
        drop(entries);
        Box::new(move || table.update_limiters(late))
    }
}
