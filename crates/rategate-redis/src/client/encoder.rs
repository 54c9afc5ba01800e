//! Requests that make sense, as commands, and the slots they belong to.

use rategate::store::{LeaseId, StoreRequest};
use rategate_core::error::ExceedsCapacity;

use super::call::Shape;
use super::item::Item;
use crate::batch::{Batch, Extra};
use crate::charge::{self, Charges};
use crate::command::{Command, Settings};
use crate::error::RequestError;
use crate::key::KeySpace;
use crate::plan::Plan;
use crate::reserve::{self, Ends, Estimates};
use crate::returns::{self, Refunds};

/// The settings that all calls of a driver share.
pub(crate) struct Encoder {
    pub(crate) keys: KeySpace,
    pub(crate) is_within_memory: bool,
    pub(crate) is_cluster: bool,
}

impl Encoder {
    /// Returns the slot that all keys of a request are in.
    pub(crate) fn slot_of(&self, request: &StoreRequest<Plan>) -> u16 {
        self.keys.key(request.key()).slot()
    }

    /// Returns the command of a call, for a server whose clock shows about `around_us`.
    pub(crate) fn command(
        &self,
        items: &[Item],
        shape: Shape,
        around_us: u64,
    ) -> Result<Command, RequestError> {
        let settings = Settings::around_us(around_us);
        match shape {
            Shape::Refund => return self.refunds(items, settings),
            Shape::Charge => return self.charges(items, settings),
            Shape::Reserve => return self.estimates(items, settings),
            Shape::End => return self.ends(items, settings),
            Shape::Single | Shape::Decide | Shape::Peek => {}
        }
        let mut batch = Batch::new();
        for item in items {
            match &item.request {
                StoreRequest::Decide { plan, key, permits, lease } => {
                    let extra = Extra { request: None, lease: *lease };
                    batch.try_acquire(plan, &self.keys.key(key), permits.get(), extra)?;
                }
                StoreRequest::Debit { plan, key, permits } => {
                    let key = self.keys.key(key);
                    batch.debit(plan, &key, permits.get(), Extra::default())?;
                }
                StoreRequest::Peek { plan, key, permits } => {
                    // A peek holds nothing, so any name will do.
                    let extra = Extra { request: None, lease: Some(LeaseId([0; 16])) };
                    batch.try_acquire(plan, &self.keys.key(key), permits.get(), extra)?;
                }
                other => return self.single(other, settings),
            }
        }
        Ok(match shape {
            Shape::Peek => batch.peek(settings),
            _ if self.is_within_memory => batch.decide(settings).within_memory(),
            _ => batch.decide(settings),
        })
    }

    fn refunds(&self, items: &[Item], settings: Settings) -> Result<Command, RequestError> {
        let mut refunds = Refunds::new();
        for item in items {
            let StoreRequest::Refund { plan, key, receipt, permits } = &item.request else {
                continue;
            };
            refunds.push(plan, &self.keys.key(key), receipt, permits.get())?;
        }
        Ok(refunds.command(settings))
    }

    fn charges(&self, items: &[Item], settings: Settings) -> Result<Command, RequestError> {
        let mut charges = Charges::new();
        for item in items {
            let StoreRequest::Charge { plan, key, permits, debt, once } = &item.request else {
                continue;
            };
            charges.push(plan, &self.keys.key(key), *permits, (*debt, *once))?;
        }
        let command = charges.command(settings);
        Ok(if self.is_within_memory { command.within_memory() } else { command })
    }

    fn estimates(&self, items: &[Item], settings: Settings) -> Result<Command, RequestError> {
        let mut estimates = Estimates::new();
        for item in items {
            let StoreRequest::Reserve { plan, key, permits, id, ttl_ns, spared } = &item.request
            else {
                continue;
            };
            let key = self.keys.key(key);
            estimates.push(plan, &key, (permits.get(), *spared), (*id, *ttl_ns))?;
        }
        let command = estimates.command(settings);
        Ok(if self.is_within_memory { command.within_memory() } else { command })
    }

    fn ends(&self, items: &[Item], settings: Settings) -> Result<Command, RequestError> {
        let mut ends = Ends::new();
        for item in items {
            let StoreRequest::End { plan, key, id, end, debt } = &item.request else { continue };
            ends.push(plan, &self.keys.key(key), *id, *end, *debt)?;
        }
        Ok(ends.command(settings))
    }

    fn single(
        &self,
        request: &StoreRequest<Plan>,
        settings: Settings,
    ) -> Result<Command, RequestError> {
        match request {
            StoreRequest::Credit { plan, key, permits, once } => {
                returns::credit(plan, &self.keys.key(key), permits.get(), *once, settings)
            }
            StoreRequest::Release { plan, key, permits, lease } => {
                let key = self.keys.key(key);
                returns::release(plan, &key, *lease, permits.get(), settings)
            }
            StoreRequest::Renew { plan, key, permits, lease } => {
                let key = self.keys.key(key);
                returns::renew(plan, &key, *lease, permits.get(), settings)
            }
            StoreRequest::Reset { plan, key } => Ok(returns::reset(plan, &self.keys.key(key))),
            _ => Err(RequestError::NoPermits),
        }
    }
}

/// Checks that a request makes sense, so that the store will answer it.
pub(crate) fn check(request: &StoreRequest<Plan>) -> Result<(), RequestError> {
    let (plan, permits) = match request {
        StoreRequest::Decide { plan, permits, lease, .. } => {
            if plan.holds() && lease.is_none() {
                return Err(RequestError::NoLease);
            }
            (plan, *permits)
        }
        StoreRequest::Peek { plan, permits, .. } => (plan, *permits),
        StoreRequest::Release { plan, permits, .. } | StoreRequest::Renew { plan, permits, .. } => {
            if !plan.holds() {
                return Err(RequestError::NoLease);
            }
            (plan, *permits)
        }
        StoreRequest::Debit { plan, .. }
        | StoreRequest::Refund { plan, .. }
        | StoreRequest::Credit { plan, .. }
            if plan.holds() =>
        {
            return Err(RequestError::HeldByLease);
        }
        StoreRequest::Refund { plan, receipt, .. } if !plan.is_receipt_of(receipt) => {
            return Err(RequestError::OtherPlan);
        }
        StoreRequest::Debit { plan, permits, .. } | StoreRequest::Refund { plan, permits, .. } => {
            (plan, *permits)
        }
        StoreRequest::Charge { plan, debt, .. } => {
            return charge::check(plan, *debt);
        }
        StoreRequest::Reserve { plan, permits, ttl_ns, spared, .. } => {
            reserve::lasts_us(*ttl_ns)?;
            (plan, permits.saturating_add(*spared))
        }
        StoreRequest::End { plan, debt, .. } => {
            return reserve::check_end(plan, *debt);
        }
        StoreRequest::Credit { .. } | StoreRequest::Reset { .. } => return Ok(()),
    };
    if permits.get() > plan.maximum() {
        let exceeds = ExceedsCapacity::new(permits.get(), plan.maximum());
        return Err(RequestError::Exceeds(exceeds));
    }
    Ok(())
}
