//! The part of a limit that one of several nodes keeps alone, without a store.
//!
//! ```
//! use rategate_core::gcra::Gcra;
//! use rategate_core::node::{Divisible, Part};
//! use rategate_core::rate::Rate;
//!
//! let limit = Gcra::new(Rate::per_second(30), 10)?;
//! let parts = [0, 1, 2].map(|index| limit.part(Part::new(index, 3)?));
//! let bursts = parts.map(|part| part.map_or(0, |part| part.burst_size().get()));
//! assert_eq!(bursts, [4, 3, 3]);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Contract
//!
//! * **Sum.** The permits of all parts are those of the limit, exactly: the remainder goes to the
//!   first nodes, one permit each. A bucket's rate is divided as its burst is.
//! * **Nothing left.** A limit of fewer permits than nodes leaves some of them none.
//! * **Changes.** The number of nodes may change at any time: reconfigure the limiter of each node
//!   with its new part. While nodes change one after the other, their parts come from two
//!   divisions. So those that get smaller come first. One that gets larger, or is new, waits for
//!   as long as the limit remembers, since another node may have just used what it gains.
//! * **Restarts.** A node that starts again waits as a new one does, or restores its state.

use core::num::{NonZeroU32, NonZeroU64};
use core::time::Duration;

use crate::concurrency::Concurrency;
use crate::fixed_window::FixedWindow;
use crate::gcra::Gcra;
use crate::sliding_log::SlidingLog;

/// One of several equal parts of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    index: u32,
    count: NonZeroU32,
}

impl Part {
    /// Returns the part of the node `index`, counted from zero, of `count` nodes. Returns `None`
    /// unless `index` is below `count`.
    #[must_use]
    pub const fn new(index: u32, count: u32) -> Option<Self> {
        match NonZeroU32::new(count) {
            Some(count) if index < count.get() => Some(Self { index, count }),
            _ => None,
        }
    }

    /// Returns this part of `permits`. Over all nodes the sum is `permits`.
    #[must_use]
    pub fn of(self, permits: u64) -> u64 {
        let count = NonZeroU64::from(self.count);
        let (each, left) = (permits / count, permits % count);
        each.saturating_add(u64::from(u64::from(self.index) < left))
    }
}

/// A limit that can be divided among nodes.
pub trait Divisible: Sized {
    /// Returns the part of one node, or `None` if no permit is left for it.
    fn part(&self, part: Part) -> Option<Self>;
}

impl Divisible for Gcra {
    fn part(&self, part: Part) -> Option<Self> {
        let burst = part.of(self.burst_size().get());
        Self::new(self.rate().part(burst, self.burst_size()), burst).ok()
    }
}

impl Divisible for SlidingLog {
    fn part(&self, part: Part) -> Option<Self> {
        let period_ns = self.held_for_ns().saturating_sub(self.guard_ns());
        let log = Self::try_new(part.of(self.permits()), Duration::from_nanos(period_ns)).ok()?;
        let log = log.with_guard(Duration::from_nanos(self.guard_ns())).ok()?;
        log.with_resolution(Duration::from_nanos(self.resolution_ns())).ok()
    }
}

impl Divisible for FixedWindow {
    fn part(&self, part: Part) -> Option<Self> {
        self.with_permits(part.of(self.permits())).ok()
    }
}

impl Divisible for Concurrency {
    fn part(&self, part: Part) -> Option<Self> {
        Self::try_new(part.of(self.permits())).ok()
    }
}
