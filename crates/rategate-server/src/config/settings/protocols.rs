//! Settings of the protocols.

use rategate_tower::key::Network;

/// The header fields of HTTP answers, and the accepted host names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// The dialects of the header fields with the caller's status. Defaults to the current draft
    /// alone.
    pub headers: Vec<Dialect>,
    /// The host names by which browsers reach the service, or whose pages may call it, without
    /// ports. `localhost` and addresses need not be listed.
    pub hosts: Vec<String>,
    /// The proxies whose `X-Forwarded-For` is trusted. Without any, the client is the peer of the
    /// connection.
    pub trusted_proxies: Vec<Network>,
}

/// Header fields with the caller's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize, schemars::JsonSchema)]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit`, structured fields: the current IETF draft. `"ietf"`.
    #[serde(rename = "ietf")]
    Current,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` in seconds from now.
    /// `"ratelimit"`.
    #[serde(rename = "ratelimit")]
    Older,
    /// `X-RateLimit-Limit` with `w=`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` in seconds
    /// from now, as in Envoy. `"x-ratelimit"`.
    #[serde(rename = "x-ratelimit")]
    Legacy,
    /// Like `"x-ratelimit"`, with the reset in seconds since 1970, as in GitHub.
    /// `"x-ratelimit-epoch"`.
    #[serde(rename = "x-ratelimit-epoch")]
    LegacyEpoch,
}

/// The behaviour of Envoy's protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct Grpc {
    /// Counts a denied call in those limits that it fits. Counted windows count it in any case.
    pub count_denied: bool,
    /// Counts a call that is over counted windows in these alone, and not in those that it fits.
    pub count_over_only: bool,
    /// Lets every call pass, and reports limits that are over only in the descriptors' statuses.
    pub shadow: bool,
    /// Lets several files in Envoy's format share a domain, with the descriptors of all of them.
    pub merge_domains: bool,
    /// Adds the caller's status under the nearest limit to `response_headers_to_add`.
    pub headers: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self { headers: vec![Dialect::Current], hosts: Vec::new(), trusted_proxies: Vec::new() }
    }
}
