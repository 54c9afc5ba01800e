//! Modes of keeping a limit across machines, and fallbacks without the store.

use std::num::NonZeroU32;
use std::time::Duration;

/// The mode in which a limit is kept across machines. The guide "distributed" compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The store decides each call: one round trip, and never a permit too many by its decisions.
    ///
    /// A node acts when the reply has come, so the actions of nodes stay within the limit in
    /// windows shorter by the time budget.
    Exact,
    /// A node borrows permits for a time and grants them itself.
    Leased(Leases),
}

/// The numbers of leases: `Leases { ttl, max_permits, guard: true, ..Leases::default() }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    /// The time for which permits are borrowed. 100 ms by default.
    ///
    /// A lease must be longer than a round trip and the time that the permits last.
    pub ttl: Duration,
    /// The maximum number of permits that a node borrows at a time. 50 by default.
    ///
    /// A node borrows what it has needed of late, up to that.
    pub max_permits: u64,
    /// `true` if the limit is never exceeded, whatever is borrowed. `false` by default.
    ///
    /// The store then keeps a limit that is stricter by as much as leases can shift a grant. A log
    /// of N permits per M holds its grants for one lease longer, so it passes N per M + ttl. A
    /// bucket keeps its rate, and its burst is smaller by the permits earned in a lease. Without a
    /// guard, permits borrowed when a window begins come on top of its N.
    pub guard: bool,
    /// The largest difference of a node's clock rate from the store's, in parts per million.
    ///
    /// Leases end sooner by that. The default, 500, is more than quartz clocks differ.
    pub drift_ppm: u32,
}

/// The default bound of the difference between clock rates, in parts per million.
pub(super) const DEFAULT_DRIFT_PPM: u32 = 500;

impl Default for Leases {
    fn default() -> Self {
        Self {
            ttl: Duration::from_millis(100),
            max_permits: 50,
            guard: false,
            drift_ppm: DEFAULT_DRIFT_PPM,
        }
    }
}

/// The fallback that decides calls without the store.
///
/// It decides while the store is unavailable, and while a store that took over may have lost
/// grants of its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnUnavailable {
    /// Denies every call. The limit's bound holds.
    Deny,
    /// Admits every call. There is no limit meanwhile.
    Admit,
    /// Keeps a limit on this node alone, of the whole divided by the number of nodes.
    ///
    /// Up to that many nodes together pass at most the limit once more, on top of earlier grants
    /// by the store. A process that has just started grants nothing by it for as long as the limit
    /// remembers: a predecessor may have used it up a moment ago.
    Local {
        /// The maximum number of nodes.
        nodes: NonZeroU32,
    },
}

impl OnUnavailable {
    /// Keeps a limit on this node alone, one of at most `nodes`: [`Local`](Self::Local).
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use rategate::Gcra;
    /// use rategate::distributed::{Distributed, OnUnavailable};
    /// use rategate::store::MemoryStore;
    ///
    /// let limiter = Distributed::builder(Arc::new(MemoryStore::new()))
    ///     .limit("calls", Gcra::per_second(100).burst(20))
    ///     .on_unavailable(OnUnavailable::local(4))
    ///     .build()?;
    /// # let _ = limiter;
    /// # Ok::<(), rategate::error::SetupError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if `nodes` is zero. Numbers from outside are for [`Local`](Self::Local).
    #[must_use]
    #[track_caller]
    pub const fn local(nodes: u32) -> Self {
        let nodes = NonZeroU32::new(nodes).expect("a limit of zero nodes; give at least one");
        Self::Local { nodes }
    }
}
