//! The options of an API.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use rategate_tower::headers::Dialect;
use rategate_tower::key::{self, Client, Field, Network, Trust};

use super::body::WITHIN;

/// A check that returns `true` if the service is ready for calls.
pub type IsReady = Arc<dyn Fn() -> bool + Send + Sync>;

/// The options of an API.
pub struct Options {
    /// The readiness check behind `/readyz`.
    pub ready: IsReady,
    /// The proxies that are trusted to report the client.
    pub proxies: Proxies,
    /// The dialects of the header fields with a limit's status, on responses whose status is that
    /// of the limit.
    pub fields: Vec<Dialect>,
    /// The maximum number of bytes of a request's body.
    pub max_body_bytes: usize,
    /// The longest time that a body may take.
    pub body_within: Duration,
}

/// The trusted proxies, and the naming of clients.
#[derive(Clone, Debug)]
pub struct Proxies(Client);

impl Proxies {
    /// Trusts proxies in these networks, which write `X-Forwarded-For`. IPv6 addresses are grouped
    /// by their first 64 bits.
    #[must_use]
    pub fn in_networks(networks: Vec<Network>) -> Self {
        // The peer is known from the connection, so none is found in a request.
        let peer = key::peer(|(): &()| None).group_v4(32).group_v6(64);
        Self(key::client(peer, Field::XForwardedFor, Trust::Networks(networks)))
    }

    pub(super) fn name(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<String> {
        self.0.name(peer, headers)
    }
}

impl Default for Proxies {
    /// Trusts no proxy: the client is the peer.
    fn default() -> Self {
        Self::in_networks(Vec::new())
    }
}

impl Default for Options {
    /// Returns options of a service that is always ready: no trusted proxy, the fields of the current
    /// draft, bodies of 64 KiB within 5 s.
    fn default() -> Self {
        Self {
            ready: Arc::new(|| true),
            proxies: Proxies::default(),
            fields: vec![Dialect::Current],
            max_body_bytes: 64 * 1024,
            body_within: WITHIN,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("proxies", &self.proxies)
            .field("fields", &self.fields)
            .field("most_body_bytes", &self.max_body_bytes)
            .field("body_within", &self.body_within)
            .finish_non_exhaustive()
    }
}
