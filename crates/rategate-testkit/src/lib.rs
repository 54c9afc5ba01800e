//! Tools for tests of code that uses `rategate`.
//!
//! | task | item |
//! |---|---|
//! | to pass days in no time | [`ManualClock`](rategate::ManualClock) of `rategate` itself |
//! | to drive tasks on such a clock | [`executor`] |
//! | to check that grants keep a ceiling in every window | [`oracle::Grants`] |
//! | to know what limits decide, call by call | [`oracle::Oracle`] |
//! | to play a scenario file on a limiter | [`scenario`] |
//! | to meet a slow, unreachable or lossy store | [`faulty::FaultyStore`] |
//! | to test a store of your own | [`conformance`] |
//! | to test by real time that a wrapper waits | [`stopwatch`] |
//! | to start Redis or Valkey for a test | `redis`, with the feature `redis-server` |
//! | to test in a forked child | `forked`, with the feature `fork` |
//!
//! ```
//! use rategate::{Clock, Gcra, Limiter, ManualClock};
//! use rategate_testkit::oracle::Grants;
//!
//! let clock = ManualClock::new();
//! let limiter = Limiter::with_clock(Gcra::per_second(10).burst(5), clock.clone());
//! let mut grants = Grants::default();
//! for _ in 0..100 {
//!     limiter.acquire(1)?; // Waits in no time.
//!     grants.add(clock.now_ns(), 1);
//! }
//! assert_eq!(grants.fullest_window(1_000_000_000), (14, 0));
//! # Ok::<(), rategate::AcquireError>(())
//! ```

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::print_stderr,
    clippy::similar_names,
    clippy::unwrap_used,
    reason = "for tests: they compute in plain numbers, and a panic is how they fail"
)]

pub mod conformance;
pub mod executor;
pub mod faulty;
#[cfg(all(feature = "fork", unix))]
pub mod forked;
pub mod oracle;
#[cfg(feature = "redis-server")]
pub mod redis;
pub mod scenario;
pub mod stopwatch;

/// The examples of the crate's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// Converts a duration to nanoseconds, for tests that count in them.
///
/// # Panics
///
/// Panics beyond 584 years.
#[must_use]
pub fn ns(time: std::time::Duration) -> u64 {
    rategate_core::span::exact_ns(time).expect("no test takes 584 years")
}
