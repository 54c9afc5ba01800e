//! The waits of one environment: the main thread, or a worker.

use napi::bindgen_prelude::{BigInt, Either, Function};
use napi::threadsafe_function::ThreadsafeFunctionCallMode::NonBlocking;
use napi_derive::napi;
use rategate_ffi::{Begun, Delivered, WaitId};

use crate::failure::{Failure, Result, failed, of_node};
use crate::grant::Grant;
use crate::limiter::Limiter;
use crate::number::{double, duration, permits, whole};

/// The waits that have ended, in the order in which their callers go on.
#[napi(object, object_from_js = false)]
#[derive(Debug)]
pub struct Ends {
    pub ids: Vec<f64>,
    pub ends: Vec<Either<Grant, Failure>>,
}

/// The waits of one environment. Node drops it with the environment, which withdraws them.
#[napi]
#[derive(Debug)]
pub struct Hub(rategate_ffi::Hub);

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
        Ok(Self(rategate_ffi::Hub::new(move || {
            // It fails only where the environment ends, and its waits with it.
            let _ = function.call((), NonBlocking);
        })))
    }

    /// Returns the grant of permits that are free, or the id of a wait.
    #[napi(catch_unwind)]
    pub fn begin(
        &self,
        limiter: &Limiter,
        number: f64,
        timeout: Option<BigInt>,
    ) -> Result<Either<Grant, f64>> {
        let timeout = timeout.as_ref().map(duration).transpose()?;
        let begun = self.0.begin(&limiter.0, permits(number)?, timeout).map_err(failed)?;
        Ok(match begun {
            Begun::Granted(grant) => Either::A(Grant(grant)),
            Begun::Waits(WaitId(id)) => Either::B(double(id)),
        })
    }

    #[napi(catch_unwind)]
    pub fn cancel(&self, id: f64) -> bool {
        whole(id).is_some_and(|id| self.0.cancel(WaitId(id)))
    }

    #[napi(catch_unwind)]
    pub fn drain(&self) -> Ends {
        let (mut ids, mut ends) = (Vec::new(), Vec::new());
        self.0.drain(|WaitId(id), end| {
            ids.push(double(id));
            ends.push(match end {
                Ok(grant) => Either::A(Grant(grant)),
                Err(error) => Either::B(Failure::of(error)),
            });
            // Promises that are resolved in order go on in order, before anything else runs.
            Delivered::Taken
        });
        Ends { ids, ends }
    }
}
