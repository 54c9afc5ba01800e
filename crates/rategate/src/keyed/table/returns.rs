//! Permits of a key that come back.

use std::sync::OnceLock;

use rategate_core::debt::{Charged, Debt};
use rategate_core::ledger::Ledger;
use rategate_core::policy::Ending;

use super::section::{KeyLocation, KeySection, SectionResult};
use crate::clock::Clock;
use crate::error::KeyedError;
use crate::keyed::key::Id;
use crate::keyed::projection::Projection;
use crate::limiter::Limiter;
use crate::sync::Ordering;

use super::{Table, tier_word};

impl<I: Id, C: Clock + Clone> Table<I, C> {
    pub(in crate::keyed) fn credit(
        &self,
        location: &KeyLocation<I>,
        permits: u64,
    ) -> Result<u64, KeyedError> {
        match self.section_in_order(location, |section| section.credit(permits))? {
            SectionResult::Here(back) => Ok(back),
            SectionResult::Delegate(limiter) => Ok(limiter.credit(permits)?),
            SectionResult::TableFull | SectionResult::NoBytes => Err(self.table_full()),
        }
    }

    pub(in crate::keyed) fn reset(&self, location: &KeyLocation<I>) -> Result<bool, KeyedError> {
        match self.section(location, |section: &mut KeySection<'_, I, C>| section.reset())? {
            SectionResult::Here(was_used) => Ok(was_used),
            SectionResult::Delegate(limiter) => Ok(limiter.reset()?),
            SectionResult::TableFull | SectionResult::NoBytes => Err(self.table_full()),
        }
    }

    #[inline]
    pub(in crate::keyed) fn charge<B: Projection>(
        &self,
        location: &KeyLocation<I>,
        permits: u64,
    ) -> Result<B::Charged, KeyedError> {
        let debt = self.debt_terms();
        if let Some(slots) = &self.slots {
            let home = slots.home(location.shard, location.hash);
            let (tier, read_ns) = (tier_word(location.tier), || self.clock.now_ns());
            let charge = (permits, debt);
            if let Some((charged, projection)) =
                slots.charge(home, location.id, tier, read_ns, charge, B::of_value)
            {
                return Ok(projection.with_charged(charged));
            }
        }
        self.charge_locked::<B>(location, permits, debt)
    }

    #[cold]
    fn charge_locked<B: Projection>(
        &self,
        location: &KeyLocation<I>,
        permits: u64,
        debt: Debt,
    ) -> Result<B::Charged, KeyedError> {
        match self.section(location, |section| section.charge::<B>(permits, debt))?? {
            SectionResult::Here(charged) => Ok(charged),
            SectionResult::Delegate(limiter) => Ok(B::of_charge(&limiter, permits, debt)?),
            SectionResult::NoBytes => Err(self.table_full()),
            SectionResult::TableFull => {
                if let Some(shared) = self.spilled(location.tier)? {
                    return Ok(B::of_charge(shared, permits, debt)?);
                }
                // Unlimited keys are not counted.
                let now_ns = self.clock.now_ns();
                let fresh = Ledger::new(self.policy(location.tier)?, now_ns);
                let charged = Charged { booked: 0, forgiven: permits, debt: 0 };
                let projection = B::of(&fresh, now_ns);
                Ok(projection.with_charged(charged))
            }
        }
    }

    pub(super) fn debt_terms(&self) -> Debt {
        Debt::from_bits(self.debt.load(Ordering::Relaxed))
    }

    pub(in crate::keyed) fn end(
        &self,
        location: &KeyLocation<I>,
        permits: u64,
        how: Ending,
    ) -> Result<bool, KeyedError> {
        let on_limiter = |limiter: &Limiter<C>| limiter.shared().end(permits, how);
        let ended = self.section(location, |section| section.end_operations(permits, how))?;
        let (counts, is_known) = match ended {
            SectionResult::Here(counted) => counted,
            SectionResult::Delegate(limiter) => return Ok(on_limiter(&limiter)?),
            SectionResult::TableFull | SectionResult::NoBytes => return Err(KeyedError::TableFull),
        };
        // An unknown key has nothing in flight here, so it took its permits from the shared limit.
        let shared = self.spill.get(location.tier).and_then(OnceLock::get);
        match shared.filter(|_| counts && !is_known) {
            Some(shared) => Ok(on_limiter(shared)?),
            None => Ok(counts),
        }
    }
}
