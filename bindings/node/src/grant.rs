//! Permits that are the caller's, and promised starts.

use napi::bindgen_prelude::BigInt;
use napi_derive::napi;
use rategate_ffi::Reserved;

use crate::failure::{Result, invalid};
use crate::number::{double, ns};

/// Permits that are the caller's.
#[napi]
#[derive(Clone, Copy, Debug)]
pub struct Grant(pub(crate) rategate::Grant);

#[napi]
impl Grant {
    #[napi(getter)]
    pub fn permits(&self) -> f64 {
        double(self.0.permits())
    }

    #[napi(getter)]
    pub fn remaining(&self) -> f64 {
        double(self.0.remaining())
    }

    #[napi(getter)]
    pub fn wait_ns(&self) -> BigInt {
        ns(self.0.wait())
    }

    #[napi(getter)]
    pub fn released_at_ns(&self) -> BigInt {
        ns(self.0.released_at())
    }

    #[napi(getter)]
    pub fn promised_at_ns(&self) -> BigInt {
        ns(self.0.promised_at())
    }

    #[napi(getter)]
    pub fn scheduled_at_ns(&self) -> BigInt {
        ns(self.0.scheduled_at())
    }
}

/// A promised start. It is kept if its object is collected: JavaScript does not say when that is.
#[napi]
#[derive(Debug)]
pub struct Reservation(Option<Box<dyn Reserved>>);

#[napi]
impl Reservation {
    pub(crate) fn new(reserved: Box<dyn Reserved>) -> Self {
        Self(Some(reserved))
    }

    #[napi(getter, catch_unwind)]
    pub fn promised_at_ns(&self) -> Result<BigInt> {
        let reserved = self.0.as_ref().ok_or_else(ended)?;
        Ok(ns(reserved.promised_at()))
    }

    #[napi(catch_unwind)]
    pub fn keep(&mut self) -> Result<Grant> {
        self.0.take().ok_or_else(ended).map(|reserved| Grant(reserved.keep()))
    }

    #[napi(catch_unwind)]
    pub fn cancel(&mut self) -> Result<bool> {
        self.0.take().ok_or_else(ended).map(Reserved::cancel)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(reserved) = self.0.take() {
            let _ = reserved.keep();
        }
    }
}

fn ended() -> napi::Error<String> {
    invalid("the reservation has been kept or cancelled; only one of them is possible, once")
}
