//! Exact rate limiting and pacing as pure state machines: no clock, no lock, no IO.
//!
//! Every algorithm here decides *when a request for permits may start*. Time is an argument, in
//! nanoseconds since an origin that the caller picks once. Rates are exact fractions. State is
//! small and separate from the limit. The same code therefore decides in a thread, in a
//! simulation on a virtual clock, and wherever else a state can be kept.
//!
//! | I want | module |
//! |---|---|
//! | a rate with a burst, in one instant of memory | [`gcra`] |
//! | at most N in *any* window of M | [`sliding_log`] |
//! | at most N in each window of a grid | [`fixed_window`] |
//! | at most N in each day, week or month | [`fixed_window`] of a [`calendar`] |
//! | operations evenly spaced or in batches, with the wait time of each | [`two_timeline`] |
//! | a rate that a server at rest reaches over a period | [`warm_up`] |
//! | any of these, at a part of its rate while a server is slow at first | [`slow_start`] |
//! | a bucket that keeps what overflows | [`backfill_pool`] |
//! | at most N at the same time | [`concurrency`] |
//! | less of such a limit for operations of a lower priority | [`share`] |
//! | as many at the same time as a server works on, or at a rate that it bears | [`adaptive`] |
//! | the instants of a load whose rate changes over time | [`shape`] |
//! | at most N *effects* in any window of M, however late they come | [`commit_log`] |
//!
//! A policy, or [several together](all_of), become a live limit in a [`Ledger`](ledger::Ledger).
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::ledger::Ledger;
//! use rategate_core::sliding_log::SlidingLog;
//! use rategate_core::verdict::Verdict;
//!
//! let mut limit = Ledger::new(SlidingLog::new(2, Duration::from_secs(1)), 0);
//! assert!(matches!(limit.try_acquire(0, 2)?, Verdict::Granted(_)));
//! let Verdict::Denied(denial) = limit.try_acquire(400_000_000, 1)? else { unreachable!() };
//! assert_eq!(denial.retry_after_ns.map(u64::from), Some(600_000_000));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```
//!
//! # Targets
//!
//! The crate needs `alloc`. On targets without 64-bit atomics, such as `thumbv7m-none-eabi`, those
//! of [`concurrent`] are a library's, with a lock.

#![no_std]
#![cfg_attr(not(feature = "serde"), allow(dead_code, reason = "used where limits are saved"))]

extern crate alloc;

pub mod adaptive;
pub mod all_of;
pub mod any_policy;
pub use self::any_policy::slow_start;
pub mod backfill_pool;
pub mod calendar;
pub mod commit_log;
pub mod concurrency;
pub mod concurrent;
pub mod debt;
pub mod error;
pub mod fair;
pub mod fixed_window;
pub mod gcra;
pub mod holds;
pub mod ledger;
pub mod line;
pub mod members;
pub mod node;
pub mod packed;
pub mod policy;
pub mod random;
pub mod rate;
pub mod ratio;
pub mod refund;
#[cfg(feature = "serde")]
pub mod saved;
pub mod schedule;
pub mod shape;
pub mod share;
pub mod sliding_log;
pub mod span;
pub mod two_timeline;
pub mod verdict;
pub mod warm_up;

mod decimal;
mod exact;
mod ordered_map;
mod outcome;
#[cfg(feature = "serde")]
mod portable;
mod search;
mod text;
mod wide;
mod window_debt;

/// The examples of the crate's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
