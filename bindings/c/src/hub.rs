//! Hubs: waits of an event loop.

#![allow(unsafe_code, reason = "names are exported")]

use std::mem::forget;
use std::os::fd::AsRawFd;
use std::process;
use std::sync::Arc;

use rategate_ffi::{Begun, Ended, Hub as Inner, Signal, WaitId};

use crate::decision::Decision;
use crate::failure::{Failure, RATEGATE_GRANTED, RATEGATE_WAITS};
use crate::limiter::{Limiter, decide};
use crate::raw::{Filled, Out};
use crate::status::run;
use crate::timeout;

/// The waits of one event loop, on any limiters.
///
/// A loop begins waits and watches the hub's descriptor. When that is readable, it takes one end
/// after another, `rategate_hub_next`, and goes on with each caller. A call that could go on at
/// once waits too while earlier ones of its limiter have not gone on.
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

impl Hub {
    fn next(&self) -> Option<Ended> {
        if let Some(ended) = self.waits.next() {
            return Some(ended);
        }
        // The list was empty. What has come since is seen by the second look, or raises it again.
        self.signal.lower();
        let ended = self.waits.next()?;
        self.signal.raise();
        Some(ended)
    }
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

/// Returns the descriptor that is readable while waits may have ended.
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
                Begun::Granted(grant) => Decision::granted(&grant, limiter.id()),
                Begun::Waits(WaitId(wait)) => {
                    Decision { wait, ..Decision::with_status(RATEGATE_WAITS) }
                }
            })
        })
    })
}

/// Withdraws a wait. Returns 0 if it has ended, else 1.
///
/// Permits that are held for it go to the next. Callers behind it move up.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_cancel(hub: Option<&Hub>, wait: u64) -> i32 {
    with(hub, |hub| Ok(i32::from(hub.waits.cancel(WaitId(wait)))))
}

/// Writes the next wait that has ended: its number, and the status that it ended with.
///
/// Returns 1, or 0 if none has. A grant's permits are taken by this call, so go on with the wait's
/// caller before the next one. The text of an error is `rategate_last_error`. The descriptor stays
/// readable until a call returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_hub_next(hub: Option<&Hub>, decision: Filled<Decision>) -> i32 {
    with(hub, |hub| {
        if decision.is_null() {
            return Err(Failure::Null("decision"));
        }
        decision.check()?;
        let Some(ended) = hub.next() else { return Ok(0) };
        decision.put(&Decision::ended(ended));
        Ok(1)
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
