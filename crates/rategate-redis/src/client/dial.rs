//! Dialing: connects to a server, checks its role and functions, and reads its marker.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rategate::store::Unavailable;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

use super::config::{Config, Server};
use super::connection::{Carrier, Connection, Failure, StoreContext, carried};
use super::functions;
use super::slots::text;
use crate::command::Command;
use crate::key::KeySpace;
use crate::marker::Marker;
use crate::refusal::{Remedy, ServerRefusal};
use crate::reply;

/// The time a connection may take to be ready.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(1);

/// A connection to a server that makes decisions.
pub(crate) struct Ready {
    pub(crate) connection: Connection,
    pub(crate) carrier: Carrier,
    /// The identifier of the server's run.
    pub(crate) run: String,
    /// The eviction policy, if the server may drop our keys when its memory is full.
    pub(crate) evicts: Option<String>,
}

/// The reason why a server does not decide.
#[derive(Debug)]
pub(crate) struct NotReady {
    pub(crate) unavailable: Unavailable,
    /// Another server may be the primary.
    pub(crate) is_elsewhere: bool,
}

impl NotReady {
    /// Reports that the attempt panicked; the next one may not.
    pub(crate) fn panicked(message: &str) -> Self {
        let unavailable =
            Unavailable::Broken(format!("connecting to the store panicked: {message}"));
        Self { unavailable, is_elsewhere: true }
    }
}

/// Connects to a server and makes the connection ready. `slot` is one whose keys the server has.
pub(crate) async fn dial(
    server: Server,
    config: Arc<Config>,
    store_context: Arc<StoreContext>,
    keys: KeySpace,
    slot: Option<u16>,
) -> Result<Ready, NotReady> {
    store_context.shared.stats.dials.one();
    let ready = async {
        let connected = connect(&server, &config, store_context).await;
        let (connection, mut carrier) = connected.map_err(|failure| not_ready(&failure))?;
        let made_ready = make_ready(&connection, &keys, slot);
        let (run, evicts) = carried(&mut carrier, made_ready).await?;
        Ok(Ready { connection, carrier, run, evicts })
    };
    match tokio::time::timeout(READY_WITHIN, ready).await {
        Ok(ready) => ready,
        Err(_) => Err(unreachable(format!("{server} does not answer"))),
    }
}

/// Returns the identifier of the server's run, and its eviction policy if it has one.
async fn make_ready(
    connection: &Connection,
    keys: &KeySpace,
    slot: Option<u16>,
) -> Result<(String, Option<String>), NotReady> {
    let run = identify(connection).await?;
    functions::check(connection).await.map_err(|failure| not_ready(&failure))?;
    let evicts =
        greet(connection, keys, slot, &run).await.map_err(|failure| not_ready(&failure))?;
    Ok((run, evicts))
}

/// The checked part of a configuration that servers are reached by.
#[derive(Clone)]
pub(crate) struct Dialer {
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
}

#[cfg(feature = "tls")]
impl Dialer {
    /// Reads certificates, where servers are reached by TLS. The error says which one is wrong.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let is_needed = config.topology.are_by_tls();
        let tls = is_needed.then(|| config.tls.client()).transpose()?;
        Ok(Self { tls: tls.map(Arc::new) })
    }

    /// Connects by TLS.
    async fn secured(&self, host: &str, port: u16) -> io::Result<TlsStream<TcpStream>> {
        let missing = || io::Error::other("no server of the configuration is reached by TLS");
        let tls = self.tls.clone().ok_or_else(missing)?;
        super::tls::connect(tls, host, port).await
    }
}

#[cfg(not(feature = "tls"))]
impl Dialer {
    /// Refuses servers that are reached by TLS.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        if config.topology.are_by_tls() {
            return Err(String::from(
                "a server is reached by TLS: enable the feature `tls` of rategate-redis",
            ));
        }
        Ok(Self {})
    }
}

/// Connects to a server and logs in. No request is sent yet.
pub(crate) async fn connect(
    server: &Server,
    config: &Config,
    store_context: Arc<StoreContext>,
) -> Result<(Connection, Carrier), Failure> {
    let shared = Arc::clone(&store_context.shared);
    let stream = stream_to(server, &store_context).await;
    let stream = stream.map_err(|error| Failure::Lost(format!("{server}: {error}")))?;
    let connected = Connection::over(stream, config, store_context).await;
    let connected = connected.map_err(|failure| match failure {
        Failure::Lost(why) => Failure::Lost(format!("{server}: {why}")),
        refused @ Failure::Refused { .. } => refused,
    })?;
    shared.stats.connections.one();
    Ok(connected)
}

/// A byte stream to a server.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn stream_to(server: &Server, store_context: &StoreContext) -> io::Result<Box<dyn Stream>> {
    #[cfg(not(feature = "tls"))]
    let _ = store_context;
    match server {
        Server::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        #[cfg(unix)]
        Server::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        #[cfg(not(unix))]
        Server::Unix(_) => Err(io::Error::other("Unix sockets are not supported on this platform")),
        #[cfg(feature = "tls")]
        Server::Tls(host, port) => Ok(Box::new(store_context.dialer.secured(host, *port).await?)),
        // Opening the store has refused such servers, and servers report others of their own
        // kind.
        #[cfg(not(feature = "tls"))]
        Server::Tls(..) => Err(io::Error::other("no TLS")),
    }
}

/// Returns the identifier of the server's run, or an error unless the server is a primary.
async fn identify(connection: &Connection) -> Result<String, NotReady> {
    let mut info = String::new();
    for section in ["server", "replication"] {
        let answer = connection.send(&["INFO", section]).await;
        info.push_str(&text(&answer.map_err(|failure| not_ready(&failure))?));
    }
    let of = |name: &str| field(&info, name);
    if of("role") != "master" {
        let why = format!("it is a replica of {}:{}", of("master_host"), of("master_port"));
        return Err(NotReady { unavailable: Unavailable::Unable(why), is_elsewhere: true });
    }
    let run: String = of("run_id").chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    Ok(if run.is_empty() { "unknown".to_owned() } else { run })
}

/// Queries since when the server has lost nothing, and whether it may evict states.
///
/// Returns the eviction policy, if there is one. A server without our marker counts as intact
/// from now on.
pub(crate) async fn greet(
    connection: &Connection,
    keys: &KeySpace,
    slot: Option<u16>,
    run: &str,
) -> Result<Option<String>, Failure> {
    let (evicts, evicted) = memory(connection).await;
    // A server that has evicted keys counts as another server from then on: our states may have
    // been among them.
    let run = if evicted == 0 { run.to_owned() } else { format!("{run}-{evicted}") };
    let value = connection.call(Command::hello(keys, slot, &run)).await?;
    let counts = reply::counts(&value, 1);
    let counts = counts.map_err(|error| Failure::Lost(error.to_string()))?;
    let since_us = counts.content.first().copied().unwrap_or(counts.now_us);
    connection.observed.intact_since(since_us, Marker::new(keys, slot, &run, since_us));
    Ok(evicts)
}

/// Returns the eviction policy of the server, if it has one, and how many keys it has evicted.
///
/// The connection takes the policy into account only while a maximum memory is set.
async fn memory(connection: &Connection) -> (Option<String>, u64) {
    let mut info = String::new();
    for section in ["memory", "stats"] {
        let Ok(answer) = connection.send(&["INFO", section]).await else { return (None, 0) };
        info.push_str(&text(&answer));
    }
    let policy = field(&info, "maxmemory_policy");
    let is_evicting = policy.starts_with("allkeys-") || policy.starts_with("volatile-");
    connection.observed.evicts(is_evicting && !matches!(field(&info, "maxmemory"), "" | "0"));
    let evicted = field(&info, "evicted_keys").parse().unwrap_or(0);
    (is_evicting.then(|| policy.to_owned()), evicted)
}

/// Returns the value of a line `name:value`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> &'a str {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim())
}

fn not_ready(failure: &Failure) -> NotReady {
    match failure {
        Failure::Lost(why) => unreachable(why.clone()),
        Failure::Refused { refusal, text } => NotReady {
            unavailable: unavailable_from(refusal, text),
            is_elsewhere: matches!(
                refusal.remedy(),
                Remedy::RefreshThenRetry | Remedy::GoTo { .. }
            ),
        },
    }
}

const fn unreachable(why: String) -> NotReady {
    NotReady { unavailable: Unavailable::Unreachable(why), is_elsewhere: true }
}

/// Converts a refusal to the error type of `rategate`.
pub(crate) fn unavailable_from(refusal: &ServerRefusal, text: &str) -> Unavailable {
    let text: String = text.chars().take(200).collect();
    let why = format!("{refusal} ({text})");
    if refusal.remedy() == Remedy::Report {
        Unavailable::Broken(why)
    } else {
        Unavailable::Unable(why)
    }
}
