//! The faults of a fleet: their kinds, their times and the nodes that they strike.

use rategate_core::random::Random;

use super::network::below;

/// A fault that lasts for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The instant at which it begins, in true time.
    pub at_ns: u64,
    /// The length of the fault.
    pub lasting_ns: u64,
    /// The kind of the fault.
    pub kind: FaultKind,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// A crash: nodes lose all their state, and come back empty.
    Crash(Affected),
    /// A cut: no message passes between these nodes and the store.
    Cut(Affected),
    /// A slow network: messages take at least `min_ns`, one way.
    Slow {
        /// The minimum time of a message, one way.
        min_ns: u64,
    },
    /// A stalled store, which reads nothing until the fault ends, and then everything.
    Stall,
    /// A failover: the store is unavailable, until a replica takes over that lacks all of the
    /// last `loses_ns` before the fault.
    Failover {
        /// The lag of the replica.
        loses_ns: u64,
    },
}

/// The nodes that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affected {
    /// All nodes.
    All,
    /// A single node.
    One(u32),
    /// A share of the nodes, drawn from the seed.
    Some {
        /// The number of nodes in a million.
        ppm: u32,
    },
}

impl Affected {
    /// Returns `true` if the `index`-th fault of this seed strikes `node`.
    pub(super) fn has(self, seed: u64, index: usize, node: u32) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == node,
            Self::Some { ppm } => {
                let index = u64::try_from(index).unwrap_or(u64::MAX);
                let position = index.rotate_left(32) ^ u64::from(node);
                let mut random = Random::new(seed ^ position.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                below(&mut random, 1_000_000) < ppm.into()
            }
        }
    }
}

impl Fault {
    /// Returns `true` if this fault, the `index`-th of this seed, concerns `node`.
    pub(super) fn concerns(&self, seed: u64, index: usize, node: u32) -> bool {
        match self.kind {
            FaultKind::Crash(affected) | FaultKind::Cut(affected) => {
                affected.has(seed, index, node)
            }
            FaultKind::Slow { .. } | FaultKind::Stall | FaultKind::Failover { .. } => true,
        }
    }

    /// Returns the instant at which the fault is over.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        self.at_ns.saturating_add(self.lasting_ns)
    }
}
