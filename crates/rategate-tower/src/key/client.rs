//! Keys by the client's address, as trusted proxies report it.

use std::net::IpAddr;

use http::request::Parts;
use http::{HeaderMap, HeaderName};
use rategate::deny::AddressGroups;

use super::address::Peer;
use super::forwarded::{MAX_HOPS, Report, forwarded, x_forwarded_for};
use super::network::Network;
use super::{Key, KeySource};

/// The proxies whose reports are trusted.
///
/// A client can write any report into its request. A proxy appends its own report at the right
/// end. Reports are therefore read from the right, and only as far as a trusted proxy has written
/// them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Trust {
    /// Trusts this number of proxies in front of the server, which clients cannot bypass. The
    /// client is the one that the farthest of them reports. More than [`MAX_HOPS`] count as
    /// [`MAX_HOPS`].
    ///
    /// A request with fewer reports has bypassed a proxy: its client is the peer.
    Hops(u8),
    /// Trusts proxies in these networks. The client is the first address, from the right, outside
    /// of them. A peer outside of them is the client itself, whatever it reports.
    ///
    /// This needs the peer's address. It is safe even where clients can reach the server directly.
    Networks(Vec<Network>),
}

/// The header field that the proxies write.
///
/// It has to be the one configured at the proxies. The other field is ignored, since a proxy
/// passes it through as the client wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// `X-Forwarded-For`: addresses separated by commas.
    XForwardedFor,
    /// `Forwarded`, as in RFC 7239.
    Forwarded,
    /// Another header in the format of `X-Forwarded-For`. With one address and `Trust::Hops(1)`,
    /// it serves for `X-Real-IP` and `CF-Connecting-IP`.
    Other(HeaderName),
}

/// A source of keys by the client's address behind trusted proxies. See [`client`].
#[derive(Clone, Debug)]
pub struct Client {
    peer: Peer,
    trust: Trust,
    field: Field,
}

/// Returns a source of keys by the client's address: the peer, or a client behind proxies that
/// `trust` covers.
///
/// Addresses are grouped as configured for the peer: see [`Peer::group_v6`].
///
/// | report | key |
/// |---|---|
/// | an address, with or without a port | the address |
/// | an obfuscated name of a trusted proxy, `_hidden` | the name together with that proxy |
/// | `unknown`, or invalid | the proxy that wrote it: all its unknown clients together |
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::extract::ConnectInfo;
/// use rategate_tower::key::{self, Field, KeySource, Trust};
///
/// let peer = key::peer(|info: &ConnectInfo<SocketAddr>| info.0.ip());
/// let source = key::client(peer.clone(), Field::XForwardedFor, Trust::Networks(vec![
///     "10.0.0.0/8".parse()?,
/// ]));
///
/// let request = |peer: [u8; 4]| http::Request::get("/")
///     .extension(ConnectInfo(SocketAddr::from((peer, 4711))))
///     // The client wrote the first, the proxy the second.
///     .header("x-forwarded-for", "6.6.6.6, 192.0.2.1");
///
/// let (through_the_proxy, ()) = request([10, 0, 0, 7]).body(())?.into_parts();
/// let (straight, ()) = request([192, 0, 2, 1]).body(())?.into_parts();
/// assert_eq!(source.key(&through_the_proxy), source.key(&straight));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub const fn client(peer: Peer, field: Field, trust: Trust) -> Client {
    Client { peer, trust, field }
}

impl Client {
    /// Returns the client's name as text, for applications with their own keys.
    ///
    /// The name is the address, `2001:db8:1:2::/64` where addresses are grouped, or an obfuscated
    /// name of a proxy followed by the proxy, `_hidden@10.0.0.2`. No two clients have the same
    /// name.
    ///
    /// Returns `None` if the client is unknown: without a peer, unless a number of hops is
    /// trusted.
    #[must_use]
    pub fn name(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<String> {
        let peer = peer.map(|peer| peer.to_canonical());
        Some(match self.identity_of(peer, headers)? {
            ClientIdentity::Address(address) => self.peer.groups().name(address),
            ClientIdentity::Hidden { by: Some(by), name } => format!("{name}@{by}"),
            ClientIdentity::Hidden { by: None, name } => name.to_owned(),
        })
    }

    /// Returns the address of the peer, which may be a proxy.
    pub(super) fn peer_of(&self, head: &Parts) -> Option<IpAddr> {
        self.peer.address(head)
    }

    fn identity<'h>(&self, head: &'h Parts) -> Option<ClientIdentity<'h>> {
        self.identity_of(self.peer.address(head), &head.headers)
    }

    fn identity_of<'h>(
        &self,
        peer: Option<IpAddr>,
        headers: &'h HeaderMap,
    ) -> Option<ClientIdentity<'h>> {
        match &self.field {
            Field::Forwarded => self.behind(peer, forwarded(headers)),
            Field::XForwardedFor => self.behind(peer, x_forwarded_for(headers, &XFF)),
            Field::Other(name) => self.behind(peer, x_forwarded_for(headers, name)),
        }
    }

    fn behind<'h>(
        &self,
        peer: Option<IpAddr>,
        reports: impl Iterator<Item = Report<'h>>,
    ) -> Option<ClientIdentity<'h>> {
        match &self.trust {
            Trust::Hops(hops) => behind_hops(peer, usize::from(*hops).min(MAX_HOPS), reports),
            Trust::Networks(networks) => Some(behind_networks(peer?, networks, reports)),
        }
    }
}

impl KeySource for Client {
    fn key(&self, head: &Parts) -> Option<Key> {
        Some(self.identity(head)?.key(self.peer.groups()))
    }

    fn lacks(&self, head: &Parts) -> Option<&'static str> {
        if self.identity(head).is_some() { None } else { self.peer.lacks(head) }
    }
}

const XFF: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The identity of a client, and the proxy that reported it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientIdentity<'h> {
    Address(IpAddr),
    Hidden { by: Option<IpAddr>, name: &'h str },
}

impl ClientIdentity<'_> {
    fn key(self, groups: AddressGroups) -> Key {
        match self {
            Self::Address(address) => Key::of(&groups.first(address)),
            Self::Hidden { by, name } => Key::of(&(by, name)),
        }
    }
}

fn behind_hops<'h>(
    peer: Option<IpAddr>,
    hops: usize,
    mut reports: impl Iterator<Item = Report<'h>>,
) -> Option<ClientIdentity<'h>> {
    let mut reporter = peer;
    let mut last = peer.map(ClientIdentity::Address);
    for _ in 0..hops {
        last = match reports.next() {
            Some(Report::Address(address)) => {
                let identity = ClientIdentity::Address(address);
                reporter = Some(address);
                Some(identity)
            }
            Some(Report::Hidden(name)) => Some(ClientIdentity::Hidden { by: reporter, name }),
            Some(Report::Unknown) => reporter.map(ClientIdentity::Address),
            None => return peer.map(ClientIdentity::Address),
        };
    }
    last
}

fn behind_networks<'h>(
    peer: IpAddr,
    networks: &[Network],
    reports: impl Iterator<Item = Report<'h>>,
) -> ClientIdentity<'h> {
    let is_trusted = |address| networks.iter().any(|network| network.contains(address));
    let mut reporter = peer;
    let mut reports = reports;
    while is_trusted(reporter) {
        match reports.next() {
            Some(Report::Address(address)) => reporter = address,
            Some(Report::Hidden(name)) => {
                return ClientIdentity::Hidden { by: Some(reporter), name };
            }
            Some(Report::Unknown) | None => break,
        }
    }
    ClientIdentity::Address(reporter)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use http::Request;
    use http::request::Parts;

    use super::{Client, ClientIdentity, Field, Trust, client};
    use crate::key::{KeySource, Peer, peer};

    fn of_extension() -> Peer {
        peer(|address: &IpAddr| *address)
    }

    fn head(peer: &str, lines: &[&str]) -> Parts {
        let mut request = Request::get("/");
        if !peer.is_empty() {
            request = request.extension(peer.parse::<IpAddr>().unwrap());
        }
        for line in lines {
            request = request.header("x-forwarded-for", *line).header("forwarded", *line);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn hops(hops: u8) -> Client {
        client(of_extension(), Field::XForwardedFor, Trust::Hops(hops))
    }

    fn networks(networks: &[&str]) -> Client {
        let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        client(of_extension(), Field::XForwardedFor, Trust::Networks(networks))
    }

    fn address(text: &str) -> ClientIdentity<'static> {
        ClientIdentity::Address(text.parse().unwrap())
    }

    #[test]
    fn so_many_hops_and_no_more() {
        let table: [(&str, u8, &[&str], &str); 13] = [
            ("10.0.0.1", 0, &["6.6.6.6"], "10.0.0.1"),
            ("10.0.0.1", 1, &["192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", 1, &["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", 1, &["6.6.6.6", "192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", 2, &["6.6.6.6, 192.0.2.1, 10.0.0.2"], "192.0.2.1"),
            ("10.0.0.1", 2, &["192.0.2.1:4711, [fd00::2]:80"], "192.0.2.1"),
            // The second proxy was bypassed.
            ("10.0.0.1", 2, &["192.0.2.1"], "10.0.0.1"),
            ("10.0.0.1", 2, &[], "10.0.0.1"),
            // An invalid report stands for the proxy that wrote it.
            ("10.0.0.1", 1, &["192.0.2.1, garbage"], "10.0.0.1"),
            ("10.0.0.1", 2, &["garbage, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", 2, &["192.0.2.1, unknown"], "192.0.2.1"),
            ("::ffff:10.0.0.1", 1, &[], "10.0.0.1"),
            ("10.0.0.1", 255, &["192.0.2.1"], "10.0.0.1"),
        ];
        for (peer, count, lines, expected) in table {
            let head = head(peer, lines);
            assert_eq!(
                hops(count).identity(&head),
                Some(address(expected)),
                "{peer} {count} {lines:?}"
            );
        }
    }

    #[test]
    fn own_networks_and_no_others() {
        let ours = ["10.0.0.0/8", "fd00::/8"];
        let table: [(&str, &[&str], &str); 11] = [
            // A peer that is not a proxy may report anything.
            ("192.0.2.9", &["6.6.6.6"], "192.0.2.9"),
            ("192.0.2.9", &["6.6.6.6, 10.0.0.2"], "192.0.2.9"),
            ("10.0.0.1", &["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["6.6.6.6, 192.0.2.1, 10.0.0.3, fd00::2"], "192.0.2.1"),
            ("::ffff:10.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["6.6.6.6, 192.0.2.1, ::ffff:10.0.0.3"], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &["192.0.2.1, garbage, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["192.0.2.1, unknown"], "10.0.0.1"),
            ("fd00::1", &["2001:db8::1"], "2001:db8::1"),
        ];
        for (peer, lines, expected) in table {
            let head = head(peer, lines);
            assert_eq!(
                networks(&ours).identity(&head),
                Some(address(expected)),
                "{peer} {lines:?}"
            );
        }
    }

    #[test]
    fn a_name_is_a_key_together_with_who_gave_it() {
        let by: IpAddr = "10.0.0.2".parse().unwrap();
        let expected = Some(ClientIdentity::Hidden { by: Some(by), name: "_a" });
        let head = head("10.0.0.1", &["_a, 10.0.0.2"]);
        assert_eq!(networks(&["10.0.0.0/8"]).identity(&head), expected);
        assert_eq!(hops(2).identity(&head), expected);
    }

    #[test]
    fn names_are_of_one_client_each() {
        let source = |bits| {
            let trust = Trust::Networks(vec!["10.0.0.0/8".parse().unwrap()]);
            client(of_extension().group_v4(bits), Field::XForwardedFor, trust)
        };
        let name = |bits, peer: &str, line: &str| {
            let peer = peer.parse().ok();
            source(bits).name(peer, &head("", &[line]).headers)
        };
        let table = [
            ("192.0.2.9", "6.6.6.6", Some("192.0.2.9")),
            ("::ffff:10.0.0.1", "6.6.6.6, 192.0.2.1", Some("192.0.2.1")),
            ("10.0.0.1", "2001:db8:1:2::7", Some("2001:db8:1:2::/64")),
            ("10.0.0.1", "_a", Some("_a@10.0.0.1")),
            ("", "192.0.2.1", None),
        ];
        for (peer, line, expected) in table {
            assert_eq!(name(32, peer, line).as_deref(), expected, "{peer} {line}");
        }
        assert_eq!(name(24, "192.0.2.9", "").as_deref(), Some("192.0.2.0/24"));
    }

    #[test]
    fn without_a_peer_only_hops_say_who_it_is() {
        let unix_socket = head("", &["192.0.2.1"]);
        assert_eq!(hops(1).identity(&unix_socket), Some(address("192.0.2.1")));
        assert_eq!(hops(2).identity(&unix_socket), None);
        assert_eq!(hops(0).identity(&unix_socket), None);
        assert_eq!(hops(1).identity(&head("", &["garbage"])), None);
        assert_eq!(networks(&["0.0.0.0/0"]).identity(&unix_socket), None);
    }

    #[test]
    fn one_field_is_read_and_the_other_is_not() {
        let mut head = head("10.0.0.1", &["192.0.2.1"]);
        head.headers.insert("forwarded", "for=192.0.2.2".parse().unwrap());
        head.headers.insert("x-real-ip", "192.0.2.3".parse().unwrap());
        let other = Field::Other("x-real-ip".parse().unwrap());
        let table = [
            (Field::XForwardedFor, "192.0.2.1"),
            (Field::Forwarded, "192.0.2.2"),
            (other, "192.0.2.3"),
        ];
        for (field, expected) in table {
            let source = client(of_extension(), field, Trust::Hops(1));
            assert_eq!(source.identity(&head), Some(address(expected)));
        }
    }

    #[test]
    fn a_client_is_grouped_as_a_peer_is() {
        let source = client(of_extension().group_v6(56), Field::XForwardedFor, Trust::Hops(1));
        let key = |line: &str| source.key(&head("10.0.0.1", &[line])).unwrap();
        assert_eq!(key("2001:db8:0:12::1"), key("[2001:db8:0:34::9]:80"));
        assert_ne!(key("2001:db8:0:12::1"), key("2001:db8:1:12::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1:99"));
    }
}
