//! A simulator with a virtual clock for rate limiters: callers and arrivals, scenario files, the
//! window-count oracle, tapes and pictures.
//!
//! ```
//! use rategate_sim::scenario::Scenario;
//! use rategate_sim::world;
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
//! # Ok::<(), rategate_sim::scenario::ScenarioError>(())
//! ```

pub mod clock;
pub mod oracle;
pub mod report;
pub mod scenario;
pub mod server;
pub mod suite;
pub mod svg;
pub mod world;

mod arrivals;
mod drawing;
mod given;
mod held;
mod judge;
mod picture;
mod steps;
mod tape;
mod text;
mod wait_queue;

/// The examples of the crate's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
