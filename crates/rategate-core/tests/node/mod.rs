//! Laws of the node machines, in worlds with lost and late messages, clocks of other rates, and
//! crashes.

mod breaker;
mod clock;
mod guard;
mod leased;
mod part;
mod world;

use std::num::NonZeroU64;

fn n(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}
