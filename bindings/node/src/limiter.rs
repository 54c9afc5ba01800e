//! Limiters: what is not called often enough for a function of its own.

use std::fmt::Write as _;

use napi::Env;
use napi::bindgen_prelude::{BigInt, BigUint64Array, Either, Uint8Array, Unknown};
use napi_derive::napi;
use rategate::adaptive::Outcome;
use rategate::charge::{self, Debt, Settled};
use rategate::wait::{QueueBounds, WhenFull};
use rategate_ffi::Policies;

use crate::clock::{self, ManualClock};
use crate::failure::{Failure, Result, failed, invalid, of_node};
use crate::grant::{Reservation, granted, of_words};
use crate::hold::Hold;
use crate::number::{double, duration, ns, permits};
use crate::policies::{self, Table};
use crate::{raw, shared};

/// The options of a limiter that is made.
#[napi(object, object_to_js = false)]
#[derive(Debug)]
pub struct Options {
    pub name: Option<String>,
    pub shared: Option<String>,
    pub max_debt: Option<BigInt>,
    pub is_debt_carried: bool,
    pub max_waiting: Option<f64>,
    pub max_downtime: Option<BigInt>,
}

/// The result of a charge.
#[napi(object, object_from_js = false)]
#[derive(Debug)]
pub struct Charged {
    pub booked: f64,
    pub forgiven: f64,
    pub debt: f64,
}

/// The result of a correction.
#[napi(object, object_from_js = false)]
#[derive(Debug)]
pub struct Corrected {
    pub refunded: f64,
    pub charged: f64,
    pub forgiven: f64,
}

/// A limiter.
#[napi]
#[derive(Debug)]
pub struct Limiter(pub(crate) rategate_ffi::Limiter);

#[napi]
impl Limiter {
    #[napi(constructor, catch_unwind)]
    pub fn new(
        limits: Vec<Either<String, Table>>,
        manual: Option<&ManualClock>,
        options: Options,
        saved: Option<Uint8Array>,
    ) -> Result<Self> {
        let policies = policies::read(limits)?;
        let max_waiting = options.max_waiting.map(bound).transpose()?;
        let debt = match &options.max_debt {
            Some(max) => debt(options.is_debt_carried).at_most(duration(max)?),
            None => debt(options.is_debt_carried),
        };
        let make = || {
            let clock = clock::of(manual);
            let mut limiter = match &saved {
                None => rategate_ffi::Limiter::new(&policies, clock),
                Some(saved) => {
                    let max = options.max_downtime.as_ref().map(duration).transpose()?;
                    rategate_ffi::Limiter::restore(&policies, clock, saved, max).map_err(invalid)?
                }
            };
            if let Some(name) = &options.name {
                limiter = limiter.with_stats(name);
            }
            if let Some(waiters) = max_waiting {
                limiter.bound_queue(QueueBounds::new(waiters)).map_err(failed)?;
            }
            Ok(limiter.with_debt(debt))
        };
        let Some(name) = &options.shared else { return make().map(Self) };
        shared::find_or(name, &config_of(&policies, &options, max_waiting), make).map(Self)
    }

    /// Returns the function `(permits = 1) => remaining`, or minus the wait in nanoseconds, or NaN
    /// for a call that [`attempt`](Self::attempt) decides. It writes its grant to `words`.
    #[napi(catch_unwind)]
    pub fn fast_try<'env>(&self, env: &'env Env, words: Unknown) -> Result<Unknown<'env>> {
        raw::try_function(env, self.0.clone(), words).map_err(|error| of_node(&error))
    }

    /// Returns the same as [`fast_try`](Self::fast_try), which also writes what remains and the
    /// time until the limit has recovered.
    #[napi(catch_unwind)]
    pub fn fast_check<'env>(&self, env: &'env Env, words: Unknown) -> Result<Unknown<'env>> {
        raw::check_function(env, self.0.clone(), words).map_err(|error| of_node(&error))
    }

    /// Returns the same as [`fast_try`](Self::fast_try), which writes no grant, but the time until
    /// more than what remains is free: a double of nanoseconds, or -1 where time does not help.
    #[napi(catch_unwind)]
    pub fn fast_pass<'env>(&self, env: &'env Env, words: Unknown) -> Result<Unknown<'env>> {
        raw::pass_function(env, self.0.clone(), words).map_err(|error| of_node(&error))
    }

    /// Returns the function `(permits = 1) => wait` in nanoseconds, or -1 where time does not
    /// help, or NaN for a call that [`peek`](Self::peek) decides.
    #[napi(catch_unwind)]
    pub fn fast_peek<'env>(&self, env: &'env Env) -> Result<Unknown<'env>> {
        raw::peek_function(env, self.0.clone()).map_err(|error| of_node(&error))
    }

    /// Tries, for a fast function that did not decide. Returns the words of a grant.
    #[napi(catch_unwind)]
    pub fn attempt(&self, number: f64) -> Result<Option<BigUint64Array>> {
        self.0.try_acquire(permits(number)?).map(granted).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn peek(&self, number: f64) -> Result<Option<BigInt>> {
        Ok(self.0.peek(permits(number)?).map_err(failed)?.map(ns))
    }

    #[napi(catch_unwind)]
    pub fn reserve(&self, number: f64, timeout: Option<BigInt>) -> Result<Reservation> {
        let timeout = timeout.as_ref().map(duration).transpose()?;
        self.0.reserve(permits(number)?, timeout).map(Reservation::new).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn try_hold(&self, number: f64, ttl: BigInt) -> Result<Hold> {
        match self.0.try_hold(permits(number)?, duration(&ttl)?).map_err(failed)? {
            Ok(held) => Ok(Hold::new(held)),
            Err(denial) => Err(Failure::of_denial(number, denial.retry_after()).thrown()),
        }
    }

    #[napi(catch_unwind)]
    pub fn remaining(&self) -> f64 {
        // A closed limiter grants nothing; an error would end whatever prints it.
        double(self.0.remaining().unwrap_or(0))
    }

    #[napi(catch_unwind)]
    pub fn waiting(&self) -> u32 {
        self.0.waiting().unwrap_or(0)
    }

    #[napi(catch_unwind)]
    pub fn charge(&self, number: f64) -> Result<Charged> {
        self.0.charge(permits(number)?).map(Into::into).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn release(&self, number: f64) -> Result<bool> {
        self.0.release(permits(number)?).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn release_with_outcome(&self, grant: BigUint64Array, outcome: String) -> Result<bool> {
        let outcome = match outcome.as_str() {
            "served" => Outcome::Served,
            "dropped" => Outcome::Dropped,
            "ignored" => Outcome::Ignored,
            other => {
                let accepted = "must be \"served\", \"dropped\" or \"ignored\"";
                return Err(invalid(format_args!("outcome is {other:?}; {accepted}")));
            }
        };
        self.0.release_with_outcome(&of_words(&grant)?, outcome).map_err(failed)
    }

    /// Returns `true` if the limit moves by outcomes, and is not closed.
    #[napi(catch_unwind)]
    pub fn follows_outcomes(&self) -> bool {
        self.0.follows_outcomes().unwrap_or(false)
    }

    #[napi(catch_unwind)]
    pub fn max_in_flight(&self) -> Option<f64> {
        self.0.max_in_flight().ok().flatten().map(double)
    }

    #[napi(catch_unwind)]
    pub fn refill(&self, number: f64) -> Result<bool> {
        self.0.refill(permits(number)?).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn reset(&self) -> Result<bool> {
        self.0.reset().map_err(failed)
    }

    /// Returns the limit's numbers and its state as bytes.
    #[napi(catch_unwind)]
    pub fn save(&self) -> Result<Uint8Array> {
        self.0.save().map(Uint8Array::from).map_err(invalid)
    }

    #[napi(catch_unwind)]
    pub fn bound_queue(
        &self,
        waiters: Option<f64>,
        number: Option<f64>,
        evicts_newest: bool,
    ) -> Result<()> {
        let waiters = waiters.map_or(Ok(u32::MAX), bound)?;
        let mut bounds = QueueBounds::new(waiters);
        if let Some(number) = number {
            bounds = bounds.with_permits(permits(number)?);
        }
        if evicts_newest {
            bounds = bounds.when_full(WhenFull::EvictNewest);
        }
        self.0.bound_queue(bounds).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn reconfigure(&self, limits: Vec<Either<String, Table>>) -> Result<()> {
        self.0.reconfigure(&policies::read(limits)?).map_err(failed)
    }

    #[napi(catch_unwind)]
    pub fn close(&self) {
        self.0.close();
    }

    /// Returns the number by which grants name their limiter.
    #[napi(catch_unwind)]
    pub fn id(&self) -> f64 {
        double(self.0.id())
    }

    #[napi(catch_unwind)]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    #[napi(catch_unwind)]
    pub fn now_ns(&self) -> BigInt {
        ns(self.0.now())
    }
}

impl From<Settled> for Corrected {
    fn from(settled: Settled) -> Self {
        let (refunded, charged, forgiven) = match settled {
            Settled::Even => (0, 0, 0),
            Settled::Back { permits } => (permits, 0, 0),
            Settled::Owed { permits, forgiven, .. } => (0, permits, forgiven),
        };
        let [refunded, charged, forgiven] = [refunded, charged, forgiven].map(double);
        Self { refunded, charged, forgiven }
    }
}

impl From<charge::Charged> for Charged {
    fn from(charged: charge::Charged) -> Self {
        let [booked, forgiven, debt] = [charged.booked, charged.forgiven, charged.debt].map(double);
        Self { booked, forgiven, debt }
    }
}

const fn debt(is_carried: bool) -> Debt {
    if is_carried { Debt::CARRIED } else { Debt::FORGOTTEN }
}

/// Returns what all that share a limiter must have in common, as users write it.
fn config_of(policies: &Policies, options: &Options, max_waiting: Option<u32>) -> String {
    let mut config = policies.to_string();
    if options.is_debt_carried {
        config.push_str(", debt carried");
    }
    if let Some(Ok(max)) = options.max_debt.as_ref().map(duration) {
        let _ = write!(config, ", maxDebt {max:?}");
    }
    if let Some(waiters) = max_waiting {
        let _ = write!(config, ", maxWaiting {waiters}");
    }
    config
}

/// Converts a bound of the wait queue.
fn bound(waiters: f64) -> Result<u32> {
    let number = permits(waiters).ok().and_then(|waiters| u32::try_from(waiters).ok());
    number.filter(|waiters| *waiters > 0).ok_or_else(|| {
        invalid(format_args!(
            "the bound of the wait queue is {waiters}; must be a whole number from 1 to 4294967295"
        ))
    })
}
