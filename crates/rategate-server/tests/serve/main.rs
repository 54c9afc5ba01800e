//! The service as a whole: all protocols at once, reloads while it runs, and its end.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::format_push_string,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

mod capacity;
mod certificates;
mod clients;
mod exact;
mod hosts;
mod log;
mod moved;
mod nodes;
mod pages;
#[cfg(feature = "otlp")]
mod receiver;
mod restart;
mod rules;
#[cfg(feature = "otlp")]
mod spans;
mod tokens;
mod web;
