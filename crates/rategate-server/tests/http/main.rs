//! The HTTP API: asked directly and through sockets.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::arithmetic_side_effects
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
