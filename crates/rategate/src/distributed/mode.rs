//! How a limit is kept over many machines, and what to do without its store.

use std::num::{NonZeroU32, NonZeroU64};

/// How a limit is kept over many machines. The guide "distributed" compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The store decides each call: one round trip, and by the store's decisions never a permit too many. A node acts when
    /// the reply has come, so what nodes do stays within the limit in windows shorter by the time budget.
    Exact,
    /// A node borrows permits for a time and hands them out itself.
    Leased(Leases),
    /// Each node has its share of the limit, and decides alone, by its own clock. A fixed window is kept as a log then,
    /// because the grids of nodes would differ.
    SharedOut(Shares),
}

/// Terms of borrowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leases {
    pub(super) length_ns: NonZeroU64,
    pub(super) most: NonZeroU64,
    pub(super) is_guarded: bool,
    pub(super) drift_ppm: u32,
}

/// How far apart clocks of computers run, at worst, in parts of a million.
pub(super) const DEFAULT_DRIFT_PPM: u32 = 500;

impl Leases {
    /// Leases of so many nanoseconds, each of `most` permits at the most. A node borrows what it has needed of late, up
    /// to that.
    ///
    /// A lease has to be longer than a round trip and what the permits last.
    #[must_use]
    pub const fn new(length_ns: NonZeroU64, most: NonZeroU64) -> Self {
        Self { length_ns, most, is_guarded: false, drift_ppm: DEFAULT_DRIFT_PPM }
    }

    /// Never a permit too many, whatever is borrowed: the store keeps a limit that is stricter by as much as leases
    /// can move a grant. A log holds its grants for one lease longer, so its rate is N over M + L; a
    /// bucket keeps its rate and has a burst that is smaller by what is earned in a lease. Without it, what is
    /// borrowed when a window begins comes on top of its N.
    #[must_use]
    pub const fn with_guard(self) -> Self {
        Self { is_guarded: true, ..self }
    }

    /// How much a node's clock may differ from the store's, in parts of a million: leases end sooner by that. 500
    /// if not said, which is more than clocks of quartz do.
    #[must_use]
    pub const fn with_drift_ppm(self, drift_ppm: u32) -> Self {
        Self { drift_ppm, ..self }
    }
}

/// Terms of sharing out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    pub(super) beat_ns: NonZeroU64,
    pub(super) drift_ppm: u32,
}

impl Shares {
    /// A sign of life so often. A node that is silent for one and a half of it is given up.
    #[must_use]
    pub const fn new(beat_ns: NonZeroU64) -> Self {
        Self { beat_ns, drift_ppm: DEFAULT_DRIFT_PPM }
    }

    /// As for [`Leases::with_drift_ppm`].
    #[must_use]
    pub const fn with_drift_ppm(self, drift_ppm: u32) -> Self {
        Self { drift_ppm, ..self }
    }
}

/// What to do without the store: while it does not answer, and while a store that took over may have lost what
/// the one before had granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenGone {
    /// Nothing passes. The limit's bound holds.
    Deny,
    /// Everything passes. There is no limit meanwhile.
    Admit,
    /// A limit of this node alone, of one part in so many. Where there are no more nodes than that, they pass
    /// at most the limit once more, on top of what the store granted before. A process that has just started grants
    /// nothing by it for as long as the limit remembers: it may have been another a moment ago.
    Local {
        /// How many nodes there are at most.
        nodes: NonZeroU32,
    },
}
