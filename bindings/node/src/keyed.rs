//! A limit for each key.

use napi::Env;
use napi::bindgen_prelude::{BigInt, BigUint64Array, Either, Unknown};
use napi_derive::napi;
use rategate::keyed::{Capacity, Overflow};

use crate::clock::{self, ManualClock};
use crate::failure::{Result, failed, invalid, of_node};
use crate::grant::{granted, of_words};
use crate::limiter::Limiter;
use crate::number::{double, ns, permits};
use crate::policies::{self, Table};
use crate::raw;

/// A table of limits.
#[napi]
#[derive(Debug)]
pub struct Keyed(rategate_ffi::Keyed);

#[napi]
impl Keyed {
    #[napi(constructor, catch_unwind)]
    pub fn new(
        limits: Vec<Either<String, Table>>,
        manual: Option<&ManualClock>,
        max_keys: Option<u32>,
        refuses_when_full: bool,
    ) -> Result<Self> {
        let mut capacity = Capacity::default();
        if let Some(max_keys) = max_keys {
            capacity.max_keys = usize::try_from(max_keys).unwrap_or(usize::MAX);
        }
        if refuses_when_full {
            capacity.overflow = Overflow::Refuse;
        }
        let policies = policies::read(limits)?;
        let keyed = rategate_ffi::Keyed::new(&policies, capacity, clock::of(manual));
        keyed.map(Self).ok_or_else(|| {
            invalid(format_args!("there are several limits, {policies}; a table of keys has one"))
        })
    }

    /// Returns the function `(key, permits = 1) => remaining`, or minus the wait in nanoseconds,
    /// or NaN for a call that [`attempt`](Self::attempt) decides. It writes its grant to `words`.
    #[napi(catch_unwind)]
    pub fn fast_try<'env>(&self, env: &'env Env, words: Unknown) -> Result<Unknown<'env>> {
        raw::keyed_function(env, self.0.clone(), words).map_err(|error| of_node(&error))
    }

    /// Tries, for a fast function that did not decide. Returns the words of a grant.
    #[napi(catch_unwind)]
    pub fn attempt(&self, key: String, number: f64) -> Result<Option<BigUint64Array>> {
        self.0.try_acquire(key.as_bytes(), permits(number)?).map(granted).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn reset_after_ns(&self, key: String) -> Result<Option<BigInt>> {
        Ok(self.0.status(key.as_bytes()).map_err(failed)?.fresh_in.map(ns))
    }

    #[napi(catch_unwind)]
    pub fn peek(&self, key: String, number: f64) -> Result<Option<BigInt>> {
        Ok(self.0.peek(key.as_bytes(), permits(number)?).map_err(failed)?.map(ns))
    }

    #[napi(catch_unwind)]
    pub fn remaining(&self, key: String) -> Result<f64> {
        self.0.status(key.as_bytes()).map(|status| double(status.remaining)).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn refund(&self, key: String, grant: BigUint64Array, number: f64) -> Result<f64> {
        self.0
            .refund(key.as_bytes(), &of_words(&grant)?, permits(number)?)
            .map(double)
            .map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn reset(&self, key: String) -> Result<bool> {
        self.0.reset(key.as_bytes()).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn reconfigure(&self, limits: Vec<Either<String, Table>>) -> Result<()> {
        self.0.reconfigure(&policies::read(limits)?).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn limiter(&self, key: String) -> Result<Limiter> {
        self.0.limiter(key.as_bytes()).map(Limiter).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn size(&self) -> f64 {
        double(u64::try_from(self.0.len()).unwrap_or(u64::MAX))
    }

    #[napi(catch_unwind)]
    pub fn overflows(&self) -> f64 {
        double(self.0.overflows())
    }
}
