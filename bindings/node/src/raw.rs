//! Functions of Node-API without a class around them, for the verbs that are called often.
//!
//! A method of a class costs some 400 ns, of which the limiter takes 20. A function that has its
//! limiter as its data costs a tenth. So each of these takes numbers or a key, and answers with
//! one number; NaN stands for all that is not simple, and a method of the class decides it then.
//!
//! # Safety
//!
//! * A function's data is a box that [`function`] leaks, and [`drop_data`] frees as the function
//!   is collected, or its environment ends. A function that runs is not collected, and its data is
//!   only ever shared.
//! * A callback runs on the thread of its environment, with a live `env` and `info`.
//! * No panic leaves a callback.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use napi::bindgen_prelude::{FromNapiValue, Unknown};
use napi::{Env, Result, check_status, sys};
use rategate::Decision;
use rategate_ffi::{Keyed, Limiter};

use crate::number::{double, whole};

/// The answer to a call that a method decides.
const UNDECIDED: f64 = f64::NAN;

/// The longest key that is read without a buffer of its own, in bytes.
const SHORT_KEY: usize = 128;

/// Returns a function that tries.
pub(crate) fn try_function(env: &Env, limiter: Limiter) -> Result<Unknown<'_>> {
    function(env, c"tryAcquire", Try(limiter))
}

/// Returns a function that peeks.
pub(crate) fn peek_function(env: &Env, limiter: Limiter) -> Result<Unknown<'_>> {
    function(env, c"peek", Peek(limiter))
}

/// Returns a function that tries for a key.
pub(crate) fn keyed_function(env: &Env, keyed: Keyed) -> Result<Unknown<'_>> {
    function(env, c"tryAcquire", TryKey(keyed))
}

/// What a function answers to its arguments.
trait Answer: 'static {
    fn answer(&self, arguments: &Arguments) -> Option<f64>;
}

struct Try(Limiter);
struct Peek(Limiter);
struct TryKey(Keyed);

impl Answer for Try {
    #[inline]
    fn answer(&self, arguments: &Arguments) -> Option<f64> {
        self.0.try_acquire(arguments.permits(0)?).ok().map(decided)
    }
}

impl Answer for Peek {
    fn answer(&self, arguments: &Arguments) -> Option<f64> {
        let wait = self.0.peek(arguments.permits(0)?).ok()?;
        Some(wait.map_or(-1.0, |wait| u64::try_from(wait.as_nanos()).map_or(UNDECIDED, double)))
    }
}

impl Answer for TryKey {
    #[inline]
    fn answer(&self, arguments: &Arguments) -> Option<f64> {
        let permits = arguments.permits(1)?;
        arguments.with_key(0, |key| self.0.try_acquire(key, permits).ok().map(decided))?
    }
}

#[inline]
fn decided(decision: Decision) -> f64 {
    match decision {
        Decision::Granted(grant) => double(grant.remaining()),
        Decision::Denied(denial) => denial.retry_after().map_or(f64::NEG_INFINITY, |wait| {
            // Never zero, so that the sign tells a denial from a grant.
            -u64::try_from(wait.as_nanos()).map_or(f64::INFINITY, double)
        }),
    }
}

/// The arguments of a call, of at most two.
struct Arguments {
    env: sys::napi_env,
    count: usize,
    values: [sys::napi_value; 2],
}

impl Arguments {
    /// Reads a number of permits; 1 without one. `None` if it is anything else.
    #[inline]
    fn permits(&self, index: usize) -> Option<u64> {
        if index >= self.count {
            return Some(1);
        }
        let mut number = 0.0;
        // SAFETY: the environment and the value are those of the running callback.
        let status = unsafe {
            sys::napi_get_value_double(self.env, *self.values.get(index)?, &raw mut number)
        };
        (status == sys::Status::napi_ok).then(|| whole(number)).flatten()
    }

    /// Calls `with` on the bytes of a text. `None` if it is anything else.
    #[inline]
    fn with_key<T>(&self, index: usize, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let mut short = [0_u8; SHORT_KEY];
        let length = self.copy(index, &mut short)?;
        // A text that fills the buffer may go on.
        if length.saturating_add(4) < SHORT_KEY {
            return short.get(..length).map(with);
        }
        let mut long = vec![0_u8; self.copy(index, &mut [])?.checked_add(1)?];
        let length = self.copy(index, &mut long)?;
        long.get(..length).map(with)
    }

    /// Copies a text and a zero into a buffer, and returns the bytes of the text that fitted;
    /// into an empty buffer nothing, and returns the bytes of the whole text.
    #[inline]
    fn copy(&self, index: usize, into: &mut [u8]) -> Option<usize> {
        let value = *self.values.get(index).filter(|_| index < self.count)?;
        let mut length = 0;
        let start = if into.is_empty() { ptr::null_mut() } else { into.as_mut_ptr() };
        // SAFETY: as in `permits`; Node-API writes at most `into.len()` bytes, or only a length.
        let status = unsafe {
            sys::napi_get_value_string_utf8(
                self.env,
                value,
                start.cast(),
                into.len(),
                &raw mut length,
            )
        };
        (status == sys::Status::napi_ok).then_some(length)
    }
}

/// Creates a function of JavaScript that owns `answer`.
fn function<'env, A: Answer>(env: &'env Env, name: &CStr, answer: A) -> Result<Unknown<'env>> {
    let env = env.raw();
    let data: *mut c_void = Box::into_raw(Box::new(answer)).cast();
    let mut made = ptr::null_mut();
    // SAFETY: the environment is live, the name ends with a zero, and `data` is an `A`.
    let created = unsafe {
        let length = isize::try_from(name.count_bytes()).unwrap_or(0);
        let status = sys::napi_create_function(
            env,
            name.as_ptr(),
            length,
            Some(call::<A>),
            data,
            &raw mut made,
        );
        check_status!(status).and_then(|()| {
            check_status!(sys::napi_add_finalizer(
                env,
                made,
                data,
                Some(drop_data::<A>),
                ptr::null_mut(),
                ptr::null_mut(),
            ))
        })
    };
    if let Err(error) = created {
        // SAFETY: no finalizer frees it, and a function that was made has been given to no one.
        drop(unsafe { Box::from_raw(data.cast::<A>()) });
        return Err(error);
    }
    // SAFETY: the value was made in this environment, in the scope of the running call.
    unsafe { Unknown::from_napi_value(env, made) }
}

/// Answers a call.
unsafe extern "C" fn call<A: Answer>(
    env: sys::napi_env,
    info: sys::napi_callback_info,
) -> sys::napi_value {
    let mut arguments = Arguments { env, count: 2, values: [ptr::null_mut(); 2] };
    let mut data = ptr::null_mut();
    // SAFETY: Node calls with a live environment and call; `count` is the length of `values`.
    let status = unsafe {
        sys::napi_get_cb_info(
            env,
            info,
            &raw mut arguments.count,
            arguments.values.as_mut_ptr(),
            ptr::null_mut(),
            &raw mut data,
        )
    };
    let answer = if status == sys::Status::napi_ok && !data.is_null() {
        // SAFETY: `function::<A>` made the data of this callback, which lives while it runs.
        let own = unsafe { &*data.cast::<A>() };
        // The limiter's locks survive a panic as its state does: it takes a poisoned lock.
        let answer = catch_unwind(AssertUnwindSafe(|| own.answer(&arguments)));
        answer.ok().flatten().unwrap_or(UNDECIDED)
    } else {
        UNDECIDED
    };
    let mut number = ptr::null_mut();
    // SAFETY: as above. If it fails, the number is null, which is `undefined` for Node.
    let _ = unsafe { sys::napi_create_double(env, answer, &raw mut number) };
    number
}

/// Frees the data of a function that is collected.
unsafe extern "C" fn drop_data<A: Answer>(
    _env: sys::napi_env,
    data: *mut c_void,
    _hint: *mut c_void,
) {
    // SAFETY: `function::<A>` leaked this box, and Node calls the finalizer once.
    let own = unsafe { Box::from_raw(data.cast::<A>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(own)));
}
