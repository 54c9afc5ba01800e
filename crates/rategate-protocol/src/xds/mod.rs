//! Rate limit configurations from a control plane, over Envoy's xDS protocol.
//!
//! The messages are `DiscoveryRequest` and `DiscoveryResponse` of `envoy.service.discovery.v3`,
//! and `RateLimitConfig` of `ratelimit.config.ratelimit.v3`.

mod config;
mod discovery;

pub use self::config::{
    ConfigDescriptor, ConfigFault, ConfigLimit, MAX_DESCRIPTOR_DEPTH, MalformedConfig,
    RateLimitConfig,
};
pub use self::discovery::{DiscoveryRequest, DiscoveryResponse, MAX_RESOURCES, Resource};

/// The type URL of [`RateLimitConfig`].
pub const CONFIG_TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The path of the method that streams resources of all types.
pub const STREAM_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
