//! The laws of the core, in one binary.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::struct_excessive_bools,
    clippy::unwrap_used,
    reason = "a test computes in plain numbers and may panic"
)]

mod adaptive;
mod adaptive_rate;
mod adaptive_rate_clients;
#[cfg(not(loom))]
mod all_of;
mod backfill_pool;
#[cfg(not(loom))]
mod batches;
mod calendar;
mod change;
#[cfg(not(loom))]
mod charge;
mod classes;
mod commit_log;
mod common;
mod concurrency;
#[cfg(not(loom))]
mod concurrent;
mod credit;
#[cfg(not(loom))]
mod evict;
mod fair;
mod fixed_window;
mod gcra;
mod guava;
#[cfg(not(loom))]
mod holds;
mod ledger;
mod many_holds;
mod misuse;
mod node;
mod pacer;
mod packed;
mod packed_bucket;
mod queue;
mod queue_random;
mod rate;
mod refund;
mod rousing;
mod saved;
mod schedule;
mod settle;
mod shape;
mod share;
mod sliding_log;
mod sliding_log_grid;
mod sliding_log_memory;
mod slow_start;
mod taking;
mod taking_promises;
mod taking_reported;
mod text;
mod two_timeline;
mod warm_up;
