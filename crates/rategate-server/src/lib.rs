//! A rate limit service over one exact engine, with Envoy's gRPC, Redis' RESP and HTTP/JSON APIs.

#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

pub mod config;
pub mod engine;
mod low_priority;
pub mod messages;
mod nearest;
pub mod net;
pub mod observe;
pub mod protocol;
pub mod rule;
pub mod serve;
mod units;

/// The examples of the crate's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
