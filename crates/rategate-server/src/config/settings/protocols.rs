//! What the protocols do, where it can be chosen.

use rategate_tower::key::Network;

/// What HTTP answers carry, and by which names it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// The header fields that tell where a caller stands, in these dialects: the current draft alone if not said otherwise.
    pub headers: Vec<Dialect>,
    /// Names by which browsers reach the service, or pages of the site that may ask it, without ports. `localhost` and addresses
    /// need not be listed.
    pub hosts: Vec<String>,
    /// Proxies that are believed when they say in `X-Forwarded-For` who the client is. None if not said otherwise: the client is whoever asks.
    pub trusted_proxies: Vec<Network>,
}

/// Header fields that tell where a caller stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize, schemars::JsonSchema)]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit`, structured fields: the current IETF draft. `"ietf"`.
    #[serde(rename = "ietf")]
    Current,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset` in seconds from now. `"ratelimit"`.
    #[serde(rename = "ratelimit")]
    Older,
    /// `X-RateLimit-Limit` with `w=`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` in seconds from now, as Envoy does. `"x-ratelimit"`.
    #[serde(rename = "x-ratelimit")]
    Legacy,
    /// The same, with the reset in seconds since 1970, as GitHub does. `"x-ratelimit-epoch"`.
    #[serde(rename = "x-ratelimit-epoch")]
    LegacyEpoch,
}

/// What Envoy's protocol does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct Grpc {
    /// Count a call that is denied in those limits that it fits. Counted windows count it in any case.
    pub count_denied: bool,
    /// Count a call that is over counted windows in these alone, and not in those that it fits.
    pub count_over_only: bool,
    /// Let every call pass, and say in the descriptors' statuses alone which are over.
    pub shadow: bool,
    /// Let several files in Envoy's format have one domain, whose descriptors are those of all of them.
    pub merge_domains: bool,
    /// Say in `response_headers_to_add` how a caller stands with the limit that is nearest to its end.
    pub headers: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self { headers: vec![Dialect::Current], hosts: Vec::new(), trusted_proxies: Vec::new() }
    }
}
