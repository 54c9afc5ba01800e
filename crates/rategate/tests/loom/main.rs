//! Models of waiting under every schedule of a few threads: tasks, threads and one timer at the
//! lock that they share.
//!
//! Each model ends in the same claims. Every waiter that should be granted is granted once. None
//! sleeps for ever, which the model checker reports as a deadlock. The permits granted and
//! returned add up. All modules but one use limits without a lock-free form, so that the lock's
//! side is modelled alone.
//!
//! `cargo xtask loom` runs the models named `quick_*`, `cargo xtask loom --full` all of them.

#![cfg(loom)]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a panic in a test is a failed test, which is what tests are for"
)]

mod adaptive;
mod changes;
mod closing;
mod deny;
mod gate;
mod keyed;
mod lock_free;
mod taking;
mod timer;
mod wait_queue;
mod world;
