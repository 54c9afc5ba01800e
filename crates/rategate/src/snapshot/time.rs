//! When a limit was saved, and how long it was away.

use std::time::Duration;

use rategate_core::portable::Since;
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, wall_ns};
use crate::limiter::whole_ns;

/// How much time a limit takes to have passed since it was saved.
///
/// Time earns permits, and the wall clock can be set by anybody who runs the machine. Set back, it tells of less
/// time than has passed, and at worst of none: safe. Set forward, it cannot be told from a long time away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downtime {
    /// What the wall clock says. For machines whose clock is kept.
    Wall,
    /// What the wall clock says, but no more than this: a wall clock that has jumped forward earns no more than
    /// that, and a longer time away counts as this.
    AtMost(Duration),
    /// This, whatever the wall clock says. Zero is always safe.
    Exactly(Duration),
}

/// When a limit was saved, by its own clock and by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAt {
    clock_ns: u64,
    wall_ns: u64,
}

impl SavedAt {
    /// When the limit's own clock shows, or has just shown, `clock_ns`.
    #[must_use]
    pub fn now(clock_ns: u64) -> Self {
        // Read after the other one: what passes between the two counts as not passed.
        Self { clock_ns, wall_ns: wall_ns() }
    }

    pub(super) const fn of(clock_ns: u64, wall_ns: u64) -> Self {
        Self { clock_ns, wall_ns }
    }

    /// What the limit's own clock showed.
    #[must_use]
    pub const fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    /// What the wall clock showed, in nanoseconds since 1970.
    #[must_use]
    pub const fn wall_ns(&self) -> u64 {
        self.wall_ns
    }

    /// How much time has passed since.
    #[must_use]
    pub fn elapsed_ns(&self, downtime: Downtime) -> u64 {
        let by_wall_ns = wall_ns().saturating_sub(self.wall_ns);
        match downtime {
            Downtime::Wall => by_wall_ns,
            Downtime::AtMost(longest) => by_wall_ns.min(whole_ns(longest)),
            Downtime::Exactly(passed) => whole_ns(passed),
        }
    }

    /// The instant of restoring on a clock that goes on from where the old one was left, such as a
    /// [`MonotonicClock`](crate::MonotonicClock::starting_at) that starts at [`Since::now_ns`]. Nothing lies before
    /// its zero.
    #[must_use]
    pub fn going_on(&self, downtime: Downtime) -> Since {
        let elapsed_ns = self.elapsed_ns(downtime);
        Since { now_ns: self.clock_ns.saturating_add(elapsed_ns), elapsed_ns }
    }

    /// The same on another clock.
    #[must_use]
    pub fn on_clock(&self, clock: &(impl Clock + ?Sized), downtime: Downtime) -> Since {
        // Read before the other one: what passes between the two counts as not passed.
        let elapsed_ns = self.elapsed_ns(downtime);
        Since { now_ns: clock.now_ns(), elapsed_ns }
    }
}
