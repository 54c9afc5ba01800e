//! Estimates of a key that are held until the true cost is known.

use std::sync::Arc;

use rategate_core::concurrent::HasLockFree;
use rategate_core::debt::Charged;
use rategate_core::holds::{self, Committed};

use super::Table;
use crate::clock::Clock;
use crate::decision::Denial;
use crate::error::Closed;
use crate::hold::{Hold, KeyName, KeysWithHolds};
use crate::keyed::error::KeyedError;
use crate::keyed::key::Id;
use crate::keyed::section::{KeyLocation, SectionResult};
use crate::limiter::Limiter;

impl<I: Id, P: HasLockFree, C: Clock + Clone> Table<I, P, C>
where
    Self: Send + Sync + 'static,
{
    pub(in crate::keyed) fn try_hold(
        self: &Arc<Self>,
        location: &KeyLocation<I>,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<Result<Hold<P, C>, Denial>, KeyedError> {
        let of = |limiter: &Limiter<P, C>| Ok(limiter.try_hold_ns(permits, ttl_ns)?);
        match self.section(location, |section| section.try_hold(permits, ttl_ns))?? {
            SectionResult::Here(Ok(hold)) => {
                Ok(Ok(Hold::of_key(Arc::<Self>::clone(self), location.name(), hold)))
            }
            SectionResult::Here(Err(denial)) => Ok(Err(Denial::of(&denial))),
            SectionResult::Delegate(limiter) => of(&limiter),
            SectionResult::NoBytes => Err(self.table_full()),
            SectionResult::TableFull => of(&self.spill(location.tier)?),
        }
    }
}

impl<I: Id, P: HasLockFree, C: Clock + Clone> KeysWithHolds for Table<I, P, C>
where
    Self: Send + Sync,
{
    fn commit(&self, name: KeyName, hold: holds::Hold, actual: u64) -> Result<Committed, Closed> {
        let location = self.named(name);
        let debt = self.debt_terms();
        let committed =
            self.section_in_order(&location, |section| section.commit(hold, actual, debt));
        let late = || {
            // The key has recovered and is evicted, so the hold had ended.
            let charged = if actual > 0 { self.charge::<()>(&location, actual).ok() } else { None };
            Committed::Late(
                charged.unwrap_or_else(|| Charged { forgiven: actual, ..Charged::default() }),
            )
        };
        match committed {
            Ok(Some(SectionResult::Here(committed))) => Ok(committed),
            Ok(Some(SectionResult::Delegate(limiter))) => limiter.commit_held(hold, actual),
            Ok(None | Some(SectionResult::TableFull | SectionResult::NoBytes)) | Err(_) => {
                Ok(late())
            }
        }
    }
}
