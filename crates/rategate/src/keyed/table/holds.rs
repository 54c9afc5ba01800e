//! Estimates of a key that are held until the true cost is known.

use std::sync::Arc;

use rategate_core::debt::Charged;
use rategate_core::holds::{self, Committed, HoldVerdict};
use rategate_core::verdict::Settled;

use super::Table;
use super::section::{KeyLocation, SectionResult};
use crate::clock::Clock;
use crate::decision::Denial;
use crate::error::Closed;
use crate::error::KeyedError;
use crate::hold::{Hold, KeyName, KeysWithHolds};
use crate::keyed::key::Id;
use crate::keyed::projection::Projection;
use crate::limiter::Limiter;
use crate::status::Status;

/// A hold or a denial.
type HeldOrDenied<C> = Result<Hold<C>, Denial>;

/// A hold or a denial, with the status of the limit after that.
pub(in crate::keyed) type HeldWithStatus<C> = (HeldOrDenied<C>, Status);

/// The end of a hold in a table.
enum Ended<B, C> {
    Here(Committed, B),
    /// The key has a limiter, which keeps the hold.
    Delegate(Limiter<C>),
    /// The key is unknown, or there is no capacity for it.
    Gone,
}

impl<I: Id, C: Clock + Clone> Table<I, C>
where
    Self: Send + Sync + 'static,
{
    pub(in crate::keyed) fn try_hold(
        self: &Arc<Self>,
        location: &KeyLocation<I>,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<HeldOrDenied<C>, KeyedError> {
        let of = |limiter: &Limiter<C>| Ok((limiter.try_hold_ns(permits, ttl_ns)?, ()));
        Ok(self.hold::<()>(location, (permits, ttl_ns), of)?.0)
    }

    pub(in crate::keyed) fn try_hold_with_status(
        self: &Arc<Self>,
        location: &KeyLocation<I>,
        permits: u64,
        ttl_ns: u64,
    ) -> Result<HeldWithStatus<C>, KeyedError> {
        self.hold::<Status>(location, (permits, ttl_ns), |limiter| {
            Ok((limiter.try_hold_ns(permits, ttl_ns)?, limiter.status()?))
        })
    }

    fn hold<B: Projection>(
        self: &Arc<Self>,
        location: &KeyLocation<I>,
        (permits, ttl_ns): (u64, u64),
        of: impl Fn(&Limiter<C>) -> Result<(HeldOrDenied<C>, B), KeyedError>,
    ) -> Result<(HeldOrDenied<C>, B), KeyedError> {
        match self.section(location, |section| section.try_hold::<B>(permits, ttl_ns))?? {
            SectionResult::Here((verdict, projection)) => {
                let held = match verdict {
                    HoldVerdict::Held(hold) => {
                        Ok(Hold::of_key(Arc::<Self>::clone(self), location.name(), hold))
                    }
                    HoldVerdict::Denied(denial) => Err(Denial::of(denial)),
                };
                Ok((held, projection))
            }
            SectionResult::Delegate(limiter) => of(&limiter),
            SectionResult::NoBytes => Err(self.table_full()),
            SectionResult::TableFull => of(&self.spill(location.tier)?),
        }
    }
}

impl<I: Id, C: Clock + Clone> Table<I, C> {
    fn end_hold<B: Projection>(
        &self,
        location: &KeyLocation<I>,
        hold: holds::Hold,
        actual: u64,
    ) -> Ended<B, C> {
        let debt = self.debt_terms();
        let ended =
            self.section_in_order(location, |section| section.commit::<B>(hold, actual, debt));
        match ended {
            Ok(Some(SectionResult::Here((committed, projection)))) => {
                Ended::Here(committed, projection)
            }
            Ok(Some(SectionResult::Delegate(limiter))) => Ended::Delegate(limiter),
            Ok(None | Some(SectionResult::TableFull | SectionResult::NoBytes)) | Err(_) => {
                Ended::Gone
            }
        }
    }

    /// Ends a hold of a key that has recovered and is evicted, so that the hold had ended; or one
    /// of no permits, which left no trace.
    fn end_without_key(
        &self,
        location: &KeyLocation<I>,
        hold: holds::Hold,
        actual: u64,
    ) -> Committed {
        let charged = match actual {
            0 => Charged::default(),
            _ => match self.charge::<()>(location, actual) {
                Ok(charged) => charged,
                Err(KeyedError::CountsInFlight) => Charged::default(),
                Err(_) => Charged { forgiven: actual, ..Charged::default() },
            },
        };
        let is_over = hold.permits > 0 || self.clock.now_ns() >= hold.end_ns;
        match actual {
            _ if is_over => Committed::Late(charged),
            0 => Committed::InTime(Settled::Even),
            _ => {
                let Charged { booked: permits, forgiven, .. } = charged;
                Committed::InTime(Settled::Owed { permits, forgiven })
            }
        }
    }
}

impl<I: Id, C: Clock + Clone> KeysWithHolds for Table<I, C>
where
    Self: Send + Sync,
{
    fn commit(&self, name: KeyName, hold: holds::Hold, actual: u64) -> Result<Committed, Closed> {
        let location = self.named(name);
        match self.end_hold::<()>(&location, hold, actual) {
            Ended::Here(committed, ()) => Ok(committed),
            Ended::Delegate(limiter) => limiter.commit_held(hold, actual, self.debt_terms()),
            Ended::Gone => Ok(self.end_without_key(&location, hold, actual)),
        }
    }

    fn keep(&self, name: KeyName, hold: holds::Hold) {
        let location = self.named(name);
        let kept = self.section_in_order(&location, |section| section.keep(hold));
        if let Ok(Some(SectionResult::Delegate(limiter))) = kept {
            limiter.held(hold).keep();
        }
    }

    fn commit_with_status(
        &self,
        name: KeyName,
        hold: holds::Hold,
        actual: u64,
    ) -> Result<(Committed, Status), Closed> {
        let location = self.named(name);
        let committed = match self.end_hold::<Status>(&location, hold, actual) {
            Ended::Here(committed, status) => return Ok((committed, status)),
            Ended::Delegate(limiter) => {
                let committed = limiter.commit_held(hold, actual, self.debt_terms())?;
                return Ok((committed, limiter.status()?));
            }
            Ended::Gone => self.end_without_key(&location, hold, actual),
        };
        let status = self.status(&location, self.clock.now_ns());
        Ok((committed, status.unwrap_or_else(|_| Status::blocked(0))))
    }
}
