//! The waits of one environment: the main thread, or a worker.

use std::sync::{Arc, Mutex, PoisonError};

use napi::Env;
use napi::bindgen_prelude::{BigInt, BigUint64Array, Either, Function, Unknown};
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi_derive::napi;
use rategate::AcquireError;
use rategate_ffi::{Begun, Taken, WaitId};

use crate::failure::{Failure, Result, failed, invalid, of_node};
use crate::hold::Hold;
use crate::limiter::Limiter;
use crate::number::{double, duration, permits, whole};
use crate::raw;

/// The waits of one environment. Node drops it with the environment, which withdraws them.
#[napi]
#[derive(Debug)]
pub struct Hub {
    waits: Arc<rategate_ffi::Hub>,
    last: LastEnd,
}

type End = std::result::Result<rategate_ffi::Hold, AcquireError>;

/// The end of the last wait that ended with a hold or with an error.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastEnd(Arc<Mutex<Option<End>>>);

impl LastEnd {
    pub(crate) fn set(&self, end: End) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    fn take_if(&self, is_wanted: impl FnOnce(&mut End) -> bool) -> Option<End> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take_if(is_wanted)
    }
}

#[napi]
impl Hub {
    /// Creates a hub, which calls `notify` in its environment when waits may have ended.
    ///
    /// It does not keep the process alive: JavaScript does, while waits are to.
    #[napi(constructor, catch_unwind)]
    pub fn new(notify: Function<(), ()>) -> Result<Self> {
        let hub = rategate_ffi::Hub::new(notifier(notify)?);
        Ok(Self { waits: Arc::new(hub), last: LastEnd::default() })
    }

    /// Returns the function `(permits = 1) => id` that begins waits without a timeout. 0 is a
    /// grant of nothing, which it writes to `words`, and NaN a call that [`begin`](Self::begin)
    /// decides.
    #[napi(catch_unwind)]
    pub fn fast_begin<'env>(
        &self,
        env: &'env Env,
        limiter: &Limiter,
        words: Unknown,
    ) -> Result<Unknown<'env>> {
        let (hub, limiter) = (Arc::clone(&self.waits), limiter.0.clone());
        raw::begin_function(env, hub, limiter, words).map_err(|error| of_node(&error))
    }

    /// Returns the function `() => id` that ends the next wait: it takes the permits now, and
    /// writes the grant to `words`. 0 is none, and below 0 is a wait that failed, or that holds
    /// its permits: see [`failure`](Self::failure) and [`held`](Self::held).
    #[napi(catch_unwind)]
    pub fn fast_next<'env>(&self, env: &'env Env, words: Unknown) -> Result<Unknown<'env>> {
        let (hub, last) = (Arc::clone(&self.waits), self.last.clone());
        raw::next_function(env, hub, last, words).map_err(|error| of_node(&error))
    }

    /// Returns why the last wait failed that did.
    #[napi(catch_unwind)]
    pub fn failure(&self) -> Option<Failure> {
        let failed = self.last.take_if(|end| end.is_err());
        failed.and_then(std::result::Result::err).map(Failure::of)
    }

    /// Returns the id of a wait, or the words of a grant of nothing.
    #[napi(catch_unwind)]
    pub fn begin(
        &self,
        limiter: &Limiter,
        number: f64,
        timeout: Option<BigInt>,
    ) -> Result<Either<BigUint64Array, f64>> {
        let timeout = timeout.as_ref().map(duration).transpose()?;
        let begun =
            self.waits.begin_later(&limiter.0, permits(number)?, timeout).map_err(failed)?;
        Ok(match begun {
            Begun::Taken(Taken::Granted(grant)) => Either::A(grant.words().to_vec().into()),
            Begun::Taken(Taken::Held(_)) => return Err(invalid("nothing is granted")),
            Begun::Waits(WaitId(id)) => Either::B(double(id)),
        })
    }

    /// Returns the id of a wait for a hold, or 0 for a hold of nothing, which is the
    /// [last](Self::held).
    #[napi(catch_unwind)]
    pub fn begin_hold(
        &self,
        limiter: &Limiter,
        number: f64,
        ttl: BigInt,
        timeout: Option<BigInt>,
    ) -> Result<f64> {
        let (ttl, timeout) = (duration(&ttl)?, timeout.as_ref().map(duration).transpose()?);
        let begun = self.waits.begin_hold(&limiter.0, permits(number)?, ttl, timeout);
        Ok(match begun.map_err(failed)? {
            Begun::Taken(Taken::Held(held)) => {
                self.last.set(Ok(held));
                0.0
            }
            Begun::Taken(Taken::Granted(_)) => return Err(invalid("nothing is held")),
            Begun::Waits(WaitId(id)) => double(id),
        })
    }

    /// Returns what the last wait holds, if it ended with a hold.
    #[napi(catch_unwind)]
    pub fn held(&self) -> Option<Hold> {
        let held = self.last.take_if(|end| end.is_ok());
        held.and_then(std::result::Result::ok).map(Hold::new)
    }

    #[napi(catch_unwind)]
    pub fn cancel(&self, id: f64) -> bool {
        whole(id).is_some_and(|id| self.waits.cancel(WaitId(id)))
    }
}

/// Returns what calls a function of an environment from any thread. It does not keep the process
/// alive.
pub(crate) fn notifier(notify: Function<(), ()>) -> Result<impl Fn() + Send + Sync + 'static> {
    let function = notify
        .build_threadsafe_function::<()>()
        .weak::<true>()
        .callee_handled::<false>()
        .build()
        .map_err(|error| of_node(&error))?;
    Ok(move || {
        // It fails only where the environment ends, and its calls with it.
        let _ = function.call((), NonBlocking);
    })
}
