//! Models of the lock-free forms under every schedule of a few threads.
//!
//! That includes every order in which one thread may see what another has written. Each model
//! plays a few tries, peeks and changes of the numbers. The check is one question:
//! is there an order of these events in which the policy alone, one event after the other,
//! returns the same and ends in the same state? That is what "linearises" means. A permit lost or
//! invented, a needless denial and a mixture of two configurations all show as a result that no
//! order explains. Ceilings are also checked, from the list of grants alone.
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

mod changes;
mod gcra;
mod model;
mod oracle;
mod sliding_log;
mod spaced;
mod two_timeline;
mod window;
