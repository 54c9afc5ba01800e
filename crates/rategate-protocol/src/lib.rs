//! Codecs of the protocols that [rategate](https://docs.rs/rategate-server) speaks, without IO.
//!
//! | task | use |
//! |---|---|
//! | parse commands of Redis' protocol, and write replies | [`resp::parse`], [`resp::RespWriter`] |
//! | write commands of it, and parse replies | [`resp::RespWriter`], [`resp::ReplyParser`] |
//! | split HTTP/2 into frames, and write those of a server | [`http2::Frame`], [`http2`] |
//! | decode the fields of a head | [`http2::Decoder`] |
//! | read and write gRPC's messages and statuses | [`grpc`] |
//! | read `RateLimitRequest`, write `RateLimitResponse` | [`rls`] |
//! | read and write Kuadrant's `Reserve` and `Commit` | [`kuadrant`] |
//! | read reports of Envoy's quota service, write assignments | [`rlqs`] |
//! | read configurations of a control plane, and judge them | [`xds`] |
//! | read and write any other protocol buffers | [`protobuf`] |
//!
//! No function reads a socket or a clock. Nothing that a peer announces gets memory before it is
//! bounded, and no bytes cause a panic.
//!
//! ```
//! use rategate_protocol::resp::{Bounds, RespWriter, Step, Version, WordSpans, parse, words};
//!
//! let bytes = b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n";
//! let mut spans = WordSpans::default();
//! assert_eq!(parse(bytes, &Bounds::default(), &mut spans), Step::Command(bytes.len()));
//! let mut out = Vec::new();
//! RespWriter::new(&mut out, Version::Two).bulk(words(bytes, &spans).at(1));
//! assert_eq!(out, b"$5\r\nhello\r\n");
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

pub mod grpc;
pub mod http2;
pub mod kuadrant;
pub mod protobuf;
pub mod resp;
pub mod rlqs;
pub mod rls;
pub mod xds;

/// The examples of the crate's README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
