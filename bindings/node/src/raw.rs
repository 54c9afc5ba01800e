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
//! * A function holds a reference of the buffer that it writes grants to, so the buffer's memory
//!   stays. The package never hands out the buffer, so no one detaches it.
//! * A callback runs on the thread of its environment, with a live `env` and `info`.
//! * No panic leaves a callback.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::{FromNapiValue, JsValue, Unknown};
use napi::{Env, Result, check_status, sys};
use rategate::Decision;
use rategate_core::span::whole_ns;
use rategate_ffi::{Begun, Ended, Hub, KeyRef, Keyed, Limiter, Replies, Taken, WaitId};

use crate::grant::{MORE_AFTER, REMAINING, RESET_AFTER};
use crate::hub::LastEnd;
use crate::number::{double, whole};
use crate::store::{self, Last};

/// The answer to a call that a method decides.
const UNDECIDED: f64 = f64::NAN;

/// The longest key that is read without a buffer of its own, in bytes.
const SHORT_KEY: usize = 128;

/// Returns a function that tries, and writes its grant to `words`.
pub(crate) fn try_function<'env>(
    env: &'env Env,
    limiter: Limiter,
    words: Unknown,
) -> Result<Unknown<'env>> {
    function(env, c"tryAcquire", Try(limiter), Some(words))
}

/// Returns a function that tries, and writes its grant and the limit's numbers to `words`.
pub(crate) fn check_function<'env>(
    env: &'env Env,
    limiter: Limiter,
    words: Unknown,
) -> Result<Unknown<'env>> {
    function(env, c"check", Check(limiter), Some(words))
}

/// Returns a function that tries, and writes to `words` when more than what remains is free.
pub(crate) fn pass_function<'env>(
    env: &'env Env,
    limiter: Limiter,
    words: Unknown,
) -> Result<Unknown<'env>> {
    function(env, c"pass", Pass(limiter), Some(words))
}

/// Returns a function that begins a wait: an id, or 0 for a grant of nothing, which it writes to
/// `words`.
pub(crate) fn begin_function<'env>(
    env: &'env Env,
    hub: Arc<Hub>,
    limiter: Limiter,
    words: Unknown,
) -> Result<Unknown<'env>> {
    function(env, c"begin", Begin(hub, limiter), Some(words))
}

/// Returns a function that ends the next wait: 0 for none, its id for a grant, which it writes to
/// `words`, or minus its id for an error, which it leaves in `error`.
pub(crate) fn next_function<'env>(
    env: &'env Env,
    hub: Arc<Hub>,
    last: LastEnd,
    words: Unknown,
) -> Result<Unknown<'env>> {
    function(env, c"next", Next(hub, last), Some(words))
}

/// Returns a function that ends the next call of a store whose reply has come: 0 for none, its id
/// for a plain grant, which it writes to `words`, or minus its id for what it leaves in `last`.
pub(crate) fn next_reply_function<'env>(
    env: &'env Env,
    replies: Arc<Replies<(store::Ended, bool)>>,
    last: Last,
    words: Unknown,
) -> Result<Unknown<'env>> {
    function(env, c"next", NextReply(replies, last), Some(words))
}

/// Returns a function that peeks.
pub(crate) fn peek_function(env: &Env, limiter: Limiter) -> Result<Unknown<'_>> {
    function(env, c"peek", Peek(limiter), None)
}

/// Returns a function that tries for a key, and writes its grant to `words`.
pub(crate) fn keyed_function<'env>(
    env: &'env Env,
    keyed: Keyed,
    words: Unknown,
) -> Result<Unknown<'env>> {
    function(env, c"tryAcquire", TryKey(keyed), Some(words))
}

/// Returns a function that tries for a key, and writes its grant and the limit's numbers to
/// `words`.
pub(crate) fn keyed_check_function<'env>(
    env: &'env Env,
    keyed: Keyed,
    words: Unknown,
) -> Result<Unknown<'env>> {
    function(env, c"check", CheckKey(keyed), Some(words))
}

/// Returns a function that tries for a key, and writes to `words` when more than what remains is
/// free.
pub(crate) fn keyed_pass_function<'env>(
    env: &'env Env,
    keyed: Keyed,
    words: Unknown,
) -> Result<Unknown<'env>> {
    function(env, c"pass", PassKey(keyed), Some(words))
}

/// Returns a function that peeks for a key.
pub(crate) fn keyed_peek_function(env: &Env, keyed: Keyed) -> Result<Unknown<'_>> {
    function(env, c"peek", PeekKey(keyed), None)
}

/// The part of a function that answers to its arguments.
trait Answer: 'static {
    fn answer(&self, arguments: &Arguments, words: &Words) -> Option<f64>;
}

struct Try(Limiter);
struct Check(Limiter);
struct Pass(Limiter);
struct Begin(Arc<Hub>, Limiter);
struct Next(Arc<Hub>, LastEnd);
struct NextReply(Arc<Replies<(store::Ended, bool)>>, Last);
struct Peek(Limiter);
struct TryKey(Keyed);
struct CheckKey(Keyed);
struct PassKey(Keyed);
struct PeekKey(Keyed);

impl Answer for Try {
    #[inline]
    fn answer(&self, arguments: &Arguments, words: &Words) -> Option<f64> {
        self.0.try_acquire(arguments.permits(0)?).ok().map(|decision| decided(decision, words))
    }
}

impl Answer for Check {
    fn answer(&self, arguments: &Arguments, words: &Words) -> Option<f64> {
        let decision = self.0.try_acquire(arguments.permits(0)?).ok()?;
        let answer = decided(decision, words);
        let status = self.0.status().ok()?;
        words.write(REMAINING, &[status.remaining]);
        words.write(RESET_AFTER, &[status.fresh_in.map_or(u64::MAX, whole_ns)]);
        Some(answer)
    }
}

impl Answer for Pass {
    fn answer(&self, arguments: &Arguments, words: &Words) -> Option<f64> {
        let decision = self.0.try_acquire(arguments.permits(0)?).ok()?;
        if !decision.is_granted() {
            return Some(answered(&decision));
        }
        let remaining = self.0.remaining().ok()?;
        let more = self.0.peek(remaining.saturating_add(1)).ok().flatten();
        Some(passed(&decision, remaining, more, words))
    }
}

impl Answer for Begin {
    fn answer(&self, arguments: &Arguments, words: &Words) -> Option<f64> {
        Some(match self.0.begin_later(&self.1, arguments.permits(0)?, None).ok()? {
            Begun::Taken(Taken::Granted(grant)) => {
                words.write(0, &grant.words());
                0.0
            }
            Begun::Taken(Taken::Held(_)) => return None,
            Begun::Waits(WaitId(id)) => double(id),
        })
    }
}

impl Answer for Next {
    fn answer(&self, _arguments: &Arguments, words: &Words) -> Option<f64> {
        Some(match self.0.next() {
            Some(Ended { wait: WaitId(id), end: Ok(Taken::Granted(grant)) }) => {
                words.write(0, &grant.words());
                double(id)
            }
            Some(Ended { wait: WaitId(id), end: Ok(Taken::Held(held)) }) => {
                self.1.set(Ok(held));
                -double(id)
            }
            Some(Ended { wait: WaitId(id), end: Err(error) }) => {
                self.1.set(Err(error));
                -double(id)
            }
            None => 0.0,
        })
    }
}

impl Answer for NextReply {
    fn answer(&self, _arguments: &Arguments, words: &Words) -> Option<f64> {
        let Some((id, (ended, is_refundable))) = self.0.next() else { return Some(0.0) };
        Some(match self.1.unless_plain(ended, is_refundable) {
            Some(numbers) => {
                words.write(0, &numbers);
                double(id)
            }
            None => -double(id),
        })
    }
}

impl Answer for Peek {
    fn answer(&self, arguments: &Arguments, _words: &Words) -> Option<f64> {
        let wait = self.0.peek(arguments.permits(0)?).ok()?;
        Some(waited(wait))
    }
}

impl Answer for TryKey {
    #[inline]
    fn answer(&self, arguments: &Arguments, words: &Words) -> Option<f64> {
        let permits = arguments.permits(1)?;
        let decided = |key: &[u8]| {
            Some(decided(self.0.try_acquire(KeyRef::Bytes(key), permits).ok()?, words))
        };
        arguments.with_key(0, decided)?
    }
}

impl Answer for CheckKey {
    fn answer(&self, arguments: &Arguments, words: &Words) -> Option<f64> {
        let permits = arguments.permits(1)?;
        let checked = |key: &[u8]| {
            let checked = self.0.try_acquire_with_status(KeyRef::Bytes(key), permits);
            let (decision, status) = checked.ok()?;
            let answer = decided(decision, words);
            words.write(REMAINING, &[status.remaining]);
            words.write(RESET_AFTER, &[status.fresh_in.map_or(u64::MAX, whole_ns)]);
            Some(answer)
        };
        arguments.with_key(0, checked)?
    }
}

impl Answer for PassKey {
    fn answer(&self, arguments: &Arguments, words: &Words) -> Option<f64> {
        let permits = arguments.permits(1)?;
        let passed = |key: &[u8]| {
            let (decision, remaining, more) =
                self.0.try_acquire_then_peek(KeyRef::Bytes(key), permits).ok()?;
            Some(passed(&decision, remaining, more, words))
        };
        arguments.with_key(0, passed)?
    }
}

impl Answer for PeekKey {
    fn answer(&self, arguments: &Arguments, _words: &Words) -> Option<f64> {
        let permits = arguments.permits(1)?;
        let peeked = |key: &[u8]| self.0.peek(KeyRef::Bytes(key), permits).ok();
        let wait = arguments.with_key(0, peeked)??;
        Some(waited(wait))
    }
}

#[inline]
fn decided(decision: Decision, words: &Words) -> f64 {
    if let Decision::Granted(grant) = &decision {
        words.write(0, &grant.words());
    }
    answered(&decision)
}

/// Answers a grant with what remains, and without its words, which requests do not keep.
fn passed(decision: &Decision, remaining: u64, more: Option<Duration>, words: &Words) -> f64 {
    words.write(MORE_AFTER, &[waited(more).to_bits()]);
    if decision.is_granted() { double(remaining) } else { answered(decision) }
}

#[inline]
fn answered(decision: &Decision) -> f64 {
    match decision {
        Decision::Granted(_) => 0.0,
        // Never zero, so that the sign tells a denial from a grant.
        Decision::Denied(denial) => {
            denial.retry_after().map_or(f64::NEG_INFINITY, |wait| -double(whole_ns(wait)))
        }
    }
}

/// Returns a wait in nanoseconds, or -1 where time does not help.
fn waited(wait: Option<Duration>) -> f64 {
    wait.map_or(-1.0, |wait| double(whole_ns(wait)))
}

/// The buffer of an environment that functions write to: see [`grant`](crate::grant).
struct Words {
    start: *mut u64,
    count: usize,
    reference: sys::napi_ref,
}

impl Words {
    /// Without a buffer.
    const NONE: Self = Self { start: ptr::null_mut(), count: 0, reference: ptr::null_mut() };

    /// Keeps a buffer.
    fn of(env: &Env, buffer: Unknown) -> Result<Self> {
        let (mut start, mut bytes, mut reference) = (ptr::null_mut(), 0, ptr::null_mut());
        // SAFETY: the environment and the value are those of the running call.
        unsafe {
            let (env, buffer) = (env.raw(), buffer.raw());
            check_status!(sys::napi_get_arraybuffer_info(
                env,
                buffer,
                &raw mut start,
                &raw mut bytes
            ))?;
            check_status!(sys::napi_create_reference(env, buffer, 1, &raw mut reference))?;
        }
        // V8 aligns the memory of buffers to 8 bytes at least.
        Ok(Self { start: start.cast(), count: bytes >> 3, reference })
    }

    /// Writes words from `at` on; none that lie behind the end.
    #[inline]
    fn write(&self, at: usize, words: &[u64]) {
        if at.checked_add(words.len()).is_some_and(|end| end <= self.count) {
            // SAFETY: the reference keeps the memory, they fit, and only this thread uses it.
            unsafe { ptr::copy_nonoverlapping(words.as_ptr(), self.start.add(at), words.len()) };
        }
    }
}

/// The data of a function.
struct Data<A> {
    own: A,
    words: Words,
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

/// Creates a function of JavaScript that owns `own`.
fn function<'env, A: Answer>(
    env: &'env Env,
    name: &CStr,
    own: A,
    buffer: Option<Unknown>,
) -> Result<Unknown<'env>> {
    let words = buffer.map_or(Ok(Words::NONE), |buffer| Words::of(env, buffer))?;
    let env = env.raw();
    let data: *mut c_void = Box::into_raw(Box::new(Data { own, words })).cast();
    let mut made = ptr::null_mut();
    // SAFETY: the environment is live, the name has this length, and `data` is a `Data<A>`.
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
        // SAFETY: no finalizer frees it, and no one calls a function that was made.
        unsafe { drop_data::<A>(env, data, ptr::null_mut()) };
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
        let Data { own, words } = unsafe { &*data.cast::<Data<A>>() };
        // A limiter stays usable after a panic: it takes a poisoned lock.
        let answer = catch_unwind(AssertUnwindSafe(|| own.answer(&arguments, words)));
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
    env: sys::napi_env,
    data: *mut c_void,
    _hint: *mut c_void,
) {
    // SAFETY: `function::<A>` leaked this box, and Node calls the finalizer once.
    let Data { own, words } = *unsafe { Box::from_raw(data.cast::<Data<A>>()) };
    if !words.reference.is_null() {
        // SAFETY: it is this function's own. A failure leaves it to the end of the environment.
        let _ = unsafe { sys::napi_delete_reference(env, words.reference) };
    }
    let _ = catch_unwind(AssertUnwindSafe(|| drop(own)));
}
