//! What the service is told besides its rules: where it listens, who may do what, and how much of everything there may be.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use rategate_redis::client::{Config as StoreConfig, Server as StoreServer};
use rategate_tower::key::Network;

/// Everything the service is told besides its rules. [`Settings::default`] is what it does without a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens, and how.
    pub server: Server,
    /// What HTTP answers carry, and by which names it is asked.
    pub http: Http,
    /// What Envoy's protocol does.
    pub grpc: Grpc,
    /// Where the counters are that several processes share.
    pub store: Option<Store>,
    /// Where counters are kept over a restart.
    pub snapshot: Option<Snapshot>,
    /// Limits that come with calls.
    pub inline: Inline,
    /// What is logged.
    pub log: Log,
    /// Which decisions have a span, and who receives those.
    pub tracing: Tracing,
    /// How many keys all rules together may have.
    pub keys: Keys,
}

/// Where the service listens, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where Redis' protocol is spoken: 127.0.0.1:6380 if not said otherwise. None: it is not.
    pub resp: Vec<Listener>,
    /// Where HTTP is spoken: 127.0.0.1:8080.
    pub http: Vec<Listener>,
    /// Where gRPC is spoken: 127.0.0.1:8081.
    pub grpc: Vec<Listener>,
    /// What calls show that change something, and all calls to listeners with [`Listener::auth`].
    pub token: Option<Secret>,
    /// The certificate of the listeners with [`Listener::tls`].
    pub tls: Option<Tls>,
    /// How many threads work. `None`: one for each core.
    pub threads: Option<NonZeroUsize>,
    /// How much of everything there may be.
    pub limits: Limits,
    /// How long open calls may take to end when the service is told to stop.
    pub drain: Duration,
    /// Listen where others can reach it, though nothing says who they are.
    pub insecure: bool,
}

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The place.
    pub address: Address,
    /// Whether all calls need the token; if not, only those do that change something.
    pub auth: bool,
    /// Whether it speaks TLS: then there is a [`Server::tls`].
    pub tls: bool,
    /// Who may connect to a socket in the file system, as the bits of a file's mode: this user alone, 0o600, if not said otherwise.
    pub mode: u32,
}

/// This user alone may use a socket in the file system.
pub(crate) const SOCKET_MODE: u32 = 0o600;

/// A place to listen at: `127.0.0.1:6380`, `[::1]:6380`, `unix:/run/rategate.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// A certificate, by files in PEM. They are read by whoever listens, and may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The chain of certificates, the service's own first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs the certificates of clients. Given, each client needs one.
    pub client_ca: Option<PathBuf>,
}

/// How much of everything there may be, so that nobody can ask for more memory than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest command of Redis' protocol, all arguments together.
    pub frame_bytes: usize,
    /// The longest head of an HTTP request.
    pub header_bytes: usize,
    /// The longest body of an HTTP request, and message of gRPC.
    pub body_bytes: usize,
    /// Calls under way on one connection of HTTP/2.
    pub streams: u32,
    /// Connections open at a time.
    pub connections: usize,
    /// Connections open at a time from one address. Sockets in the file system have none.
    pub connections_per_address: usize,
    /// How long a connection may be silent.
    pub idle: Duration,
    /// How long the head of a request, or a handshake, may take to arrive.
    pub header_time: Duration,
}

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
pub struct Grpc {
    /// Count what is denied too, as Envoy's service does.
    pub count_denied: bool,
    /// Say in `response_headers_to_add` how a caller stands with the limit that is nearest to its end.
    pub headers: bool,
}

/// Where the counters are that several processes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Which servers, and how the one that decides is found.
    pub place: StorePlace,
    /// Who asks, where the store has users.
    pub user: Option<String>,
    /// By which password.
    pub password: Option<Secret>,
    /// Which database.
    pub database: u16,
    /// How all keys begin.
    pub prefix: String,
    /// How long a question may take.
    pub budget: Duration,
    /// How many questions may be without an answer at a time.
    pub queue: usize,
    /// How many servers share the limits, at most: while the store is gone, each keeps that part of a limit by itself.
    pub nodes: NonZeroU32,
}

/// How the server that decides is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    /// It is this one.
    Server(StoreServer),
    /// It is the one of these that says that it is the primary.
    PrimaryOf(Vec<StoreServer>),
    /// Sentinels know it.
    Sentinel {
        /// By this name.
        name: String,
        /// These.
        sentinels: Vec<StoreServer>,
    },
    /// It is a cluster, of which these tell the rest.
    Cluster(Vec<StoreServer>),
}

/// Where counters are kept over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The file.
    pub path: PathBuf,
    /// How often it is written.
    pub every: Duration,
    /// What to do about a file that cannot be read whole.
    pub when_torn: WhenTorn,
}

/// What to do about a snapshot that cannot be read whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WhenTorn {
    /// Start as if nothing had been counted. `"fresh"`.
    Fresh,
    /// Start as if each limit were used up. `"full"`.
    #[default]
    Full,
    /// Do not start. `"refuse"`.
    Refuse,
}

/// Limits that come with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inline {
    /// How many keys each of them may have.
    pub keys: usize,
    /// How many different ones are kept apart.
    pub limits: usize,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// How.
    pub format: LogFormat,
    /// From which level on, for all or by target: `info`, `warn,rategate_server=debug`.
    pub filter: String,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people. `"text"`.
    #[default]
    Text,
    /// A JSON object a line. `"json"`.
    Json,
}

/// Which decisions have a span, and who receives those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// Who receives them. `None`: there are none.
    pub otlp: Option<Receiver>,
    /// How many of the decisions whose callers say nothing of it have one. Those who send a `traceparent` have decided themselves.
    pub sample: Sample,
    /// What the service is called there.
    pub service: String,
}

/// Who receives spans, by OTLP over HTTP: `http://127.0.0.1:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

/// So many of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(u32);

/// How many keys all rules together may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// So many.
    pub total: usize,
}

/// A text that is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text`.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Receiver {
    /// The name or the address of its machine.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Sample {
    /// All.
    pub const ALL: Self = Self(1_000_000);

    /// So many of a million. `None` if that is more than all.
    #[must_use]
    pub const fn new(of_a_million: u32) -> Option<Self> {
        if of_a_million > Self::ALL.0 { None } else { Some(Self(of_a_million)) }
    }

    /// How many of a million.
    #[must_use]
    pub const fn of_a_million(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Server {
    /// All listeners with the name of their protocol in the configuration.
    pub fn listeners(&self) -> impl Iterator<Item = (&'static str, &Listener)> {
        let of = |name: &'static str, all| std::iter::repeat(name).zip(all);
        of("resp", &self.resp).chain(of("http", &self.http)).chain(of("grpc", &self.grpc))
    }

    /// Whether nothing stands in the way of strangers at this listener.
    #[must_use]
    pub fn is_open(&self, listener: &Listener) -> bool {
        let asks_certificate =
            listener.tls && self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        listener.address.is_public() && self.token.is_none() && !asks_certificate
    }
}

impl Listener {
    /// A place to listen at, with neither token nor TLS.
    #[must_use]
    pub const fn plain(address: Address) -> Self {
        Self { address, auth: false, tls: false, mode: SOCKET_MODE }
    }
}

impl Address {
    /// A port of this machine that no other can reach.
    #[must_use]
    pub const fn loopback(port: u16) -> Self {
        Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    /// Whether other machines can reach it.
    #[must_use]
    pub fn is_public(&self) -> bool {
        match self {
            Self::Tcp(address) => !address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => false,
        }
    }
}

impl Store {
    /// The same for the store's client.
    #[must_use]
    pub fn config(&self) -> StoreConfig {
        let config = match &self.place {
            StorePlace::Server(server) => StoreConfig::server(server.clone()),
            StorePlace::PrimaryOf(servers) => StoreConfig::primary_of(servers.iter().cloned()),
            StorePlace::Sentinel { name, sentinels } => {
                StoreConfig::sentinel(name, sentinels.iter().cloned())
            }
            StorePlace::Cluster(servers) => StoreConfig::cluster(servers.iter().cloned()),
        };
        let config = config.database(self.database).prefix(&self.prefix);
        let config = config.budget(self.budget).queue(self.queue);
        let config = match &self.user {
            Some(user) => config.user(user),
            None => config,
        };
        match &self.password {
            Some(password) => config.password(password.expose()),
            None => config,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Receiver {
    /// Where spans go.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "http://{open}{host}{close}:{port}{path}/v1/traces")
    }
}

impl Default for Server {
    fn default() -> Self {
        let at = |port| vec![Listener::plain(Address::loopback(port))];
        Self {
            resp: at(6380),
            http: at(8080),
            grpc: at(8081),
            token: None,
            tls: None,
            threads: None,
            limits: Limits::default(),
            drain: Duration::from_secs(10),
            insecure: false,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 64 << 10,
            header_bytes: 16 << 10,
            body_bytes: 1 << 20,
            streams: 256,
            connections: 10_000,
            connections_per_address: 1_000,
            idle: Duration::from_secs(300),
            header_time: Duration::from_secs(10),
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self { headers: vec![Dialect::Current], hosts: Vec::new(), trusted_proxies: Vec::new() }
    }
}

impl Default for Inline {
    fn default() -> Self {
        Self { keys: 100_000, limits: 1_000 }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Self { otlp: None, sample: Sample(10_000), service: "rategate".to_owned() }
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self { total: 1_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::new("sesame".to_owned())), "***");
    }

    #[test]
    fn only_what_others_can_reach_is_public() {
        let public = |text: &str| Address::Tcp(text.parse().unwrap()).is_public();
        assert!(!public("127.0.0.1:1") && !public("[::1]:1") && !public("[::ffff:127.0.0.1]:1"));
        assert!(public("0.0.0.0:1") && public("[::]:1") && public("10.0.0.1:1"));
        assert!(!Address::Unix("/run/s".into()).is_public());
    }

    #[test]
    fn a_token_or_certificates_of_clients_close_a_listener() {
        let listener =
            |tls| Listener { tls, ..Listener::plain(Address::Tcp(([0, 0, 0, 0], 1).into())) };
        let mut server = Server::default();
        assert!(server.is_open(&listener(false)));
        assert!(!server.is_open(&Listener::plain(Address::loopback(1))));
        server.tls = Some(Tls { cert: "c".into(), key: "k".into(), client_ca: None });
        assert!(server.is_open(&listener(true)));
        server.tls = Some(Tls { cert: "c".into(), key: "k".into(), client_ca: Some("a".into()) });
        assert!(!server.is_open(&listener(true)) && server.is_open(&listener(false)));
        server.token = Some(Secret::new("t".to_owned()));
        assert!(!server.is_open(&listener(false)));
    }
}
