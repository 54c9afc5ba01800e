//! A connection made ready: who is it, has it the functions, since when has it lost nothing.

use std::sync::Arc;
use std::time::Duration;

use rategate::store::Gone;
#[cfg(feature = "tls")]
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
};

use super::config::{Config, Server};
use super::functions;
#[cfg(feature = "tls")]
use super::line::Carrier;
use super::line::{Failure, Kit, Line};
use super::slots::text;
use crate::fault::{Fault, Remedy};
use crate::group::{self, Marker};
use crate::key::KeySpace;
use crate::reply;

/// How long a connection may take to be ready.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(1);

/// A server that decides.
pub(crate) struct Ready {
    pub(crate) line: Line,
    /// Which run of the server this is.
    pub(crate) run: String,
    /// It drops keys of ours when its memory is full.
    pub(crate) evicts: Option<String>,
}

/// Why a server does not decide.
#[derive(Debug)]
pub(crate) struct NotReady {
    pub(crate) gone: Gone,
    /// Somebody else may be the primary.
    pub(crate) is_elsewhere: bool,
}

impl NotReady {
    /// The attempt panicked; the next one may not.
    pub(crate) fn panicked(words: &str) -> Self {
        let gone = Gone::Broken(format!("connecting to the store panicked: {words}"));
        Self { gone, is_elsewhere: true }
    }
}

/// Connects, and makes ready. `slot` is one whose keys the server has.
pub(crate) async fn dial(
    server: Server,
    config: Arc<Config>,
    kit: Arc<Kit>,
    keys: KeySpace,
    slot: Option<u16>,
) -> Result<Ready, NotReady> {
    kit.shared.stats.dial();
    let ready = async {
        let mut line =
            connect(&server, &config, kit).await.map_err(|failure| not_ready(&failure))?;
        let run = who(&mut line).await?;
        functions::check(&mut line).await.map_err(|failure| not_ready(&failure))?;
        let evicts = evicts(&mut line).await;
        hello(&mut line, &keys, slot, &run).await.map_err(|failure| not_ready(&failure))?;
        Ok(Ready { line, run, evicts })
    };
    match tokio::time::timeout(READY_WITHIN, ready).await {
        Ok(ready) => ready,
        Err(_) => Err(unreachable(format!("{server} does not answer"))),
    }
}

/// By what servers are reached: the checked part of a configuration.
#[derive(Clone)]
pub(crate) struct Dialer {
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ClientConfig>>,
}

#[cfg(feature = "tls")]
impl Dialer {
    /// Reads certificates, where servers are reached by TLS. The error says which is wrong.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        let is_needed = config.places.are_by_tls();
        let tls = is_needed.then(|| config.tls.client()).transpose()?;
        Ok(Self { tls: tls.map(Arc::new) })
    }

    /// Connects by TLS.
    async fn secured(
        &self,
        (host, port): (&str, u16),
        user: &RedisConnectionInfo,
        quiet: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Carrier), redis::RedisError> {
        let missing = || std::io::Error::other("no server of the configuration is reached by TLS");
        let tls = self.tls.clone().ok_or_else(missing)?;
        let stream = super::tls::connect(tls, host, port).await?;
        let (connection, carries) =
            MultiplexedConnection::new_with_config(user, stream, quiet).await?;
        Ok((connection, Carrier::spawn(carries)))
    }
}

#[cfg(not(feature = "tls"))]
impl Dialer {
    /// Refuses servers that are reached by TLS.
    pub(crate) fn new(config: &Config) -> Result<Self, String> {
        if config.places.are_by_tls() {
            return Err(String::from(
                "a server is reached by TLS: enable the feature `tls` of rategate-redis",
            ));
        }
        Ok(Self {})
    }
}

/// A connection alone.
pub(crate) async fn connect(
    server: &Server,
    config: &Config,
    kit: Arc<Kit>,
) -> Result<Line, Failure> {
    let lost = |error: redis::RedisError| failure_of(server, &error);
    let mut user = RedisConnectionInfo::default().set_db(config.database).set_skip_set_lib_name();
    if let Some(name) = &config.user {
        user = user.set_username(name);
    }
    if let Some(password) = &config.password.0 {
        user = user.set_password(password);
    }
    // Time is kept by whoever waits; a call under way is not given up by the connection.
    let quiet = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(READY_WITHIN))
        .set_response_timeout(None);
    let address = match server {
        Server::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
        Server::Unix(path) => ConnectionAddr::Unix(path.clone()),
        #[cfg(feature = "tls")]
        Server::Tls(host, port) => {
            let secured = kit.dialer.secured((host, *port), &user, quiet).await;
            let (connection, carrier) = secured.map_err(lost)?;
            kit.shared.stats.connection();
            return Ok(Line::new(connection, kit).over(carrier));
        }
        // None was let in when the store was opened, and servers tell of others of their own kind.
        #[cfg(not(feature = "tls"))]
        Server::Tls(..) => return Err(Failure::Lost(format!("{server}: no TLS"))),
    };
    let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let info = address.into_connection_info().map_err(lost)?;
    let info = info.set_redis_settings(user).set_tcp_settings(settings);
    let client = Client::open(info).map_err(lost)?;
    let connection =
        client.get_multiplexed_async_connection_with_config(&quiet).await.map_err(lost)?;
    kit.shared.stats.connection();
    Ok(Line::new(connection, kit))
}

fn failure_of(server: &Server, error: &redis::RedisError) -> Failure {
    let detail = error.detail().unwrap_or("");
    let refused = |line: String| Failure::Refused { fault: Fault::of(&line), line };
    match (error.code(), error.kind()) {
        (Some(code), _) => refused(format!("{code} {detail}")),
        (None, redis::ErrorKind::AuthenticationFailed) => refused(format!("WRONGPASS {error}")),
        (None, _) => Failure::Lost(format!("{server}: {error}")),
    }
}

/// Which run of which server this is, if it is a primary.
async fn who(line: &mut Line) -> Result<String, NotReady> {
    let mut told = String::new();
    for section in ["server", "replication"] {
        let answer = line.send(&["INFO", section], false).await;
        told.push_str(&text(&answer.map_err(|failure| not_ready(&failure))?));
    }
    let of = |name: &str| field(&told, name);
    if of("role") != "master" {
        let why = format!("it is a replica of {}:{}", of("master_host"), of("master_port"));
        return Err(NotReady { gone: Gone::Unable(why), is_elsewhere: true });
    }
    let run: String = of("run_id").chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    Ok(if run.is_empty() { "unknown".to_owned() } else { run })
}

/// Asks since when the store has lost nothing. A store that does not know us begins now.
pub(crate) async fn hello(
    line: &mut Line,
    keys: &KeySpace,
    slot: Option<u16>,
    run: &str,
) -> Result<(), Failure> {
    let value = line.call(group::hello(keys, slot, run)).await?;
    let counts = reply::counts(&value, 1);
    let counts = counts.map_err(|error| Failure::Lost(error.to_string()))?;
    let since_us = counts.counts.first().copied().unwrap_or(counts.now_us);
    line.intact_since(since_us, counts.now_us, Marker::new(keys, slot, run, since_us));
    Ok(())
}

/// A server that was ready is asked whether it still is, what it has lost, and whether it may drop states.
pub(crate) async fn greet(
    line: &mut Line,
    keys: &KeySpace,
    slot: Option<u16>,
    run: &str,
) -> Result<(), Failure> {
    hello(line, keys, slot, run).await?;
    evicts(line).await;
    Ok(())
}

/// The policy by which the server drops keys that are in use, if it has one. It counts for the line while there is a
/// memory to fill.
async fn evicts(line: &mut Line) -> Option<String> {
    let told = text(&line.send(&["INFO", "memory"], false).await.ok()?);
    let policy = field(&told, "maxmemory_policy");
    let is_evicting = policy.starts_with("allkeys-") || policy.starts_with("volatile-");
    line.evicts(is_evicting && !matches!(field(&told, "maxmemory"), "" | "0"));
    is_evicting.then(|| policy.to_owned())
}

/// The value of a line `name:value`.
fn field<'a>(told: &'a str, name: &str) -> &'a str {
    let mut lines = told.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim())
}

fn not_ready(failure: &Failure) -> NotReady {
    match failure {
        Failure::Lost(why) => unreachable(why.clone()),
        Failure::Refused { fault, line } => NotReady {
            gone: gone_of(fault, line),
            is_elsewhere: matches!(fault.remedy(), Remedy::RefreshThenRetry | Remedy::GoTo { .. }),
        },
    }
}

const fn unreachable(why: String) -> NotReady {
    NotReady { gone: Gone::Unreachable(why), is_elsewhere: true }
}

/// A refusal, in the library's words.
pub(crate) fn gone_of(fault: &Fault, line: &str) -> Gone {
    let line: String = line.chars().take(200).collect();
    let why = format!("{fault} ({line})");
    if fault.remedy() == Remedy::Report { Gone::Broken(why) } else { Gone::Unable(why) }
}
