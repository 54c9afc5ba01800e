//! Numbers of JavaScript, which are doubles, and exact ones, which are big integers.

use std::time::Duration;

use napi::bindgen_prelude::{BigInt, Either};
use napi_derive::napi;
use rategate_core::span;

use crate::failure::{Result, invalid};

/// The largest whole number below which every whole number is a double.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// Converts a number of permits. `None` unless it is whole, from 0 to 2^53 - 1.
#[inline]
pub(crate) fn whole(number: f64) -> Option<u64> {
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole and in range"
    )]
    let convert = |number: f64| number as u64;
    // NaN is in no range.
    ((0.0..=MAX_SAFE).contains(&number) && number.fract() == 0.0).then(|| convert(number))
}

/// Converts a number of permits, or says that it is none.
pub(crate) fn permits(number: f64) -> Result<u64> {
    whole(number).ok_or_else(|| {
        invalid(format_args!(
            "permits is {number}; must be a whole number from 0 to 9007199254740991"
        ))
    })
}

/// Converts to a double, rounded to 53 bits.
#[inline]
pub(crate) fn double(number: u64) -> f64 {
    #[expect(
        clippy::as_conversions,
        clippy::cast_precision_loss,
        reason = "callers that need all bits take the big integer"
    )]
    let number = number as f64;
    number
}

/// Converts a length of time to nanoseconds.
pub(crate) fn ns(time: Duration) -> BigInt {
    // A clock ends after 2^64 ns.
    BigInt::from(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Converts nanoseconds to a length of time.
pub(crate) fn duration(ns: &BigInt) -> Result<Duration> {
    match ns.get_u64() {
        (false, ns, true) => Ok(Duration::from_nanos(ns)),
        _ => Err(invalid("the time is negative, or 2^64 ns or more")),
    }
}

/// Converts an instant in milliseconds, of a clock that JavaScript reads, to nanoseconds.
pub(crate) fn instant_ns(ms: f64) -> Result<u64> {
    let since = Duration::try_from_secs_f64(ms / 1e3).ok();
    since.and_then(|since| u64::try_from(since.as_nanos()).ok()).ok_or_else(|| {
        invalid(format_args!("the instant is {ms}; must be milliseconds from 0 to 2^64 ns"))
    })
}

/// Reads a length of time, in milliseconds or as text, in nanoseconds. An error names the option.
#[napi(catch_unwind)]
pub(crate) fn span_ns(span: Either<f64, String>, name: String) -> Result<BigInt> {
    let text = match span {
        // The shortest decimal form of a double, without an exponent.
        Either::A(milliseconds) => format!("{milliseconds}ms"),
        Either::B(text) => text,
    };
    match span::parse(&text) {
        Ok(ns) => Ok(BigInt::from(ns)),
        Err(error) => Err(invalid(format_args!("{name} is {text:?}: {error}"))),
    }
}
