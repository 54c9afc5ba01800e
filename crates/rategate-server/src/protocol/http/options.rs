//! What an API is made with.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use rategate_tower::headers::Dialect;
use rategate_tower::key::{self, Client, Field, Network, Peer, Trust};

use super::problem::Refused;
use super::token_shown;
use crate::net::{Access, Right, TokenShown};

/// Whether the service should be asked.
pub type IsReady = Arc<dyn Fn() -> bool + Send + Sync>;

/// What an API is made with.
pub struct Options {
    /// The token, if there is one: if not, nobody has to show one.
    pub access: Access,
    /// Whether the service should be asked: what `/readyz` answers.
    pub ready: IsReady,
    /// Which proxies are believed when they say who the client is.
    pub proxies: Proxies,
    /// In which forms clients are told where they stand, where a response has the limit's own status.
    pub fields: Vec<Dialect>,
    /// The most bytes of a request's body.
    pub most_body_bytes: usize,
    /// How long a body may take to come once it makes us wait.
    pub body_within: Duration,
}

/// Which proxies are believed, and how clients are told apart.
#[derive(Clone, Debug)]
pub struct Proxies(Client);

impl Proxies {
    /// Proxies that are trusted, and the field that they write. Addresses are grouped by so many of their leading bits.
    #[must_use]
    pub fn new(trust: Trust, field: Field, v4_bits: u8, v6_bits: u8) -> Self {
        Self(key::client(nobody().group_v4(v4_bits).group_v6(v6_bits), field, trust))
    }

    /// Proxies in these networks, which write `X-Forwarded-For`.
    #[must_use]
    pub fn in_networks(networks: Vec<Network>) -> Self {
        Self::new(Trust::Networks(networks), Field::XForwardedFor, 32, 64)
    }

    pub(super) fn name(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<String> {
        self.0.name(peer, headers)
    }
}

impl Default for Proxies {
    /// None is believed: the client is the peer.
    fn default() -> Self {
        Self::in_networks(Vec::new())
    }
}

/// The peer is known from the connection, and no request says who it is.
fn nobody() -> Peer {
    key::peer(|(): &()| None)
}

impl Options {
    /// Allows a call that needs a right, by what its fields show of the token.
    pub(super) fn admit(
        &self,
        headers: &HeaderMap,
        right: Right,
        required: bool,
    ) -> Result<(), Refused> {
        let shown = || token_shown(&self.access, headers);
        // Most calls need nothing, and are not asked.
        if self.access.permits(right, TokenShown::Nothing, required).is_ok() {
            return Ok(());
        }
        self.access.permits(right, shown(), required).map_err(|_| Refused::Token)
    }
}

impl Default for Options {
    /// No token, always ready, no proxy believed, the fields of the current draft, bodies of 64 KiB within 5 s.
    fn default() -> Self {
        Self {
            access: Access::default(),
            ready: Arc::new(|| true),
            proxies: Proxies::default(),
            fields: vec![Dialect::Current],
            most_body_bytes: 64 * 1024,
            body_within: Duration::from_secs(5),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("access", &self.access)
            .field("proxies", &self.proxies)
            .field("fields", &self.fields)
            .field("most_body_bytes", &self.most_body_bytes)
            .field("body_within", &self.body_within)
            .finish_non_exhaustive()
    }
}
