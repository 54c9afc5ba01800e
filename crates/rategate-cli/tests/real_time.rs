//! Tests that read a stopwatch. Other tests beside them would make them late.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod bench;
#[allow(dead_code, reason = "the other binary uses all of it")]
mod common;
#[cfg(unix)]
mod killed_client;
mod stopwatch;
