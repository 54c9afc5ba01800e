//! Laws of the node machines, in worlds with lost and late messages, clocks of other rates, and
//! crashes.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

#[path = "../common/mod.rs"]
mod common;

mod breaker;
mod clock;
mod guard;
mod leased;
mod members;
mod shares;
mod world;

use std::num::NonZeroU64;

fn n(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}
