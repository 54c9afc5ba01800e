//! Envoy's rate limit service: its calls over both drivers, third-party clients,
//! and malicious ones.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::type_complexity,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

mod abuse;
mod bounds;
mod calls;
mod common;
mod counting;
mod envoy;
mod frames;
mod guesses;
mod heads;
mod hostile;
mod json;
mod laws;
mod oracle;
