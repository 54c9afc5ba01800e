//! Shared helpers of the store tests; each file uses some of them.

#![allow(
    dead_code,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "tests: a panic is how they fail, and no file uses all"
)]

pub(crate) mod client;
#[cfg(feature = "client")]
pub(crate) mod cluster;
#[cfg(feature = "client")]
pub(crate) mod fake;
#[cfg(feature = "client")]
pub(crate) mod load;
pub(crate) mod proxy;
pub(crate) mod server;
pub(crate) mod store;

/// A small pseudo-random generator: the same seed gives the same run.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// Returns a number from 0 to `end - 1`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
