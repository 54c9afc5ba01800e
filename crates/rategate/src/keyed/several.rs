//! A key's part in a joint acquisition of several limits, decided on a copy of its state.
//!
//! The key's shard stays locked until the whole is decided.

use std::fmt;
use std::num::NonZeroU64;

use rategate_core::concurrent::Twinned;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::verdict::{Refusal, Verdict};

use super::entries::Entries;
use super::error::KeyedError;
use super::key::Id;
use super::table::Table;
use super::turn::{Copied, Late, Place, Turn};
use crate::clock::Clock;
use crate::decision::Grant;
use crate::several::{
    After, Held, LimiterPart, Lock, NotHeld, Order, Part, SHARD, Wanted, opens_after,
};
use crate::sync::MutexGuard;

/// A key of a table, and the permits requested of it.
pub(super) struct KeyPart<'a, I: Id, P: Twinned, C: Clock> {
    pub(super) table: &'a Table<I, P, C>,
    pub(super) place: Place<I>,
    pub(super) permits: u64,
}

/// A locked shard, and its keys that take part in the request.
struct ShardHeld<'a, I: Id, P: Twinned, C: Clock> {
    table: &'a Table<I, P, C>,
    entries: MutexGuard<'a, Entries<I, P, C>>,
    now_ns: u64,
    drafts: Vec<Draft<I, P>>,
    late: Vec<Late<I, P, C>>,
}

/// A copy of a key's limit, before the decision.
struct Draft<I, P: Twinned> {
    at: usize,
    place: Place<I>,
    permits: u64,
    ledger: Ledger<P>,
}

impl<I: Id, P: Twinned, C: Clock> fmt::Debug for KeyPart<'_, I, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPart")
            .field("id", &self.place.id)
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}

impl<I: Id, P: Twinned, C: Clock + Clone> Part for KeyPart<'_, I, P, C> {
    fn lock(&self, is_spilled: bool) -> Result<Box<dyn Lock + '_>, KeyedError> {
        let permits = self.permits;
        if is_spilled {
            // Two parts of one table that find no capacity could share one limit, but not both be
            // parts of it.
            let (limiter, twice) = (self.table.spill(self.place.tier)?, KeyedError::TableFull);
            return Ok(Box::new(LimiterPart { limiter, permits, twice }));
        }
        Ok(match self.table.limiter_in_use(&self.place)? {
            Some(limiter) => {
                Box::new(LimiterPart { limiter, permits, twice: KeyedError::AskedTwice })
            }
            None => Box::new(Self { ..*self }),
        })
    }
}

impl<I: Id, P: Twinned, C: Clock + Clone> Lock for KeyPart<'_, I, P, C> {
    fn order(&self) -> Order {
        (SHARD, self.table.address(self.place.shard))
    }

    fn request(&self) -> Wanted {
        let word = |index| self.place.id.word(index);
        Wanted { permits: self.permits, key: [word(0), word(1)], tier: self.place.tier }
    }

    fn hold(&self) -> Result<Box<dyn Held + '_>, KeyedError> {
        let table = self.table;
        let mut entries = table.lock(self.place.shard);
        let now_ns = table.clock.now_ns();
        let mut late = Vec::new();
        let now_ns = Turn::at(table, &mut entries, self.place, &mut late).begin(now_ns);
        Ok(Box::new(ShardHeld { table, entries, now_ns, drafts: Vec::new(), late }))
    }
}

impl<I: Id, P: Twinned, C: Clock + Clone> ShardHeld<'_, I, P, C> {
    fn turn(&mut self, place: Place<I>) -> Turn<'_, I, P, C> {
        Turn {
            now_ns: self.now_ns,
            ..Turn::at(self.table, &mut self.entries, place, &mut self.late)
        }
    }
}

impl<I: Id, P: Twinned, C: Clock + Clone> Held for ShardHeld<'_, I, P, C> {
    fn add(&mut self, at: usize, wanted: Wanted) -> Result<(), NotHeld> {
        let place = self.table.place(I::of(wanted.key), wanted.tier);
        if self.drafts.iter().any(|draft| draft.place.id == place.id) {
            return Err(NotHeld::Failed(KeyedError::AskedTwice));
        }
        let ledger = match self.turn(place).copy() {
            Copied::Ledger(ledger) => *ledger,
            Copied::Elsewhere => return Err(NotHeld::Moved),
            Copied::NoRoom => return Err(NotHeld::Spilled),
        };
        self.drafts.push(Draft { at, place, permits: wanted.permits, ledger });
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
            self.turn(draft.place).put(draft.ledger);
        }
    }

    fn release<'a>(mut self: Box<Self>) -> After<'a>
    where
        Self: 'a,
    {
        for draft in std::mem::take(&mut self.drafts) {
            self.turn(draft.place).leave();
        }
        let Self { table, entries, late, .. } = *self;
        drop(entries);
        Box::new(move || table.give_numbers(late))
    }
}
