//! A limit for each key.

use napi::Env;
use napi::bindgen_prelude::{BigInt, BigUint64Array, Either, Unknown};
use napi_derive::napi;
use rategate_ffi::{Capacity, KeyRef, Overflow};

use crate::clock::{self, ManualClock};
use crate::failure::{Failure, Result, failed, of_node};
use crate::grant::granted;
use crate::hold::Hold;
use crate::limiter::Limiter;
use crate::number::{double, duration, ns, permits, whole};
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
        max_bytes: Option<f64>,
        when_full: u32,
    ) -> Result<Self> {
        let mut capacity = Capacity::default();
        if let Some(keys) = max_keys {
            capacity.max_keys = usize::try_from(keys).unwrap_or(usize::MAX);
        }
        if let Some(bytes) = max_bytes.and_then(whole) {
            capacity.max_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        capacity.overflow = match when_full {
            0 => Overflow::Share,
            1 => Overflow::Refuse,
            _ => Overflow::Admit,
        };
        let policy = policies::read_one(limits)?;
        Ok(Self(rategate_ffi::Keyed::new(policy, capacity, clock::of(manual))))
    }

    /// Returns the function `(key, permits = 1) => remaining`, or minus the wait in nanoseconds,
    /// or NaN for a call that [`attempt`](Self::attempt) decides. It writes its grant to `words`.
    #[napi(catch_unwind)]
    pub fn fast_try<'env>(&self, env: &'env Env, words: Unknown) -> Result<Unknown<'env>> {
        raw::keyed_function(env, self.0.clone(), words).map_err(|error| of_node(&error))
    }

    /// Returns the same as [`fast_try`](Self::fast_try), which also writes what remains and the
    /// time until the limit has recovered.
    #[napi(catch_unwind)]
    pub fn fast_check<'env>(&self, env: &'env Env, words: Unknown) -> Result<Unknown<'env>> {
        raw::keyed_check_function(env, self.0.clone(), words).map_err(|error| of_node(&error))
    }

    /// Returns the same as [`fast_try`](Self::fast_try), which writes no grant, but the time until
    /// more than what remains is free: a double of nanoseconds, or -1 where time does not help.
    #[napi(catch_unwind)]
    pub fn fast_pass<'env>(&self, env: &'env Env, words: Unknown) -> Result<Unknown<'env>> {
        raw::keyed_pass_function(env, self.0.clone(), words).map_err(|error| of_node(&error))
    }

    /// Returns the function `(key, permits = 1) => wait` in nanoseconds, or -1 where time does not
    /// help, or NaN for a call that [`peek`](Self::peek) decides.
    #[napi(catch_unwind)]
    pub fn fast_peek<'env>(&self, env: &'env Env) -> Result<Unknown<'env>> {
        raw::keyed_peek_function(env, self.0.clone()).map_err(|error| of_node(&error))
    }

    /// Tries, for a fast function that did not decide. Returns the words of a grant.
    #[napi(catch_unwind)]
    pub fn attempt(&self, key: String, number: f64) -> Result<Option<BigUint64Array>> {
        self.0
            .try_acquire(KeyRef::Bytes(key.as_bytes()), permits(number)?)
            .map(granted)
            .map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn peek(&self, key: String, number: f64) -> Result<Option<BigInt>> {
        Ok(self.0.peek(KeyRef::Bytes(key.as_bytes()), permits(number)?).map_err(failed)?.map(ns))
    }

    #[napi(catch_unwind)]
    pub fn remaining(&self, key: String) -> Result<f64> {
        self.0
            .status(KeyRef::Bytes(key.as_bytes()))
            .map(|status| double(status.remaining))
            .map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn try_hold(&self, key: String, number: f64, ttl: BigInt) -> Result<Hold> {
        let key = KeyRef::Bytes(key.as_bytes());
        match self.0.try_hold(key, permits(number)?, duration(&ttl)?).map_err(failed)? {
            Ok(held) => Ok(Hold::new(held)),
            Err(denial) => Err(Failure::of_denial(number, denial.retry_after()).thrown()),
        }
    }

    #[napi(catch_unwind)]
    pub fn reset(&self, key: String) -> Result<bool> {
        self.0.reset(KeyRef::Bytes(key.as_bytes())).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn reconfigure(&self, limits: Vec<Either<String, Table>>) -> Result<()> {
        self.0.reconfigure(policies::read_one(limits)?).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn limiter(&self, key: String) -> Result<Limiter> {
        self.0.limiter(KeyRef::Bytes(key.as_bytes())).map(Limiter).map_err(failed)
    }

    /// Returns the number by which grants name their table.
    #[napi(catch_unwind)]
    pub fn id(&self) -> f64 {
        double(self.0.id())
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
