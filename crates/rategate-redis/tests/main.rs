//! The functions in real servers, and the client, in one binary.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::similar_names,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod calendars;
mod charge;
#[cfg(feature = "client")]
mod charge_client;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod client_faults;
#[cfg(feature = "client")]
mod client_moves;
mod clock_back;
mod common;
mod conformance;
#[cfg(feature = "client")]
mod debt_faults;
#[cfg(feature = "client")]
mod functions;
mod holding;
mod live;
#[cfg(feature = "client")]
mod quarantine;
#[cfg(feature = "client")]
mod recovery;
mod replies;
mod reply_bytes;
mod reply_laws;
mod reserve;
#[cfg(feature = "client")]
mod reserve_client;
#[cfg(feature = "client")]
mod suite;
#[cfg(feature = "tls")]
mod tls;
