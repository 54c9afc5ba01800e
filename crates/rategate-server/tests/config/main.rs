//! Configurations: the rules and settings that files load to, the problems of wrong ones, and
//! changes of files.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::format_collect,
    clippy::format_push_string,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::too_many_lines,
    clippy::unwrap_used,
    reason = "a test that cannot go on should panic, and say what it sees"
)]

mod envoy;
mod faults;
mod files;
mod fuzz;
mod laws;
mod layers;
mod names;
mod native;
mod theirs;
mod watch;
