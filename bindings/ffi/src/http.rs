//! Parts of HTTP servers and clients that the packages share: names of clients, hints of responses
//! and the pacing of requests, as the layers of [`rategate_tower`] have them.
//!
//! Header fields are bytes, as they come. Fields of an invalid name or value are treated as absent.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rategate::adaptive::Outcome;
use rategate_tower::client::parse_hints;
use rategate_tower::key::{self, Client, Field, Network, NetworkError, Peer};

pub use rategate_tower::client::{
    DEFAULT_BACKOFF, DEFAULT_WAITERS, MAX_HOLD, PacedRequest, Pacing, Refill, ServerHints,
    ServerLimit, Tokens,
};
pub use rategate_tower::headers::QuotaUnit;
pub use rategate_tower::key::{MAX_HOPS, Trust};

/// The names of a server's clients, by their addresses.
#[derive(Clone, Debug)]
pub struct ClientNames {
    client: Client,
    field: HeaderName,
    counts_hops: bool,
}

/// The reason why clients cannot be named in such a way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientNamesError {
    /// Addresses of IPv4 have 32 bits, and those of IPv6 128.
    Bits {
        /// The version of the protocol, 4 or 6.
        version: u8,
        /// The bits of a group that are too many.
        bits: u8,
    },
    /// A header has no such name.
    Field(Box<str>),
    /// A text is no network.
    Network(Box<str>, NetworkError),
}

/// Returns the trust in proxies within these networks.
///
/// # Errors
///
/// [`ClientNamesError::Network`].
pub fn trusted_networks<'t>(
    networks: impl IntoIterator<Item = &'t str>,
) -> Result<Trust, ClientNamesError> {
    let network = |text: &str| {
        text.parse::<Network>().map_err(|error| ClientNamesError::Network(text.into(), error))
    };
    networks.into_iter().map(network).collect::<Result<_, _>>().map(Trust::Networks)
}

impl ClientNames {
    /// Creates names by the address of the peer. Addresses with the same first bits, of IPv4 and
    /// of IPv6, count as one client.
    ///
    /// # Errors
    ///
    /// [`ClientNamesError::Bits`].
    pub fn of_peers(groups: [u8; 2]) -> Result<Self, ClientNamesError> {
        Self::behind(Trust::Networks(Vec::new()), "x-forwarded-for", groups)
    }

    /// Creates names by the client's address behind trusted proxies, which write this field.
    ///
    /// The field `forwarded` is read as in RFC 7239, others as `x-forwarded-for`.
    ///
    /// # Errors
    ///
    /// [`ClientNamesError::Bits`] and [`ClientNamesError::Field`].
    pub fn behind(trust: Trust, field: &str, [v4, v6]: [u8; 2]) -> Result<Self, ClientNamesError> {
        for (version, bits, most) in [(4, v4, 32), (6, v6, 128)] {
            if bits > most {
                return Err(ClientNamesError::Bits { version, bits });
            }
        }
        let name = HeaderName::try_from(field);
        let name = name.map_err(|_| ClientNamesError::Field(field.into()))?;
        let counts_hops = matches!(trust, Trust::Hops(_));
        let peer: Peer = key::peer(|()| None::<IpAddr>).group_v4(v4).group_v6(v6);
        let read = match name.as_str() {
            "forwarded" => Field::Forwarded,
            _ => Field::Other(name.clone()),
        };
        Ok(Self { client: key::client(peer, read, trust), field: name, counts_hops })
    }

    /// Returns the field that is read, in lower case.
    #[must_use]
    pub fn field(&self) -> &str {
        self.field.as_str()
    }

    /// Returns the name of a request's client, by its peer and the lines of the field, in order.
    ///
    /// The peer may have the zone of a link-local address. One without an address, as of a test's
    /// client or a Unix socket with a name, names itself: the server chose it. Returns `None` if
    /// the client is unknown: without a peer, unless a number of hops is trusted.
    #[must_use]
    pub fn name<'h>(
        &self,
        peer: Option<&str>,
        lines: impl IntoIterator<Item = &'h [u8]>,
    ) -> Option<String> {
        let peer = peer.filter(|peer| !peer.is_empty());
        let address = peer.and_then(address);
        if address.is_none() && !self.counts_hops {
            return peer.map(str::to_owned);
        }
        let mut headers = HeaderMap::new();
        for value in lines.into_iter().filter_map(|line| HeaderValue::from_bytes(line).ok()) {
            // A full map cannot hold more lines. Those of a server are fewer.
            let _ = headers.try_append(&self.field, value);
        }
        self.client.name(address, &headers).or_else(|| peer.map(str::to_owned))
    }
}

/// Returns the hints of a response's status and header fields, as [`parse_hints`] does.
///
/// A status outside of 100 to 999 is no refusal.
#[must_use]
pub fn hints<'h>(
    status: u16,
    fields: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
    now: SystemTime,
    max_hold: Duration,
) -> ServerHints {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            // A full map cannot hold more fields. No client reads as many.
            let _ = headers.try_append(name, value);
        }
    }
    parse_hints(status_of(status), &headers, now, max_hold)
}

/// Returns how a request ended by the response with these hints, for a limiter that
/// [follows](crate::Limiter::follows_outcomes) it.
#[must_use]
pub fn outcome(status: u16, hints: &ServerHints) -> Outcome {
    hints.outcome(status_of(status))
}

fn status_of(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or_default()
}

/// Reads an address, without the zone of a link-local one.
fn address(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.parse().ok()
}

impl fmt::Display for ClientNamesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits { version: 4, bits } => {
                write!(f, "a group of IPv4 addresses has 0 to 32 bits, not {bits}")
            }
            Self::Bits { bits, .. } => {
                write!(f, "a group of IPv6 addresses has 0 to 128 bits, not {bits}")
            }
            Self::Field(field) => {
                write!(f, "a header has a name such as 'x-forwarded-for', not {field:?}")
            }
            Self::Network(text, error) => write!(f, "{error}; given {text:?}"),
        }
    }
}

impl Error for ClientNamesError {}
