//! Estimates that a limiter holds.

use napi::bindgen_prelude::{BigInt, Either};
use napi_derive::napi;
use rategate::charge::Committed;

use crate::failure::{Result, failed, invalid};
use crate::limiter::{Charged, Corrected};
use crate::number::{double, ns, permits};

/// An estimate that is held. It counts as used if its object is collected: JavaScript does not say
/// when that is.
#[napi]
#[derive(Debug)]
pub struct Hold(Option<rategate_ffi::Hold>);

#[napi]
impl Hold {
    pub(crate) fn new(held: rategate_ffi::Hold) -> Self {
        Self(Some(held.kept_if_dropped()))
    }

    #[napi(getter, catch_unwind)]
    pub fn permits(&self) -> Result<f64> {
        Ok(double(self.0.as_ref().ok_or_else(ended)?.permits()))
    }

    #[napi(getter, catch_unwind)]
    pub fn ends_at_ns(&self) -> Result<BigInt> {
        Ok(ns(self.0.as_ref().ok_or_else(ended)?.ends_at()))
    }

    #[napi(catch_unwind)]
    pub fn commit(&mut self, actual: f64) -> Result<Either<Corrected, Charged>> {
        let actual = permits(actual)?;
        match self.0.take().ok_or_else(ended)?.commit(actual).map_err(failed)? {
            Committed::InTime(settled) => Ok(Either::A(settled.into())),
            Committed::Late(charged) => Ok(Either::B(charged.into())),
        }
    }

    #[napi(catch_unwind)]
    pub fn keep(&mut self) -> Result<()> {
        self.0.take().ok_or_else(ended).map(rategate_ffi::Hold::keep)
    }

    #[napi(catch_unwind)]
    pub fn cancel(&mut self) -> Result<bool> {
        self.0.take().ok_or_else(ended).map(rategate_ffi::cancel)
    }
}

fn ended() -> napi::Error<String> {
    invalid("the hold has been committed, kept or cancelled; only one of them is possible, once")
}
