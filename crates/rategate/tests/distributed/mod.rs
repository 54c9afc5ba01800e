//! One limit over many nodes, each a real limiter, on one manual clock. No mode ever grants more
//! than it promises, and an unavailable store leads to the configured fallback.

mod acquire;
mod calendars;
mod charge;
mod deadline;
mod exact;
mod fleet;
mod leased;
mod reserve;
mod unavailable;
mod wire;

use std::num::NonZeroU64;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn nonzero(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}
