//! Redis' protocol over real sockets.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

mod abuse;
mod answers;
mod client;
mod ending;
mod lease;
mod listeners;
mod oracle;
mod own;
