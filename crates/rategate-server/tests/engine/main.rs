//! The engine on a clock that the tests set.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::arithmetic_side_effects
)]

mod common;
mod inline;
mod random;
mod reload;
mod rules;
mod together;
