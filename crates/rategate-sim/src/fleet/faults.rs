//! What goes wrong, and when.

use crate::random::Random;

use super::network::below;

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins, in true time.
    pub at_ns: u64,
    /// For how long.
    pub lasting_ns: u64,
    /// What it is.
    pub what: What,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Nodes lose all they know, and come back empty.
    Crash(Whom),
    /// No letter passes between these nodes and the store.
    Cut(Whom),
    /// Letters take at least so long, one way.
    Slow {
        /// How long.
        least_ns: u64,
    },
    /// The store reads nothing, and everything at the end.
    Stall,
    /// The store is gone, and then a replica takes its place that lacks all of the last `loses_ns` before that.
    Failover {
        /// How far the replica was behind.
        loses_ns: u64,
    },
}

/// Which nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// All.
    All,
    /// This one.
    One(u32),
    /// So many of a million, drawn from the seed.
    Some {
        /// How many of a million.
        ppm: u32,
    },
}

impl Whom {
    /// Whether the `index`-th fault of this seed concerns a node.
    pub(super) fn has(self, seed: u64, index: usize, node: u32) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == node,
            Self::Some { ppm } => {
                let index = u64::try_from(index).unwrap_or(u64::MAX);
                let place = index.rotate_left(32) ^ u64::from(node);
                let mut random = Random::new(seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                below(&mut random, 1_000_000) < ppm.into()
            }
        }
    }
}

impl Fault {
    /// Whether it is the `index`-th of this seed and concerns a node.
    pub(super) fn concerns(&self, seed: u64, index: usize, node: u32) -> bool {
        match self.what {
            What::Crash(whom) | What::Cut(whom) => whom.has(seed, index, node),
            What::Slow { .. } | What::Stall | What::Failover { .. } => true,
        }
    }

    /// When it is over.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        self.at_ns.saturating_add(self.lasting_ns)
    }
}
