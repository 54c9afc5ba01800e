//! Estimates of a key that are held until the true cost is known.

use std::sync::Arc;

use rategate_core::concurrent::HasLockFree;
use rategate_core::debt::Charged;
use rategate_core::holds::{self, Committed, HoldVerdict};
use rategate_core::verdict::Settled;

use super::Table;
use crate::clock::Clock;
use crate::decision::Denial;
use crate::error::Closed;
use crate::hold::{Hold, KeyName, KeysWithHolds};
use crate::keyed::error::KeyedError;
use crate::keyed::key::Id;
use crate::keyed::section::{KeyLocation, SectionResult};
use crate::limiter::Limiter;
use crate::status::Status;

/// A hold or a denial, with the status of the limit after that.
pub(in crate::keyed) type HeldWithStatus<P, C> = (Result<Hold<P, C>, Denial>, Status);

impl<I: Id, P: HasLockFree, C: Clock + Clone> Table<I, P, C>
where
    Self: Send + Sync + 'static,
{
    pub(in crate::keyed) fn try_hold(
        self: &Arc<Self>,
        location: &KeyLocation<I>,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<HeldWithStatus<P, C>, KeyedError> {
        let of = |limiter: &Limiter<P, C>| {
            Ok((limiter.try_hold_ns(permits, ttl_ns)?, limiter.status()?))
        };
        match self.section(location, |section| section.try_hold(permits, ttl_ns))?? {
            SectionResult::Here((verdict, status)) => {
                let held = match verdict {
                    HoldVerdict::Held(hold) => {
                        Ok(Hold::of_key(Arc::<Self>::clone(self), location.name(), hold))
                    }
                    HoldVerdict::Denied(denial) => Err(Denial::of(denial)),
                };
                Ok((held, status))
            }
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
    fn commit(
        &self,
        name: KeyName,
        hold: holds::Hold,
        actual: u64,
    ) -> Result<(Committed, Status), Closed> {
        let location = self.named(name);
        let debt = self.debt_terms();
        let committed =
            self.section_in_order(&location, |section| section.commit(hold, actual, debt));
        match committed {
            Ok(Some(SectionResult::Here(committed))) => return Ok(committed),
            Ok(Some(SectionResult::Delegate(limiter))) => return limiter.commit_held(hold, actual),
            Ok(None | Some(SectionResult::TableFull | SectionResult::NoBytes)) | Err(_) => {}
        }
        // The key has recovered and is evicted, so the hold had ended; or it was of no permits, and
        // left no trace.
        let none = || (Charged { forgiven: actual, ..Charged::default() }, Status::blocked(0));
        let charged = if actual > 0 {
            self.charge::<Status>(&location, actual).unwrap_or_else(|_| none())
        } else {
            let status = self.status(&location, self.clock.now_ns());
            (Charged::default(), status.unwrap_or_else(|_| none().1))
        };
        let (Charged { booked, forgiven, .. }, status) = charged;
        let is_over = hold.permits > 0 || self.clock.now_ns() >= hold.end_ns;
        let committed = match actual {
            _ if is_over => Committed::Late(charged.0),
            0 => Committed::InTime(Settled::Even),
            _ => Committed::InTime(Settled::Owed { permits: booked, forgiven }),
        };
        Ok((committed, status))
    }
}
