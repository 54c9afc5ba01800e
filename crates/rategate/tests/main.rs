//! The laws of the library, in one binary.

#![cfg(not(loom))]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::similar_names,
    clippy::struct_field_names,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

#[cfg(all(feature = "tokio", debug_assertions))]
mod blocking;
mod bytes;
#[cfg(feature = "calendar")]
mod calendar;
mod classes;
#[cfg(feature = "calendar")]
mod debts;
mod deny;
mod dispatcher;
mod distributed;
mod early;
#[cfg(feature = "tracing")]
mod events;
mod faulty_store;
#[cfg(feature = "futures")]
mod flows;
mod gate;
#[cfg(feature = "tokio")]
mod holds;
mod keyed;
#[cfg(feature = "serde")]
mod keyed_snapshot;
mod limiter;
mod local;
mod memory_store;
#[cfg(feature = "metrics")]
mod metrics;
mod open_loop;
#[cfg(feature = "rayon")]
mod parallel;
mod permit;
#[cfg(feature = "serde")]
mod scenarios;
mod several;
mod shown;
mod skewed;
#[cfg(feature = "serde")]
mod snapshot;
mod stats;
mod store_reservations;
mod stores;
mod stress;
mod taking;
mod tasks;
mod threads;
mod throttle;
mod top;
mod used_up;
