//! The engine on a clock that the tests set.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

mod common;
mod figures;
mod inline;
mod laws;
mod random;
mod reload;
mod rules;
mod together;
