//! A rate limit service: Envoy's gRPC, Redis' RESP and HTTP/JSON over one exact engine.

pub mod config;
pub mod engine;
pub mod net;
pub mod observe;
pub mod protocol;
pub mod rule;
pub mod serve;
