//! The command, run as a process, in one binary.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod analyze;
mod analyze_follow;
mod calendars;
mod clients;
mod common;
mod config;
mod copy;
mod jobs;
mod limits;
mod manual;
mod run;
mod serve_clients;
mod serve_guides;
mod serve_moved;
mod serve_nginx;
mod serve_operated;
#[cfg(unix)]
mod serve_ratelimit;
#[cfg(unix)]
mod serve_restart;
mod serve_traefik;
mod shapes;
mod signals;
mod simulate;
mod usage;
