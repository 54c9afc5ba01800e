//! Loads whose operations are released at their due instants, and the calls that wait for them.

use napi::bindgen_prelude::{BigInt, Float64Array, Function};
use napi_derive::napi;
use rategate::pace::Release;
use rategate_ffi::Replies;

use crate::clock::{self, ManualClock};
use crate::failure::{Result, invalid};
use crate::hub::notifier;
use crate::number::{double, ns, whole};

/// The operations of a load.
#[napi]
#[derive(Debug)]
pub struct OpenLoop(rategate_ffi::OpenLoop);

/// An operation that may start now, in nanoseconds since the start of the load.
#[napi(object, object_from_js = false)]
#[derive(Debug)]
pub struct ReleaseNumbers {
    pub number: f64,
    pub scheduled_at_ns: BigInt,
    pub released_at_ns: BigInt,
}

#[napi]
impl OpenLoop {
    /// Starts part `part` of `parts` of a load.
    #[napi(constructor, catch_unwind)]
    pub fn new(load: String, part: f64, parts: f64, manual: Option<&ManualClock>) -> Result<Self> {
        let (Some(part), Some(parts)) = (whole(part), whole(parts)) else {
            return Err(invalid(format_args!(
                "part {part} of {parts}: both must be whole numbers from 0 to 9007199254740991"
            )));
        };
        let made = rategate_ffi::OpenLoop::new(&load, Some((part, parts)), clock::of(manual));
        made.map(Self).map_err(invalid)
    }

    #[napi(getter, catch_unwind)]
    pub fn now_ns(&self) -> BigInt {
        ns(self.0.now())
    }

    #[napi(catch_unwind)]
    pub fn close(&self) {
        self.0.close();
    }
}

/// The calls of one environment that wait for operations. Node drops it with the environment.
#[napi]
#[derive(Debug)]
pub struct LoadCalls {
    replies: Replies<Option<Release>>,
    last: Option<Release>,
}

#[napi]
impl LoadCalls {
    /// Creates a list of calls, which calls `notify` in its environment when some may have ended.
    ///
    /// It does not keep the process alive: JavaScript does, while calls are to.
    #[napi(constructor, catch_unwind)]
    pub fn new(notify: Function<(), ()>) -> Result<Self> {
        let replies = Replies::new(notifier(notify)?);
        Ok(Self { replies, last: None })
    }

    /// Waits for the next operation. Returns the id of the call, or 0 if it has ended, as
    /// [`last`](Self::last) says.
    #[napi(catch_unwind)]
    pub fn begin(&mut self, open_loop: &OpenLoop) -> f64 {
        match self.replies.begin(open_loop.0.wait_later()) {
            Some(Err(id)) => double(id),
            Some(Ok(ended)) => self.ended(ended, 0.0),
            // Node does not fork.
            None => self.ended(None, 0.0),
        }
    }

    /// Returns the calls that may have ended, in order.
    #[napi(catch_unwind)]
    pub fn woken(&self) -> Float64Array {
        let mut woken = Vec::new();
        self.replies.wake(|id| woken.push(double(id)));
        woken.into()
    }

    /// Releases the operation of a call, whose caller goes on now. Returns `false` if it is not
    /// due; then the call is woken again.
    #[napi(catch_unwind)]
    pub fn collect(&mut self, id: f64) -> bool {
        let ended = whole(id).and_then(|id| self.replies.collect(id));
        ended.is_some_and(|ended| self.ended(ended, true))
    }

    /// Returns what the call has ended with that did last: nothing at the end of the load.
    #[napi(catch_unwind)]
    pub fn last(&mut self) -> Option<ReleaseNumbers> {
        let release = self.last.take()?;
        Some(ReleaseNumbers {
            number: double(release.number()),
            scheduled_at_ns: ns(release.scheduled_at()),
            released_at_ns: ns(release.released_at()),
        })
    }

    /// Gives up a call. Its operation goes to the next.
    #[napi(catch_unwind)]
    pub fn cancel(&self, id: f64) -> bool {
        whole(id).is_some_and(|id| self.replies.cancel(id))
    }
}

impl LoadCalls {
    const fn ended<T: Copy>(&mut self, ended: Option<Release>, answer: T) -> T {
        self.last = ended;
        answer
    }
}
