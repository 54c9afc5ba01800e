//! A fleet of up to thousands of nodes that keep one limit together through a store. The store
//! may be slow, out of reach, unavailable, or lose its newest state.
//!
//! From one seed it plays: the nodes' clocks, each with its own origin and rate; the calls and
//! the nodes they come to; the delays and losses of messages; and the faults. The nodes run the
//! state machines of [`rategate_core::node`], the store runs the core's own limits. An oracle
//! sees all grants in true time, which no party in the fleet knows. It compares the fullest
//! window with the bound of the theory.
//!
//! ```
//! use rategate_testkit::fleet::{Limit, Mode, Plan, run};
//!
//! let limit = Limit::Log { permits: 100, period_ns: 1_000_000_000 };
//! let mode = Mode::Leased { length_ns: 100_000_000, max_units: 10, guard: true };
//! let report = run(&Plan { drift_ppm: 200, ..Plan::new(20, limit, mode) });
//! assert!(report.used.max <= 100);
//! assert!(report.counts.requests < report.counts.calls);
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
mod reservations;
mod store;
mod tally;
mod traffic;
mod world;

pub use self::faults::{Affected, Fault, FaultKind};
pub use self::limit::Limit;
pub use self::network::Network;
pub use self::plan::{Fallback, Flaw, Mode, Plan};
pub use self::report::{Report, Seen};
pub use self::reservations::{
    ReservationCounts, ReservationFlaw, ReservationPlan, ReservationReport, run_reservations,
};
pub use self::tally::{Counts, Share};
pub use self::traffic::{Shape, Traffic};

/// Plays a plan to its end. Equal plans give equal reports.
#[must_use]
pub fn run(plan: &Plan) -> Report {
    world::World::new(plan, 0).play()
}

/// Plays a plan to its end, and also reports the grants in each slice of `slice_ns` and the
/// changes of each share.
#[must_use]
pub fn run_in_slices(plan: &Plan, slice_ns: u64) -> Report {
    world::World::new(plan, slice_ns).play()
}
