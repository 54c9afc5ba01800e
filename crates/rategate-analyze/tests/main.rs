//! The laws of logs of any bytes, in one binary.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers, shows the input that fails, and may panic"
)]

mod lines;
