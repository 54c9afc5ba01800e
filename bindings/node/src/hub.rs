//! The waits of one environment: the main thread, or a worker.

use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{BigInt, BigUint64Array, Either, Float64Array, Function, Unknown};
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi_derive::napi;
use rategate_ffi::{Begun, Delivered, WaitId};

use crate::failure::{Failure, Result, failed, of_node};
use crate::grant::{GRANT_WORDS, to_words};
use crate::limiter::Limiter;
use crate::number::{double, duration, permits, whole};
use crate::raw;

/// The waits that have ended, in the order in which their callers go on.
#[napi(object, object_from_js = false)]
#[expect(missing_debug_implementations, reason = "an array of JavaScript has none")]
pub struct Ends {
    pub ids: Float64Array,
    /// The words of each grant, and as many zeros for a failure.
    pub words: BigUint64Array,
    /// The failures, each with its place in `ids`.
    pub failures: Vec<Failed>,
}

/// A wait that did not end in a grant.
#[napi(object, object_from_js = false)]
#[derive(Debug)]
pub struct Failed {
    pub at: u32,
    pub failure: Failure,
}

/// The waits of one environment. Node drops it with the environment, which withdraws them.
#[napi]
#[derive(Debug)]
pub struct Hub(Arc<rategate_ffi::Hub>);

#[napi]
impl Hub {
    /// Creates a hub, which calls `notify` in its environment when waits may have ended.
    ///
    /// It does not keep the process alive: JavaScript does, while waits are to.
    #[napi(constructor, catch_unwind)]
    pub fn new(notify: Function<(), ()>) -> Result<Self> {
        let function = notify
            .build_threadsafe_function::<()>()
            .weak::<true>()
            .callee_handled::<false>()
            .build()
            .map_err(|error| of_node(&error))?;
        let hub = rategate_ffi::Hub::new(move || {
            // It fails only where the environment ends, and its waits with it.
            let _ = function.call((), NonBlocking);
        });
        Ok(Self(Arc::new(hub)))
    }

    /// Returns the function `(permits = 1) => id` that begins waits without a timeout. 0 is a
    /// grant, which it writes to `words`, and NaN a call that [`begin`](Self::begin) decides.
    #[napi(catch_unwind)]
    pub fn fast_begin<'env>(
        &self,
        env: &'env Env,
        limiter: &Limiter,
        words: Unknown,
    ) -> Result<Unknown<'env>> {
        let (hub, limiter) = (Arc::clone(&self.0), limiter.0.clone());
        raw::begin_function(env, hub, limiter, words).map_err(|error| of_node(&error))
    }

    /// Returns the words of a grant of permits that are free, or the id of a wait.
    #[napi(catch_unwind)]
    pub fn begin(
        &self,
        limiter: &Limiter,
        number: f64,
        timeout: Option<BigInt>,
    ) -> Result<Either<BigUint64Array, f64>> {
        let timeout = timeout.as_ref().map(duration).transpose()?;
        let begun = self.0.begin(&limiter.0, permits(number)?, timeout).map_err(failed)?;
        Ok(match begun {
            Begun::Granted(grant) => Either::A(to_words(&grant).to_vec().into()),
            Begun::Waits(WaitId(id)) => Either::B(double(id)),
        })
    }

    #[napi(catch_unwind)]
    pub fn cancel(&self, id: f64) -> bool {
        whole(id).is_some_and(|id| self.0.cancel(WaitId(id)))
    }

    #[napi(catch_unwind)]
    pub fn drain(&self) -> Ends {
        let (mut ids, mut words, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        self.0.drain(|WaitId(id), end| {
            match end {
                Ok(grant) => words.extend(to_words(&grant)),
                Err(error) => {
                    words.extend([0; GRANT_WORDS]);
                    let at = u32::try_from(ids.len()).unwrap_or(u32::MAX);
                    failures.push(Failed { at, failure: Failure::of(error) });
                }
            }
            ids.push(double(id));
            // Promises that are resolved in order go on in order, before anything else runs.
            Delivered::Taken
        });
        Ends { ids: ids.into(), words: words.into(), failures }
    }
}
