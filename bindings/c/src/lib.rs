//! The package of rategate for C.
//!
//! `include/rategate.h` is written from the comments and signatures of this crate by
//! `cargo xtask c`. The functions are thin: they call `rategate-ffi`, and turn results into
//! numbers. Arguments have types that C's pointers are valid values of, so that the only `unsafe`
//! blocks are those of [`raw`].

pub mod clock;
pub mod decision;
pub mod failure;
pub mod hold;
#[cfg(unix)]
pub mod hub;
pub mod keyed;
pub mod limiter;
mod policies;
pub mod raw;
pub mod reservation;
pub mod returns;
mod status;

use std::time::Duration;

/// No bound on a wait, or, as a result, that time alone does not help.
pub const RATEGATE_FOREVER: u64 = u64::MAX;

/// Returns a span as nanoseconds: `RATEGATE_FOREVER` for none.
fn ns(span: impl Into<Option<Duration>>) -> u64 {
    let ns = span.into().map(|span| u64::try_from(span.as_nanos()));
    ns.and_then(Result::ok).unwrap_or(RATEGATE_FOREVER)
}

/// Returns the bound of a wait.
fn timeout(ns: u64) -> Option<Duration> {
    (ns != RATEGATE_FOREVER).then_some(Duration::from_nanos(ns))
}
