//! Configurations: what files come down to, what is said of those that are wrong, and what happens when they change.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "a panic in a test is a failed test, which is what tests are for"
)]

mod envoy;
mod files;
mod fuzz;
mod layers;
mod native;
mod watch;
