//! Limiters.

#![allow(unsafe_code, reason = "names are exported")]

use std::time::Duration;

use rategate::wait::{QueueBounds, WhenFull};
use rategate_ffi::Limiter as Inner;

use crate::clock::Clock;
use crate::decision::{Decision, Status};
use crate::failure::{Failure, RATEGATE_DENIED, RATEGATE_GRANTED};
use crate::raw::{Filled, Out, Space, Start, Text, put};
use crate::reservation::Reservation;
use crate::status::{run, run_as_bool};
use crate::{ns, policies, timeout};

/// A limiter: one or more policies on a clock.
///
/// Any thread may use it at any time; `rategate_limiter_free` must be the last call with it.
#[derive(Debug)]
pub struct Limiter(pub(crate) Inner);

/// Runs a call with a limiter.
#[inline]
pub(crate) fn with(
    limiter: Option<&Limiter>,
    call: impl FnOnce(&Inner) -> Result<i32, Failure>,
) -> i32 {
    run(|| call(&limiter.ok_or(Failure::Null("limiter"))?.0))
}

/// Runs a call that decides, and writes its decision.
pub(crate) fn decide(
    out: &Filled<Decision>,
    call: impl FnOnce() -> Result<Decision, Failure>,
) -> Result<i32, Failure> {
    out.check()?;
    match call() {
        Ok(decision) => {
            out.put(&decision);
            Ok(decision.status)
        }
        Err(failure) => {
            out.put(&Decision::failed(&failure));
            Err(failure)
        }
    }
}

/// Runs a call that fills a structure, and writes it.
pub(crate) fn fill<T: crate::raw::Layout>(
    out: &Filled<T>,
    call: impl FnOnce() -> Result<T, Failure>,
) -> Result<i32, Failure> {
    out.check()?;
    out.put(&call()?);
    Ok(RATEGATE_GRANTED)
}

/// Creates a limiter.
///
/// `policies` is a text such as `10/s burst 5`, `100 per any minute` or several of them between
/// semicolons. Or it has the lines of a table such as `policy = "fixed-window"`, `permits = 5` and
/// `period = "1min"`; before each of several tables is a line `[[limit]]`. A call has to pass all
/// policies. `clock` is null for real time.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_new(
    policies: Text,
    clock: Option<&Clock>,
    limiter: Out<'_, Box<Limiter>>,
) -> i32 {
    run(|| {
        let limiter = limiter.ok_or(Failure::Null("limiter"))?;
        let policies = policies::read(&policies)?;
        limiter.write(Box::new(Limiter(Inner::new(&policies, Clock::choose(clock)))));
        Ok(RATEGATE_GRANTED)
    })
}

/// Creates another handle of a limiter.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_clone(
    limiter: Option<&Limiter>,
    clone: Out<'_, Box<Limiter>>,
) -> i32 {
    with(limiter, |limiter| {
        let clone = clone.ok_or(Failure::Null("clone"))?;
        clone.write(Box::new(Limiter(limiter.clone())));
        Ok(RATEGATE_GRANTED)
    })
}

/// Frees a handle. The last one of a limiter frees the limiter. Null is accepted.
///
/// No other call may use the handle then: close the limiter first, and join its threads.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_free(limiter: Option<Box<Limiter>>) {
    let _ = run(|| {
        drop(limiter);
        Ok(RATEGATE_GRANTED)
    });
}

/// Takes `permits` at once, or not at all: returns `RATEGATE_GRANTED` or `RATEGATE_DENIED`.
///
/// It never passes a caller that waits. For a bucket, a log, or a limit on operations in flight it
/// takes no lock and no memory while no caller waits, unless it is for more than the capacity.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_try_acquire(limiter: Option<&Limiter>, permits: u64) -> i32 {
    with(limiter, |limiter| Ok(i32::from(limiter.try_acquire(permits)?.is_granted())))
}

/// Takes `permits` at once, or not at all, and writes the decision.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_check(
    limiter: Option<&Limiter>,
    permits: u64,
    decision: Filled<Decision>,
) -> i32 {
    with(limiter, |limiter| {
        decide(&decision, || Ok(Decision::of(&limiter.try_acquire(permits)?, limiter.id())))
    })
}

/// Writes how long `permits` would have to wait now, and takes nothing.
///
/// Returns `RATEGATE_GRANTED` for 0, else `RATEGATE_DENIED`. The time is `RATEGATE_FOREVER` where
/// time alone does not help. `wait_ns` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_peek(
    limiter: Option<&Limiter>,
    permits: u64,
    wait_ns: Out<'_, u64>,
) -> i32 {
    with(limiter, |limiter| {
        let wait = limiter.peek(permits)?;
        put(wait_ns, ns(wait));
        Ok(if wait == Some(Duration::ZERO) { RATEGATE_GRANTED } else { RATEGATE_DENIED })
    })
}

/// Takes `permits`, and blocks the thread until they may start.
///
/// Returns `RATEGATE_TOO_LONG` at once if that is later than in `timeout_ns`; with
/// `RATEGATE_FOREVER` there is no bound. `decision` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_acquire(
    limiter: Option<&Limiter>,
    permits: u64,
    timeout_ns: u64,
    decision: Filled<Decision>,
) -> i32 {
    with(limiter, |limiter| {
        let acquire = || {
            let grant = limiter.acquire(permits, timeout(timeout_ns))?;
            Ok(Decision::granted(&grant, limiter.id()))
        };
        decide(&decision, acquire)
    })
}

/// Takes `permits` for the first instant at which they may start, behind all callers that wait,
/// and does not wait for it.
///
/// Returns `RATEGATE_TOO_LONG` if that is later than in `timeout_ns`, and writes the time until the
/// same call would pass; with `RATEGATE_FOREVER` there is no bound. `retry_after_ns` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_reserve(
    limiter: Option<&Limiter>,
    permits: u64,
    timeout_ns: u64,
    reservation: Out<'_, Box<Reservation>>,
    retry_after_ns: Out<'_, u64>,
) -> i32 {
    with(limiter, |limiter| {
        let reservation = reservation.ok_or(Failure::Null("reservation"))?;
        let reserved = limiter.reserve(permits, timeout(timeout_ns)).map_err(|error| {
            let failure = Failure::from(error);
            put(retry_after_ns, Decision::failed(&failure).retry_after_ns);
            failure
        })?;
        reservation.write(Box::new(Reservation { reserved, limiter: limiter.id() }));
        Ok(RATEGATE_GRANTED)
    })
}

/// Forgets all grants and promises. Returns 0 if that changes nothing, else 1.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_reset(limiter: Option<&Limiter>) -> i32 {
    with(limiter, |limiter| Ok(i32::from(limiter.reset()?)))
}

/// Writes the limit's numbers and its state as bytes, for `rategate_limiter_restore`.
///
/// `size` is the number of bytes. Where it is more than `capacity`, nothing else is written and the
/// status is 0, so that `saved` may be null with a capacity of 0. The state may have grown by the
/// next call. What is promised or held counts as taken. Callers that wait are not saved, and
/// operations in flight have ended when it is restored.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_save(
    limiter: Option<&Limiter>,
    saved: Space,
    capacity: usize,
    size: Out<'_, usize>,
) -> i32 {
    with(limiter, |limiter| {
        let size = size.ok_or(Failure::Null("size"))?;
        let bytes = limiter.save().map_err(Failure::Save)?;
        size.write(bytes.len());
        if bytes.len() > capacity {
            return Ok(RATEGATE_DENIED);
        }
        saved.put("saved", &bytes)?;
        Ok(RATEGATE_GRANTED)
    })
}

/// Creates a limiter that continues from what `rategate_limiter_save` wrote.
///
/// `policies` and `clock` are those of `rategate_limiter_new`. Other numbers of the same policies
/// come into force now; bytes that are not whole, or of other policies, are `RATEGATE_INVALID`. The
/// time away counts by the wall clock, but at most `max_downtime_ns`; with `RATEGATE_FOREVER` there
/// is no bound. A clock that is moved by calls says itself how much time has passed.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_restore(
    policies: Text,
    clock: Option<&Clock>,
    saved: Start,
    size: usize,
    max_downtime_ns: u64,
    limiter: Out<'_, Box<Limiter>>,
) -> i32 {
    run(|| {
        let limiter = limiter.ok_or(Failure::Null("limiter"))?;
        let policies = policies::read(&policies)?;
        let (clock, max) = (Clock::choose(clock), timeout(max_downtime_ns));
        let restored = Inner::restore(&policies, clock, saved.read("saved", size)?, max);
        limiter.write(Box::new(Limiter(restored.map_err(Failure::Restore)?)));
        Ok(RATEGATE_GRANTED)
    })
}

/// Puts other numbers into force, for the same policies in the same order.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_reconfigure(limiter: Option<&Limiter>, policies: Text) -> i32 {
    with(limiter, |limiter| {
        limiter.reconfigure(&policies::read(&policies)?)?;
        Ok(RATEGATE_GRANTED)
    })
}

/// Bounds the wait queue, for callers that come from now on: their number, and the permits that
/// they wait for together.
///
/// In a full queue a caller gets `RATEGATE_FULL`. If `evicts_newest` is not 0, it takes the place
/// of the newest callers instead, and they get that.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_bound_queue(
    limiter: Option<&Limiter>,
    waiters: u32,
    permits: u64,
    evicts_newest: i32,
) -> i32 {
    with(limiter, |limiter| {
        let when_full = if evicts_newest == 0 { WhenFull::Refuse } else { WhenFull::EvictNewest };
        let bounds = QueueBounds::new(waiters).with_permits(permits).when_full(when_full);
        limiter.bound_queue(bounds)?;
        Ok(RATEGATE_GRANTED)
    })
}

/// Closes the limiter: it grants nothing any more, and all waits end with `RATEGATE_CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_close(limiter: Option<&Limiter>) -> i32 {
    with(limiter, |limiter| {
        limiter.close();
        Ok(RATEGATE_GRANTED)
    })
}

/// Returns 1 if the limiter is closed, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_is_closed(limiter: Option<&Limiter>) -> i32 {
    run_as_bool(|| Ok(limiter.ok_or(Failure::Null("limiter"))?.0.is_closed()))
}

/// Writes the most permits that a try could take now.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_remaining(
    limiter: Option<&Limiter>,
    permits: Out<'_, u64>,
) -> i32 {
    with(limiter, |limiter| {
        put(permits, limiter.remaining()?);
        Ok(RATEGATE_GRANTED)
    })
}

/// Writes the number of callers that wait.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_waiting(
    limiter: Option<&Limiter>,
    callers: Out<'_, u32>,
) -> i32 {
    with(limiter, |limiter| {
        put(callers, limiter.waiting()?);
        Ok(RATEGATE_GRANTED)
    })
}

/// Writes the numbers of the limit now. Returns 0 for several policies, which have none in common.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_status(
    limiter: Option<&Limiter>,
    status: Filled<Status>,
) -> i32 {
    with(limiter, |limiter| {
        status.check()?;
        let Some(numbers) = limiter.status()? else { return Ok(RATEGATE_DENIED) };
        status.put(&numbers.into());
        Ok(RATEGATE_GRANTED)
    })
}

/// Returns the time of the limiter's clock in nanoseconds; 0 for a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_limiter_now(limiter: Option<&Limiter>) -> u64 {
    limiter.map_or(0, |limiter| ns(limiter.0.now()))
}
