//! The clock that tests move.

use napi::bindgen_prelude::BigInt;
use napi_derive::napi;
use rategate_ffi::Clock;

use crate::failure::Result;
use crate::number::{duration, ns};

/// A clock that only calls move.
#[napi]
#[derive(Debug)]
pub struct ManualClock(rategate::ManualClock);

#[napi]
impl ManualClock {
    #[napi(constructor)]
    pub fn new() -> Self {
        Self(rategate::ManualClock::stepped())
    }

    #[napi(getter, catch_unwind)]
    pub fn now_ns(&self) -> BigInt {
        ns(self.0.now())
    }

    #[napi(catch_unwind)]
    pub fn advance(&self, time: BigInt) -> Result<()> {
        self.0.advance(duration(&time)?);
        Ok(())
    }

    #[napi(catch_unwind)]
    pub fn step(&self) -> Option<BigInt> {
        self.0.step().map(ns)
    }
}

/// Returns the clock of a limiter: real time without one.
pub(crate) fn of(manual: Option<&ManualClock>) -> Clock {
    manual.map_or_else(Clock::real, |manual| Clock::Manual(manual.0.clone()))
}
