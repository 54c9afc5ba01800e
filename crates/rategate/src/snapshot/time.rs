//! The instant of saving, and the time that a limit was away.

use std::time::Duration;

use rategate_core::saved::RestoreContext;
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, wall_ns};
use rategate_core::span::whole_ns;

/// The measure of the time that has passed for a limit since it was saved.
///
/// Time earns permits, and an operator of the machine can set the wall clock. Set back, it
/// shows less time than has passed, and at worst none, which is safe. Set forward, it is
/// indistinguishable from a long time away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downtime {
    /// The time by the wall clock. For machines with a well-kept clock.
    Wall,
    /// The time by the wall clock, but at most this.
    ///
    /// A wall clock that has jumped forward earns no more than that, and a longer time away counts
    /// as this.
    AtMost(Duration),
    /// This time, whatever the wall clock shows. Zero is always safe.
    Exactly(Duration),
}

/// The instant of saving, by the limit's own clock and by the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAt {
    clock_ns: u64,
    wall_ns: u64,
}

impl SavedAt {
    /// Creates the record of a limit that is saved now, when its own clock shows, or has just
    /// shown, `clock_ns`.
    #[must_use]
    pub fn now(clock_ns: u64) -> Self {
        // Read after the other clock: time between the two readings counts as not passed.
        Self { clock_ns, wall_ns: wall_ns() }
    }

    pub(super) const fn of(clock_ns: u64, wall_ns: u64) -> Self {
        Self { clock_ns, wall_ns }
    }

    /// Returns the reading of the limit's own clock.
    #[must_use]
    pub const fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    /// Returns the reading of the wall clock, in nanoseconds since 1970.
    #[must_use]
    pub const fn wall_ns(&self) -> u64 {
        self.wall_ns
    }

    /// Returns the time that has passed since the saving, measured by `downtime`.
    #[must_use]
    pub fn elapsed_ns(&self, downtime: Downtime) -> u64 {
        let by_wall_ns = wall_ns().saturating_sub(self.wall_ns);
        match downtime {
            Downtime::Wall => by_wall_ns,
            Downtime::AtMost(max_downtime) => by_wall_ns.min(whole_ns(max_downtime)),
            Downtime::Exactly(passed) => whole_ns(passed),
        }
    }

    /// Returns the instant of restoring on a clock that continues where the old one was left.
    ///
    /// [`MonotonicClock::starting_at`](crate::MonotonicClock::starting_at) with
    /// [`RestoreContext::now_ns`] is such a clock. No instant lies before its zero.
    #[must_use]
    pub fn going_on(&self, downtime: Downtime) -> RestoreContext {
        let elapsed_ns = self.elapsed_ns(downtime);
        RestoreContext { now_ns: self.clock_ns.saturating_add(elapsed_ns), elapsed_ns }
    }

    /// Returns the instant of restoring on another clock.
    #[must_use]
    pub fn on_clock(&self, clock: &(impl Clock + ?Sized), downtime: Downtime) -> RestoreContext {
        // Read before the other clock: time between the two readings counts as not passed.
        let elapsed_ns = self.elapsed_ns(downtime);
        RestoreContext { now_ns: clock.now_ns(), elapsed_ns }
    }
}
