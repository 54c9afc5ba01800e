//! Fleets of up to thousands of nodes that keep one limit together, judged in true time.
//!
//! The nodes are limiters of [`rategate::distributed`] and the store is a
//! [`MemoryStore`](rategate::store::MemoryStore), so what is judged is the code that programs run.
//! Messages are lost, late and doubled; nodes are cut off, and crash between a reservation and its
//! commit; clocks of nodes are wrong, and a replica without the newest state may take over, its
//! clock set back. Callers send each operation of a reservation until they hear a reply, some of
//! them through another node.
//!
//! # Laws
//!
//! * **Bound.** What is used is at most `N` in any window of the limit, and `N + Q` where nodes
//!   borrow permits without a guard. It counts at the instant of the store's decision, or at that
//!   of the node that had borrowed the permits. Of a reservation, what is used beyond the estimate
//!   and what is committed late is not part of it. A commit is late as well where a node had given
//!   up the borrowed permits, and has crashed since.
//! * **Once.** Where the store decides alone and nothing fails for good, it has counted in the end
//!   the sum of what was used, neither more nor less.
//!
//! ```
//! use rategate_testkit::fleet::{Plan, run};
//!
//! for seed in 0..20 {
//!     let report = run(&Plan::drawn(seed));
//!     assert_eq!(report.fault(), None, "seed {seed}");
//! }
//! ```

mod caller;
mod callers;
mod link;
mod messages;
mod network;
mod oracle;
mod plan;
mod world;

pub use self::network::Network;
pub use self::plan::{Call, Fault, FaultKind, Flaw, Plan, calls};

use self::world::World;

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The most that was used, within the estimates: in any window of a log, in one of a fixed
    /// window's grid, or over a bucket's rate in any time.
    pub max_used: u64,
    /// The most that it may be, if there is a bound.
    pub bound: Option<u64>,
    /// The permits used beyond the estimates, or committed late.
    pub over: u64,
    /// The final count of the store, and the sum of what was used, where both are known.
    pub counted: Option<(u64, u64)>,
    /// The events of the run.
    pub events: u64,
    /// The number of times that things happened to reservations.
    pub counts: Counts,
    /// The counts of calls without a reservation.
    pub calls: CallCounts,
}

/// The number of times that things happened to reservations in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reservations that callers heard of as held.
    pub held: u64,
    /// Those of them that a node held in borrowed permits.
    pub borrowed: u64,
    /// Reservations that were denied.
    pub denied: u64,
    /// Commits in time.
    pub committed: u64,
    /// Commits after the end.
    pub late: u64,
    /// Commits of reservations that had been lost.
    pub unknown: u64,
    /// Operations that had been decided before.
    pub repeated: u64,
    /// Messages that were lost.
    pub lost: u64,
    /// Messages that arrived twice.
    pub doubled: u64,
    /// Callers that died with their node before they could commit.
    pub died: u64,
    /// Nodes that crashed.
    pub crashes: u64,
}

/// The counts of calls without a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls that came, also to nodes that were down.
    pub made: u64,
    /// Calls that a node did not decide at once.
    pub waited: u64,
    /// Calls that were granted.
    pub granted: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that a node granted without the store, by its fallback.
    pub granted_alone: u64,
    /// Calls that a node denied without the store, by its fallback.
    pub denied_alone: u64,
    /// Requests that nodes sent to the store.
    pub requests: u64,
    /// Permits that a store had granted, of which its replica does not know.
    pub forgotten: u64,
}

/// Plays a plan to its end. Equal plans give equal reports.
#[must_use]
pub fn run(plan: &Plan) -> Report {
    World::new(plan).play()
}

impl Report {
    /// Returns the law that does not hold, with its numbers; `None` if all do.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        if let Some(bound) = self.bound.filter(|&bound| self.max_used > bound) {
            return Some(format!("{} used within a bound of {bound}", self.max_used));
        }
        let (counted, used) = self.counted.filter(|(counted, used)| counted != used)?;
        Some(format!("the store has counted {counted} of {used} used"))
    }

    /// Adds the counts of another run, and keeps the larger use.
    pub fn add(&mut self, other: &Self) {
        self.max_used = self.max_used.max(other.max_used);
        self.over += other.over;
        self.events += other.events;
        for (sum, more) in self.counts.all().into_iter().zip({ other.counts }.all()) {
            *sum += *more;
        }
    }
}

impl Counts {
    /// Returns all counts, in their order.
    pub fn all(&mut self) -> [&mut u64; 11] {
        let Self { held, borrowed, denied, committed, late, unknown, repeated, .. } = self;
        let Self { lost, doubled, died, crashes, .. } = self;
        [held, borrowed, denied, committed, late, unknown, repeated, lost, doubled, died, crashes]
    }
}
