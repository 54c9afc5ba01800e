//! The harness that times our engines, alone or against others, and what its programs share.
//!
//! The sources of the harness are those of `rategate bench`, which is published and so may depend
//! on published crates only. Here the same files are a library for the benches of this repository.

#[cfg(unix)]
pub mod clock;
#[path = "../../crates/rategate-cli/src/bench/engines.rs"]
pub mod engines;
#[path = "../../crates/rategate-cli/src/bench/floors.rs"]
pub mod floors;
#[path = "../../crates/rategate-cli/src/bench/harness.rs"]
pub mod harness;
pub mod program;
#[cfg(feature = "report")]
pub mod report;
pub mod scratch;
#[path = "../../crates/rategate-cli/src/bench/starts.rs"]
pub mod starts;
#[path = "../../crates/rategate-cli/src/bench/truth.rs"]
pub mod truth;
pub mod usage;

#[cfg(doctest)]
mod book;
