//! Tests that read a stopwatch. Other tests beside them would make them late.

#![cfg(not(loom))]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod clocks;
mod stopwatch;
