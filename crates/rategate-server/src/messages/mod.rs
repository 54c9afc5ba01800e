//! The messages and services of Envoy that are spoken here, in protocol buffers.
//!
//! `generated.rs` is written by the task `messages` of xtask, from the published definitions in
//! `proto/`. It has what is used. In one thing it differs: keys and values of descriptors are bytes.

#[rustfmt::skip]
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::as_conversions,
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "it is generated"
)]
mod generated;

pub use self::generated::envoy::config::core::v3 as core;
pub use self::generated::envoy::extensions::common::ratelimit::v3 as descriptor;
pub use self::generated::envoy::service::discovery::v3 as discovery;
pub use self::generated::envoy::service::ratelimit::v3 as rls;
pub use self::generated::envoy::r#type::v3 as units;
pub use self::generated::google::rpc;
pub use self::generated::ratelimit::config::ratelimit::v3 as config;
