//! Exact rate limits shared by many machines, kept in Redis or Valkey.
//!
//! The decision is made in the store, by functions that are loaded into it: one call, one round
//! trip, one or many limits, all or nothing, by the store's clock alone. This crate holds the
//! functions and the IO-free layer around them: requests become commands, replies become verdicts
//! of [`rategate::store`], errors become remedies. Connections are the caller's, or [`client`]'s:
//! a store whose driver gathers concurrent requests.
//!
//! | task | use |
//! |---|---|
//! | convert a limit of `rategate-core` to numbers that a store holds exactly | [`limit::Limit`] |
//! | combine limits that a call has to pass | [`plan::Plan`] |
//! | name a user's key in the store | [`key::KeySpace`] |
//! | request decisions, one or many in one call | [`batch::Batch`] |
//! | charge what was used already | [`charge::Charges`] |
//! | hold an estimate under an id, and settle it | [`mod@reserve`] |
//! | refund, credit, release, renew, reset | [`returns`] |
//! | get the words to send | [`command::Command`] |
//! | find the remedy for an error of the store | [`refusal::ServerRefusal`] |
//! | learn what a store has lost | [`marker`] |
//! | load the functions | [`library::Library`] |
//! | use all of this over connections, as a store for `rategate` | [`client::RedisStore`] |
//!
//! # Smallest example
//!
//! ```
//! use rategate::store::Verdict;
//! use rategate_core::gcra::Gcra;
//! use rategate_redis::batch::{Batch, Extra};
//! use rategate_redis::command::Settings;
//! use rategate_redis::key::KeySpace;
//! use rategate_redis::library::Library;
//! use rategate_redis::limit::Limit;
//! use rategate_redis::plan::Plan;
//! use rategate_redis::reply::Value;
//!
//! let bucket = Limit::gcra(&Gcra::per_second(100).burst(10))?;
//! let plan = Plan::new([("api", bucket)])?;
//! let keys = KeySpace::new("shop")?;
//!
//! let mut batch = Batch::new();
//! batch.try_acquire(&plan, &keys.key(b"tenant 1"), 1, Extra::default())?;
//! let words = batch.decide(Settings::default()).fcall(Library::LIVE);
//! assert_eq!(words.first().map(Vec::as_slice), Some(&b"FCALL"[..]));
//!
//! // Any connection sends the words and brings this reply.
//! let now_us = 1_790_000_000_000_000;
//! let numbers = [1, now_us, 0, 1, 1, now_us + 10_000, 0, 0];
//! let answer = batch.read(&Value::List(numbers.map(Value::Int).to_vec()))?;
//! let [Ok(Verdict::Granted(grant))] = answer.content.as_slice() else { unreachable!() };
//! assert_eq!(grant.remaining, 9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! * **The same decisions** as `rategate-core` makes, for instants of whole microseconds: see
//!   [`limit`] for the ranges. Nothing rounds; a limit that does not fit is refused when it is
//!   made.
//! * **One clock**, the store's. A store that takes over with a clock that is behind denies more,
//!   never less. A state further ahead than its limit and a [horizon](command::HORIZON_US) allow
//!   counts as if all permits had just been taken;
//!   [`Decoded::corrected`](reply::Decoded::corrected) counts those.
//! * **No garbage**: every key expires once its limit has fully recovered.
//! * **Nothing counts twice by this crate**: a call that failed has changed nothing. One whose
//!   reply was lost may have been granted; [`RequestId`](batch::RequestId) makes it safe to send
//!   again. A [reservation](mod@reserve) and its end count once under their id. A [charge] whose
//!   reply was lost may have been booked.
//!
//! # What it does not do
//!
//! It promises nothing about a store that loses writes: after a failover, grants that the new
//! primary has not seen can be granted again. It does not wait, retry, or fall back: connections
//! do.

pub mod batch;
pub mod charge;
#[cfg(feature = "client")]
pub mod client;
pub mod command;
pub mod error;
pub mod key;
pub mod library;
pub mod limit;
pub mod marker;
pub mod plan;
pub mod refusal;
pub mod reply;
pub mod reserve;
pub mod returns;
mod value;

/// The examples of the crate's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// The examples of the guide, run as tests.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../../../docs/distributed.md")]
mod guide {}
