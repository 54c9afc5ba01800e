//! The options of an API.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use rategate_tower::headers::Dialect;
use rategate_tower::key::{self, Client, Field, Network, Trust};

use super::problem::Refused;
use super::token_shown;
use crate::net::{Access, Right, TokenShown};
use crate::protocol::body::WITHIN;

/// A check that returns `true` if the service is ready for calls.
pub type IsReady = Arc<dyn Fn() -> bool + Send + Sync>;

/// The options of an API.
pub struct Options {
    /// The token check. Without a token, clients need to show none.
    pub access: Access,
    /// The readiness check behind `/readyz`.
    pub ready: IsReady,
    /// The proxies that are trusted to report the client.
    pub proxies: Proxies,
    /// The dialects of the header fields with a limit's status, on responses whose status is that
    /// of the limit.
    pub fields: Vec<Dialect>,
    /// The maximum number of bytes of a request's body.
    pub max_body_bytes: usize,
    /// The longest time that a body may take once it has to be waited for.
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

impl Options {
    /// Allows a call that needs a right, by the token that its fields show.
    pub(super) fn admit(
        &self,
        headers: &HeaderMap,
        right: Right,
        required: bool,
    ) -> Result<(), Refused> {
        let shown = || token_shown(&self.access, headers);
        // Most calls need no token, so their fields are not read.
        if self.access.permits(right, TokenShown::Nothing, required).is_ok() {
            return Ok(());
        }
        self.access.permits(right, shown(), required).map_err(|_| Refused::Token)
    }
}

impl Default for Options {
    /// Returns options with no token, always ready, no trusted proxy, the fields of the current
    /// draft, bodies of 64 KiB within 5 s.
    fn default() -> Self {
        Self {
            access: Access::default(),
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
            .field("access", &self.access)
            .field("proxies", &self.proxies)
            .field("fields", &self.fields)
            .field("most_body_bytes", &self.max_body_bytes)
            .field("body_within", &self.body_within)
            .finish_non_exhaustive()
    }
}
