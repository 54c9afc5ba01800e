//! The laws of the layers, in one binary.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod client;
mod denied;
mod distributed;
#[cfg(feature = "reqwest")]
mod examples;
mod grpc;
mod in_flight;
mod keyed;
mod quota;
mod server;
mod service;
mod set_up;
mod vendors;
mod waiting;
