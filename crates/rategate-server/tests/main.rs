//! The service, in one binary.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    clippy::format_collect,
    clippy::format_push_string,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::too_many_lines,
    clippy::type_complexity,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

mod config;
mod engine;
mod http;
mod lines;
mod observe;
mod resp;
mod rls;
mod scenarios;
mod serve;
mod state;
mod stores;
mod stories;
mod xds;
