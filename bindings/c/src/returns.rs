//! Permits that come back to a limiter, or are counted after their use.

#![allow(unsafe_code, reason = "names are exported")]

use std::time::Duration;

use rategate::Grant;
use rategate::adaptive::Outcome;
use rategate::charge::Debt;
use rategate_ffi::{Receipt, ReturnError};

use crate::decision::{Charge, Decision, Settlement};
use crate::failure::{Failure, RATEGATE_DENIED, RATEGATE_GRANTED};
use crate::limiter::{Limiter, fill, with};
use crate::raw::{Filled, Out, put};

/// An operation that was served, be it with an error.
pub const RATEGATE_SERVED: i32 = 0;
/// An operation that was refused, or took too long.
pub const RATEGATE_DROPPED: i32 = 1;
/// An operation that says nothing about its server, such as one that was cancelled.
pub const RATEGATE_IGNORED: i32 = 2;

/// Brings `permits` of a grant back, which were not used. Writes as many as came back.
///
/// Each permit comes back once, which `grant` remembers, and to the limiter that granted it: all
/// else is `RATEGATE_INVALID`. A copy of the structure does not know what came back by another.
/// Fewer may come back: as many as the limit can prove unused.
/// `refunded` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_refund(
    limiter: Option<&Limiter>,
    grant: Filled<Decision>,
    permits: u64,
    refunded: Out<'_, u64>,
) -> i32 {
    with(limiter, |limiter| {
        put(
            refunded,
            returned(&grant, limiter.id(), permits, |grant| Ok(limiter.refund(grant, permits)?))?,
        );
        Ok(RATEGATE_GRANTED)
    })
}

/// Corrects a grant to the permits that were really used: the rest comes back, or more is charged.
///
/// It is for each grant once, none of which was refunded, as for a refund. `settlement` may be
/// null.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_settle(
    limiter: Option<&Limiter>,
    grant: Filled<Decision>,
    used: u64,
    settlement: Filled<Settlement>,
) -> i32 {
    with(limiter, |limiter| {
        let settle = |grant: &Grant| Ok(limiter.settle(grant, used)?.into());
        fill(&settlement, || ended(&grant, limiter.id(), settle))
    })
}

/// Brings permits of a grant back, and writes to the grant that they have come.
pub(crate) fn returned(
    decision: &Filled<Decision>,
    limiter: u64,
    permits: u64,
    refund: impl FnOnce(&Grant) -> Result<u64, Failure>,
) -> Result<u64, Failure> {
    with_receipt(decision, |grant, receipt| {
        receipt.refund(limiter, grant.permits(), permits, || refund(grant))
    })
}

/// Settles or releases a grant, and writes to it that it has ended.
pub(crate) fn ended<T>(
    decision: &Filled<Decision>,
    limiter: u64,
    end: impl FnOnce(&Grant) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_receipt(decision, |grant, receipt| receipt.end(limiter, || end(grant)))
}

fn with_receipt<T>(
    decision: &Filled<Decision>,
    call: impl FnOnce(&Grant, &mut Receipt) -> Result<Result<T, Failure>, ReturnError>,
) -> Result<T, Failure> {
    let whole = decision.read("grant")?;
    let grant = whole.grant()?;
    let mut receipt = Receipt { limiter: whole.limiter, returned: whole.returned };
    let done = call(&grant, &mut receipt).map_err(Failure::Return)??;
    decision.put(&Decision { returned: receipt.returned, ..whole });
    Ok(done)
}

/// Charges `permits` that have been used already, whether they fit or not.
///
/// `charge` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_charge(
    limiter: Option<&Limiter>,
    permits: u64,
    charge: Filled<Charge>,
) -> i32 {
    with(limiter, |limiter| fill(&charge, || Ok(limiter.charge(permits)?.into())))
}

/// Sets how debts of charges end: with their window, or paid by later windows if `is_carried` is
/// not 0. What would last longer than `max_ns` is forgiven.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_set_debt(
    limiter: Option<&Limiter>,
    is_carried: i32,
    max_ns: u64,
) -> i32 {
    with(limiter, |limiter| {
        drop(limiter.clone().with_debt(debt(is_carried, max_ns)));
        Ok(RATEGATE_GRANTED)
    })
}

pub(crate) fn debt(is_carried: i32, max_ns: u64) -> Debt {
    let debt = if is_carried == 0 { Debt::FORGOTTEN } else { Debt::CARRIED };
    debt.at_most(Duration::from_nanos(max_ns))
}

/// Writes by how many permits the limit is exceeded, after charges.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_debt(limiter: Option<&Limiter>, debt: Out<'_, u64>) -> i32 {
    with(limiter, |limiter| {
        put(debt, limiter.debt()?);
        Ok(RATEGATE_GRANTED)
    })
}

/// Ends operations in flight. Returns 0 if no policy counts them, else 1.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_release(limiter: Option<&Limiter>, permits: u64) -> i32 {
    with(limiter, |limiter| Ok(i32::from(limiter.release(permits)?)))
}

/// Ends the operations in flight of a grant, whose outcome an adaptive limit follows. Returns 0 if
/// no policy counts them, else 1.
///
/// `outcome` is `RATEGATE_SERVED`, `RATEGATE_DROPPED` or `RATEGATE_IGNORED`. End each grant once.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_release_with_outcome(
    limiter: Option<&Limiter>,
    grant: Filled<Decision>,
    outcome: i32,
) -> i32 {
    with(limiter, |limiter| {
        let outcome = match outcome {
            RATEGATE_SERVED => Outcome::Served,
            RATEGATE_DROPPED => Outcome::Dropped,
            RATEGATE_IGNORED => Outcome::Ignored,
            other => return Err(Failure::Outcome(other)),
        };
        let release = |grant: &Grant| Ok(limiter.release_with_outcome(grant, outcome)?);
        Ok(i32::from(ended(&grant, limiter.id(), release)?))
    })
}

/// Writes the most operations in flight that the limit allows now. Returns 0 if it counts none,
/// else 1.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_max_in_flight(
    limiter: Option<&Limiter>,
    permits: Out<'_, u64>,
) -> i32 {
    with(limiter, |limiter| {
        let Some(max) = limiter.max_in_flight()? else { return Ok(RATEGATE_DENIED) };
        put(permits, max);
        Ok(RATEGATE_GRANTED)
    })
}

/// Adds permits to a pool that is refilled from outside. Returns 0 if there is none, else 1.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_refill(limiter: Option<&Limiter>, permits: u64) -> i32 {
    with(limiter, |limiter| Ok(i32::from(limiter.refill(permits)?)))
}
