//! A fleet: up to thousands of nodes that keep one limit together, through a store that may be slow, out of reach, gone
//! or forgetful.
//!
//! From one seed it plays the nodes' clocks, which start anywhere and run at rates of their own; the calls, and which
//! node each comes to; how long letters take, and which get lost; and what goes wrong meanwhile. The nodes run the
//! machines of [`rategate_core::node`], the store the core's own limits. An oracle sees all grants in true time, which
//! nobody in the fleet knows, and compares the fullest window with what the theory allows.
//!
//! ```
//! use rategate_sim::fleet::{self, Limit, Mode, Plan};
//!
//! let limit = Limit::Log { permits: 100, period_ns: 1_000_000_000 };
//! let mode = Mode::Leased { length_ns: 100_000_000, most_units: 10, guard: true };
//! let report = fleet::run(&Plan { drift_ppm: 200, ..Plan::new(20, limit, mode) });
//! assert!(report.used.most <= 100);
//! assert!(report.counts.questions < report.counts.calls);
//! ```

mod clock;
mod faults;
mod limit;
mod network;
mod node;
mod oracle;
mod plan;
mod queue;
mod report;
mod store;
mod tally;
mod traffic;
mod world;

pub use self::faults::{Fault, What, Whom};
pub use self::limit::Limit;
pub use self::network::Network;
pub use self::plan::{Fallback, Flaw, Mode, Plan};
pub use self::report::{Report, Seen};
pub use self::tally::{Counts, Share};
pub use self::traffic::{Shape, Traffic};

/// Plays a plan to its end. The same plan gives the same report.
#[must_use]
pub fn run(plan: &Plan) -> Report {
    world::World::new(plan, 0).play()
}

/// The same, with what was granted in each slice of `slice_ns`, and what each share became.
#[must_use]
pub fn run_in_slices(plan: &Plan, slice_ns: u64) -> Report {
    world::World::new(plan, slice_ns).play()
}
