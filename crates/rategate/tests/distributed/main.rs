//! One limit over many nodes, each a real limiter, on one manual clock. No mode ever grants more
//! than it promises, and an unavailable store leads to the configured fallback.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod acquire;
mod deadline;
mod exact;
mod fleet;
mod leased;
mod partitioned;
mod unavailable;
mod wire;

use std::num::NonZeroU64;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// An xorshift64* generator: small, seeded, good enough for traffic.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn child(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % n
    }
}

fn nonzero(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}
