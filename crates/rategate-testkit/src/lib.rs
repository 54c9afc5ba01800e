//! A world with a virtual clock for rate limiters, and tools for tests of code that uses
//! `rategate`.
//!
//! | task | item |
//! |---|---|
//! | to pass days in no time | `rategate::ManualClock` |
//! | to play a scenario file in a virtual world | [`scenario`], [`world`] |
//! | to check that grants keep a ceiling in every window | [`oracle::Grants`] |
//! | to know what limits decide, call by call | [`oracle::Oracle`] |
//! | to play limits that follow a server under load | [`server`] |
//! | to play a scenario file on a limiter | `player` |
//! | to drive tasks on a manual clock | `executor` |
//! | to meet a slow, unreachable or lossy store | `faulty::FaultyStore` |
//! | to test a store of your own | `conformance` |
//! | to test by real time that a wrapper waits | `stopwatch` |
//! | to play thousands of nodes that keep one limit | `fleet` |
//! | to start Redis or Valkey for a test | `redis`, with the feature `redis-server` |
//! | to test in a forked child | `forked`, with the feature `fork` |
//!
//! What has no link needs the feature `library`, which is on unless it is turned off.
//!
//! ```
//! use rategate_testkit::scenario::Scenario;
//! use rategate_testkit::world;
//!
//! let scenario = Scenario::parse(
//!     r#"
//!     [limit]
//!     policy = "sliding-log"
//!     permits = 2
//!     period = "1s"
//!
//!     [[caller]]
//!     operations = 4
//!     latency = "250ms"
//!     "#,
//! )?;
//! let report = world::run(&scenario);
//! assert_eq!(report.tape, "@@[z*500]@@");
//! assert_eq!(report.elapsed_ns, 1_500_000_000);
//! # Ok::<(), rategate_testkit::scenario::ScenarioError>(())
//! ```

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::print_stderr,
    clippy::similar_names,
    clippy::unwrap_used,
    reason = "for tests: they compute in plain numbers, and a panic is how they fail"
)]

pub mod clock;
pub mod oracle;
pub mod report;
pub mod scenario;
pub mod server;
pub mod suite;
pub mod svg;
pub mod world;

#[cfg(feature = "library")]
pub mod conformance;
#[cfg(feature = "library")]
pub mod executor;
#[cfg(feature = "library")]
pub mod faulty;
#[cfg(feature = "library")]
pub mod fleet;
#[cfg(all(feature = "fork", unix))]
pub mod forked;
#[cfg(feature = "library")]
pub mod player;
#[cfg(feature = "redis-server")]
pub mod redis;
#[cfg(feature = "library")]
pub mod stopwatch;

mod answer;
mod arrivals;
mod drawing;
mod judge;
mod named;
mod picture;
mod steps;
mod text;
mod wait_queue;

/// The examples of the crate's README, run as tests.
#[cfg(all(doctest, feature = "library"))]
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
