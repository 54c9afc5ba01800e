//! Grants as words, and promised starts.

use napi::bindgen_prelude::{BigInt, BigUint64Array};
use napi_derive::napi;
use rategate::{Decision, Grant};

use crate::failure::{Result, invalid};
use crate::number::ns;

// JavaScript makes its grants of words, as an object of Node-API costs a microsecond.

/// The place of what remains, behind a grant, where a check writes it.
pub(crate) const REMAINING: usize = 4;
/// The place of the time until the limit has fully recovered, where a check writes it.
pub(crate) const RESET_AFTER: usize = 5;
/// The place of the time until more than what remains is free, where a pass writes it as a double.
pub(crate) const MORE_AFTER: usize = RESET_AFTER;

/// Returns the words of a decision, if it is a grant.
pub(crate) fn granted(decision: Decision) -> Option<BigUint64Array> {
    decision.granted().map(|grant| grant.words().to_vec().into())
}

/// Returns the grant of words.
pub(crate) fn of_words(words: &[u64]) -> Result<Grant> {
    let words = words.first_chunk().ok_or_else(|| invalid("a grant has four words"))?;
    Ok(Grant::from_words(*words))
}

/// A promised start. It is kept if its object is collected: JavaScript does not say when that is.
#[napi]
#[derive(Debug)]
pub struct Reservation(Option<rategate_ffi::Reservation>);

#[napi]
impl Reservation {
    pub(crate) fn new(reserved: rategate_ffi::Reservation) -> Self {
        Self(Some(reserved))
    }

    #[napi(getter, catch_unwind)]
    pub fn promised_at_ns(&self) -> Result<BigInt> {
        let reserved = self.0.as_ref().ok_or_else(ended)?;
        Ok(ns(reserved.promised_at()))
    }

    #[napi(catch_unwind)]
    pub fn keep(&mut self) -> Result<BigUint64Array> {
        let grant = self.0.take().ok_or_else(ended)?.keep();
        Ok(grant.words().to_vec().into())
    }

    #[napi(catch_unwind)]
    pub fn cancel(&mut self) -> Result<bool> {
        self.0.take().ok_or_else(ended).map(rategate_ffi::Reservation::cancel)
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
