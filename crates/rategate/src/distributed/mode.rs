//! Modes of keeping a limit across machines, and fallbacks without the store.

use std::num::{NonZeroU32, NonZeroU64};

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
    /// Each node has its partition of the limit, and decides alone, by its own clock.
    ///
    /// A fixed window is then kept as a log, because the grids of nodes would differ.
    Partitioned(PartitionConfig),
}

/// The lease config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    pub(super) length_ns: NonZeroU64,
    pub(super) capacity: NonZeroU64,
    pub(super) is_guarded: bool,
    pub(super) drift_ppm: u32,
}

/// The largest difference between clock rates of computers, in parts per million.
pub(super) const DEFAULT_DRIFT_PPM: u32 = 500;

impl Leases {
    /// Creates a config of leases of `length_ns` nanoseconds and at most `capacity` permits each.
    ///
    /// A node borrows what it has needed of late, up to that. A lease must be longer than a round
    /// trip and the time that the permits last.
    #[must_use]
    pub const fn new(length_ns: NonZeroU64, capacity: NonZeroU64) -> Self {
        Self { length_ns, capacity, is_guarded: false, drift_ppm: DEFAULT_DRIFT_PPM }
    }

    /// Guards the limit: never a permit too many, whatever is borrowed.
    ///
    /// The store keeps a limit that is stricter by as much as leases can shift a grant. A log
    /// holds its grants for one lease longer, so its rate is N over M + L. A bucket keeps its
    /// rate, and its burst is smaller by the permits earned in a lease. Without a guard, permits
    /// borrowed when a window begins come on top of its N.
    #[must_use]
    pub const fn with_guard(self) -> Self {
        Self { is_guarded: true, ..self }
    }

    /// Sets the largest difference of a node's clock rate from the store's, in parts per million.
    ///
    /// Leases end sooner by that. The default, 500, is more than quartz clocks differ.
    #[must_use]
    pub const fn with_drift_ppm(self, drift_ppm: u32) -> Self {
        Self { drift_ppm, ..self }
    }
}

/// The config of partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionConfig {
    pub(super) heartbeat_ns: NonZeroU64,
    pub(super) drift_ppm: u32,
}

impl PartitionConfig {
    /// Creates a config with a heartbeat every `heartbeat_ns` nanoseconds.
    ///
    /// A node that is silent for one and a half intervals loses its partition.
    #[must_use]
    pub const fn new(heartbeat_ns: NonZeroU64) -> Self {
        Self { heartbeat_ns, drift_ppm: DEFAULT_DRIFT_PPM }
    }

    /// Sets the clock drift, as [`Leases::with_drift_ppm`] does.
    #[must_use]
    pub const fn with_drift_ppm(self, drift_ppm: u32) -> Self {
        Self { drift_ppm, ..self }
    }
}

/// The fallback without the store.
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
        /// The most nodes that there are.
        nodes: NonZeroU32,
    },
}
