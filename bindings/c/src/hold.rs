//! Estimates that a limiter holds.

#![allow(unsafe_code, reason = "names are exported")]

use std::time::Duration;

use rategate::charge::Committed;
use rategate_ffi::Held;

use crate::decision::{Charge, Settlement};
use crate::failure::{Failure, RATEGATE_DENIED, RATEGATE_GRANTED};
use crate::limiter::{Limiter, with};
use crate::ns;
use crate::raw::{Filled, Out, put};
use crate::status::{run, run_as_bool};

/// An estimate that is held until its true cost is known. One of `rategate_hold_commit` and
/// `rategate_hold_cancel` ends it, and frees it; left alone, it ends by itself.
///
/// One thread may use it at a time, and it need not always be the same.
#[derive(Debug)]
pub struct Hold(Box<dyn Held>);

/// Holds an estimate of `permits` until the true cost is known, and for `ttl_ns` at most.
///
/// Returns `RATEGATE_GRANTED`, or `RATEGATE_DENIED` if it does not fit now. Then it writes the time
/// until it could be held: `RATEGATE_FOREVER` where time alone does not help. `retry_after_ns` may
/// be null.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_try_hold(
    limiter: Option<&Limiter>,
    permits: u64,
    ttl_ns: u64,
    hold: Out<'_, Box<Hold>>,
    retry_after_ns: Out<'_, u64>,
) -> i32 {
    with(limiter, |limiter| {
        let hold = hold.ok_or(Failure::Null("hold"))?;
        match limiter.try_hold(permits, Duration::from_nanos(ttl_ns))? {
            Ok(estimate) => {
                hold.write(Box::new(Hold(estimate)));
                Ok(RATEGATE_GRANTED)
            }
            Err(denial) => {
                put(retry_after_ns, ns(denial.retry_after()));
                Ok(RATEGATE_DENIED)
            }
        }
    })
}

/// Returns the number of permits held; 0 for a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hold_permits(hold: Option<&Hold>) -> u64 {
    hold.map_or(0, |hold| hold.0.permits())
}

/// Returns the instant at which the hold ends by itself, on the limiter's clock; 0 for a null
/// pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hold_ends_ns(hold: Option<&Hold>) -> u64 {
    hold.map_or(0, |hold| ns(hold.0.ends_at()))
}

/// Ends the hold with the permits that were really used: the rest comes back, or more is charged.
///
/// Returns 1, and fills `settlement`. If the hold had ended by itself, all is charged: it returns 0
/// and fills `charge`. Both may be null. With a structure of a wrong size the hold stays open.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hold_commit(
    hold: Option<Box<Hold>>,
    used: u64,
    settlement: Filled<Settlement>,
    charge: Filled<Charge>,
) -> i32 {
    run(|| {
        let hold = hold.ok_or(Failure::Null("hold"))?;
        if let Err(failure) = settlement.check().and_then(|()| charge.check()) {
            // The handle stays the caller's.
            let _ = Box::into_raw(hold);
            return Err(failure);
        }
        match hold.0.commit(used)? {
            Committed::InTime(settled) => {
                settlement.put(&settled.into());
                Ok(1)
            }
            Committed::Late(charged) => {
                charge.put(&charged.into());
                Ok(0)
            }
        }
    })
}

/// Ends the hold, of which nothing was used. Returns 1 if that came before it ended by itself,
/// else 0.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hold_cancel(hold: Option<Box<Hold>>) -> i32 {
    run_as_bool(|| Ok(hold.ok_or(Failure::Null("hold"))?.0.cancel()))
}
