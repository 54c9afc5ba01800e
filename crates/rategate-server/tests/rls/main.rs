//! Envoy's rate limit service: its messages, its calls over both drivers, other people's clients, and those who mean no good.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    missing_docs
)]

mod abuse;
mod calls;
mod common;
mod envoy;
mod json;
mod laws;
mod messages;
