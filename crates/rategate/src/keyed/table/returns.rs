//! Permits of a key that come back.

use std::sync::OnceLock;

use rategate_core::concurrent::HasLockFree;
use rategate_core::limit::Limit;
use rategate_core::verdict::Settled;

use crate::clock::Clock;
use crate::decision::Grant;
use crate::error::Closed;
use crate::keyed::error::KeyedError;
use crate::keyed::key::Id;
use crate::keyed::section::{KeyLocation, KeySection, SectionResult};
use crate::limiter::Limiter;

use super::Table;

impl<I: Id, P: HasLockFree, C: Clock + Clone> Table<I, P, C> {
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
        match self.section(location, |section: &mut KeySection<'_, I, P, C>| section.reset())? {
            SectionResult::Here(was_used) => Ok(was_used),
            SectionResult::Delegate(limiter) => Ok(limiter.reset()?),
            SectionResult::TableFull | SectionResult::NoBytes => Err(self.table_full()),
        }
    }

    pub(in crate::keyed) fn refund(
        &self,
        location: &KeyLocation<I>,
        grant: &Grant,
        permits: u64,
    ) -> Result<u64, KeyedError> {
        if let Some(shared) = self.spill_of(location.tier, grant) {
            return Ok(shared.refund(grant, permits)?);
        }
        match self
            .section_in_order(location, |section| section.refund(&grant.as_granted(), permits))?
        {
            SectionResult::Here(back) => Ok(back),
            SectionResult::Delegate(limiter) => Ok(limiter.refund(grant, permits)?),
            SectionResult::TableFull | SectionResult::NoBytes => Err(self.table_full()),
        }
    }

    pub(in crate::keyed) fn settle(
        &self,
        location: &KeyLocation<I>,
        grant: &Grant,
        actual: u64,
    ) -> Result<Settled, KeyedError> {
        if let Some(shared) = self.spill_of(location.tier, grant) {
            return Ok(shared.settle(grant, actual)?);
        }
        match self
            .section_in_order(location, |section| section.settle(&grant.as_granted(), actual))??
        {
            SectionResult::Here(settled) => Ok(settled),
            SectionResult::Delegate(limiter) => Ok(limiter.settle(grant, actual)?),
            SectionResult::TableFull | SectionResult::NoBytes => Err(self.table_full()),
        }
    }

    pub(in crate::keyed) fn on_flight(
        &self,
        location: &KeyLocation<I>,
        act: impl FnOnce(&mut dyn Limit, u64) -> bool,
        on_limiter: impl FnOnce(&Limiter<P, C>) -> Result<bool, Closed>,
    ) -> Result<bool, KeyedError> {
        let (counts, is_known) = match self.section(location, |section| section.on_flight(act))? {
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
