//! Rules that a control plane sends.

mod connection;
mod judged;
mod resources;
mod stub;
mod updates;

/// The messages of a control plane.
mod xds_messages {
    pub(super) use rategate_server::messages::config::{
        RateLimitConfig as TheirConfig, RateLimitDescriptor as TheirDescriptor,
        RateLimitPolicy as TheirPolicy, RateLimitReplace as TheirReplace,
    };
}
