//! The clock that tests move.

#![allow(unsafe_code, reason = "names are exported")]

use std::time::Duration;

use rategate::ManualClock;

use crate::failure::{Failure, RATEGATE_DENIED, RATEGATE_GRANTED};
use crate::raw::{Out, put};
use crate::status::run;
use crate::{RATEGATE_FOREVER, ns};

/// A clock that only calls move, for tests. It is at 0 at first. Waits on it last until it is
/// moved.
///
/// Any thread may use it at any time.
#[derive(Debug)]
pub struct Clock(pub(crate) ManualClock);

/// Creates a clock at 0.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_clock_new(clock: Out<'_, Box<Clock>>) -> i32 {
    run(|| {
        let clock = clock.ok_or(Failure::Null("clock"))?;
        clock.write(Box::new(Clock(ManualClock::stepped())));
        Ok(RATEGATE_GRANTED)
    })
}

/// Frees the handle of a clock. Limiters on it keep the clock.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_clock_free(clock: Option<Box<Clock>>) {
    let _ = run(|| {
        drop(clock);
        Ok(RATEGATE_GRANTED)
    });
}

/// Returns the time of a clock in nanoseconds; 0 for a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_clock_now(clock: Option<&Clock>) -> u64 {
    clock.map_or(0, |clock| ns(clock.0.now()))
}

/// Sets a clock to an instant, earlier ones included.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_clock_set(clock: Option<&Clock>, now_ns: u64) -> i32 {
    run(|| {
        clock.ok_or(Failure::Null("clock"))?.0.set(Duration::from_nanos(now_ns));
        Ok(RATEGATE_GRANTED)
    })
}

/// Moves a clock forward, at most to its end.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_clock_advance(clock: Option<&Clock>, span_ns: u64) -> i32 {
    run(|| {
        clock.ok_or(Failure::Null("clock"))?.0.advance(Duration::from_nanos(span_ns));
        Ok(RATEGATE_GRANTED)
    })
}

/// Moves a clock forward to the first instant that a wait on it is for, and writes that instant.
///
/// Returns `RATEGATE_DENIED`, and writes `RATEGATE_FOREVER`, if nothing waits.
#[unsafe(no_mangle)]
pub extern "C" fn rategate_clock_step(clock: Option<&Clock>, now_ns: Out<'_, u64>) -> i32 {
    run(|| {
        let stepped = clock.ok_or(Failure::Null("clock"))?.0.step();
        put(now_ns, stepped.map_or(RATEGATE_FOREVER, ns));
        Ok(if stepped.is_some() { RATEGATE_GRANTED } else { RATEGATE_DENIED })
    })
}

impl Clock {
    /// Returns a limiter's clock: this one, or real time for null.
    pub(crate) fn choose(clock: Option<&Self>) -> rategate_ffi::Clock {
        clock.map_or_else(rategate_ffi::Clock::real, |clock| {
            rategate_ffi::Clock::Manual(clock.0.clone())
        })
    }
}
