//! The laws of the simulator, in one binary.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod bad_clocks;
mod bad_files;
mod circular_buffer;
mod holds;
mod limit_bodies;
mod line;
mod peer;
mod scenarios;
mod server_files;
mod servers;
