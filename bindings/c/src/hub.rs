//! Hubs: waits of an event loop.

#![allow(unsafe_code, reason = "names are exported")]

use std::mem::forget;
use std::os::fd::AsRawFd;
use std::process;
use std::sync::Arc;

use rategate_ffi::{Begun, Delivered, Hub as Inner, Signal, WaitId};

use crate::decision::Decision;
use crate::failure::{Failure, RATEGATE_GRANTED, RATEGATE_WAITS};
use crate::limiter::{Limiter, decide};
use crate::raw::{Array, Filled, Out};
use crate::status::run;
use crate::timeout;

/// The waits of one event loop, on any limiters.
///
/// A loop begins waits, watches the hub's descriptor, and drains the hub when that is readable. A
/// call that could go on at once waits too, behind the earlier ones of its limiter, until these
/// have gone on: `rategate_hub_taken`.
///
/// Any thread may use a hub at any time, but the order is that of one loop. `rategate_hub_free`
/// must be the last call with it. A forked child makes its own: there, all calls with the parent's
/// fail.
#[derive(Debug)]
pub struct Hub {
    signal: Arc<Signal>,
    waits: Inner,
    /// The process that made it, which its descriptor belongs to.
    process: u32,
}

/// Runs a call with a hub.
fn with(hub: Option<&Hub>, call: impl FnOnce(&Hub) -> Result<i32, Failure>) -> i32 {
    run(|| {
        let hub = hub.ok_or(Failure::Null("hub"))?;
        if hub.process != process::id() {
            return Err(Failure::Forked);
        }
        call(hub)
    })
}

/// Creates a hub.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_new(hub: Out<'_, Box<Hub>>) -> i32 {
    run(|| {
        let hub = hub.ok_or(Failure::Null("hub"))?;
        let signal = Arc::new(Signal::new().map_err(Failure::System)?);
        let raised = Arc::clone(&signal);
        let waits = Inner::new(move || raised.raise());
        hub.write(Box::new(Hub { signal, waits, process: process::id() }));
        Ok(RATEGATE_GRANTED)
    })
}

/// Frees a hub, and withdraws its waits. Null is accepted. A forked child leaves the memory of
/// its parent's hub as it is.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_free(hub: Option<Box<Hub>>) {
    let _ = run(|| {
        match hub {
            // Another thread may have held a lock of it at the fork.
            Some(hub) if hub.process != process::id() => forget(hub),
            hub => drop(hub),
        }
        Ok(RATEGATE_GRANTED)
    });
}

/// Returns the descriptor that is readable while the hub has ends of waits to deliver.
///
/// It stays the hub's: watch it, and do not read or close it.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_fd(hub: Option<&Hub>) -> i32 {
    with(hub, |hub| Ok(hub.signal.as_raw_fd()))
}

/// Takes `permits` at once, or begins to wait for them.
///
/// Returns `RATEGATE_GRANTED`, or `RATEGATE_WAITS` with the number of the wait in
/// `decision->wait`. Returns `RATEGATE_TOO_LONG` if the permits could start only later than in
/// `timeout_ns`; with `RATEGATE_FOREVER` there is no bound.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_begin(
    hub: Option<&Hub>,
    limiter: Option<&Limiter>,
    permits: u64,
    timeout_ns: u64,
    decision: Filled<Decision>,
) -> i32 {
    with(hub, |hub| {
        let limiter = &limiter.ok_or(Failure::Null("limiter"))?.0;
        if decision.is_null() {
            return Err(Failure::Null("decision"));
        }
        decide(&decision, || {
            Ok(match hub.waits.begin(limiter, permits, timeout(timeout_ns))? {
                Begun::Granted(grant) => Decision::granted(&grant),
                Begun::Waits(WaitId(wait)) => {
                    Decision { wait, ..Decision::with_status(RATEGATE_WAITS) }
                }
            })
        })
    })
}

/// Withdraws a wait. Returns 0 if it has ended, else 1.
///
/// Permits that were granted to it come back, as long as its caller has not gone on. Callers
/// behind it move up.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_cancel(hub: Option<&Hub>, wait: u64) -> i32 {
    with(hub, |hub| Ok(i32::from(hub.waits.cancel(WaitId(wait)))))
}

/// Records that the caller of a delivered grant goes on: the permits are its own from here on.
///
/// Each grant of a drain needs it, or `rategate_hub_cancel`; else later callers of the limiter
/// that wait in a hub stay behind it for ever.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_taken(hub: Option<&Hub>, wait: u64) -> i32 {
    with(hub, |hub| {
        hub.waits.taken(WaitId(wait));
        Ok(RATEGATE_GRANTED)
    })
}

/// Writes the waits that have ended, in order, and returns their number.
///
/// `ends` is an array of `capacity` structures, and `size` is `sizeof(rategate_decision)`. Each
/// says its wait, and the status that it ended with; `rategate_last_error` has the text of the last
/// that is an error. The descriptor stays readable while there is more. Of a grant, call
/// `rategate_hub_taken` when its caller goes on.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_drain(
    hub: Option<&Hub>,
    ends: Array<Decision>,
    capacity: usize,
    size: usize,
) -> i32 {
    with(hub, |hub| {
        if capacity == 0 {
            return Ok(0);
        }
        ends.check(size)?;
        let max = capacity.min(usize::try_from(i32::MAX).unwrap_or(capacity));
        let mut count = 0;
        // Before the look at the list: what comes from then on raises it again.
        hub.signal.lower();
        let may_have_more = hub.waits.drain_up_to(max, |WaitId(wait), end| {
            ends.put(count, size, &Decision::ended(wait, end));
            count = count.saturating_add(1);
            Delivered::Later
        });
        if may_have_more {
            hub.signal.raise();
        }
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    })
}

/// Writes the number of waits whose callers have not gone on.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_waiting(hub: Option<&Hub>, waits: Out<'_, usize>) -> i32 {
    with(hub, |hub| {
        crate::raw::put(waits, hub.waits.waiting());
        Ok(RATEGATE_GRANTED)
    })
}
