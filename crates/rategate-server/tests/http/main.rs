//! The HTTP API, called directly and through sockets.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

mod abuse;
mod auth;
mod check;
mod common;
mod guide;
mod openapi;
mod sockets;
mod throttle;
mod tokens;
