//! Discovery of the primary, or of the servers of a cluster.

use std::sync::Arc;
use std::time::Duration;

use rategate::store::Unavailable;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::config::{Config, Server, Topology};
use super::connection::{Failure, StoreContext, carried};
use super::dial::{READY_WITHIN, connect, field};
use super::slots::{Owner, number, owners, text};
use crate::reply::Value;

/// The time the replies of a majority are awaited after the first one.
const SETTLED_WITHIN: Duration = Duration::from_millis(200);

/// The owners of the slots, with the cluster epoch that the server knew of.
struct Map {
    epoch: u64,
    owners: Vec<Owner>,
}

impl Topology {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::One(_) => false,
            Self::PrimaryOf(servers)
            | Self::Sentinel { sentinels: servers, .. }
            | Self::Cluster(servers) => servers.is_empty(),
        }
    }

    /// Returns `true` if a server is reached by TLS.
    pub(crate) fn are_by_tls(&self) -> bool {
        let is_tls = |server: &Server| matches!(server, Server::Tls(..));
        match self {
            Self::One(server) => is_tls(server),
            Self::PrimaryOf(servers)
            | Self::Sentinel { sentinels: servers, .. }
            | Self::Cluster(servers) => servers.iter().any(is_tls),
        }
    }

    /// Returns `true` if the servers can change.
    pub(crate) const fn may_move(&self) -> bool {
        !matches!(self, Self::One(_))
    }

    /// Returns the servers to query, together with those found before.
    fn guides(&self, known: Vec<Server>) -> Vec<Server> {
        let mut guides = match self {
            Self::One(server) => return vec![server.clone()],
            Self::PrimaryOf(servers) | Self::Sentinel { sentinels: servers, .. } => servers.clone(),
            Self::Cluster(servers) => servers.iter().cloned().chain(known).collect(),
        };
        let mut seen = std::collections::HashSet::new();
        guides.retain(|guide| seen.insert(guide.clone()));
        guides
    }

    /// Returns the number of guides that have to reply. A change of a cluster reaches most of its
    /// servers before it takes effect, so a majority of the queried servers includes one that
    /// knows it.
    const fn quorum(&self, guides: usize) -> usize {
        match self {
            Self::Cluster(_) => guides.saturating_add(1).div_ceil(2),
            Self::One(_) | Self::PrimaryOf(_) | Self::Sentinel { .. } => 1,
        }
    }
}

/// Queries all guides at once, and takes the first reply.
///
/// In a cluster it takes the newest map that a majority reports: a server that was cut off may be
/// the first to reply, and does not know its successor.
pub(crate) async fn find(
    config: Arc<Config>,
    store_context: Arc<StoreContext>,
    known: Vec<Server>,
) -> Result<Vec<Owner>, Unavailable> {
    store_context.shared.stats.searches.one();
    if let Topology::One(server) = &config.topology {
        return Ok(whole(server.clone()).owners);
    }
    let guides = config.topology.guides(known);
    let quorum = config.topology.quorum(guides.len());
    let mut queries = JoinSet::new();
    for guide in guides {
        let (config, store_context) = (Arc::clone(&config), Arc::clone(&store_context));
        queries.spawn(async move { query_guide(&guide, &config, store_context).await });
    }
    let (mut maps, mut why) = (Vec::new(), String::from("none of the servers replies"));
    let mut until = after(READY_WITHIN);
    while maps.len() < quorum
        && let Ok(Some(reply)) = timeout_at(until, queries.join_next()).await
    {
        match reply {
            Ok(Ok(map)) => {
                until = until.min(after(SETTLED_WITHIN));
                maps.push(map);
            }
            Ok(Err(Failure::Lost(text) | Failure::Refused { text, .. })) => why = text,
            Err(_) => {}
        }
    }
    // Of two maps with the same epoch, the first wins.
    let newest =
        maps.into_iter().reduce(|one, other| if other.epoch > one.epoch { other } else { one });
    let newest =
        newest.ok_or_else(|| Unavailable::Unreachable(format!("no primary found: {why}")))?;
    Ok(newest.owners)
}

fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

async fn query_guide(
    guide: &Server,
    config: &Config,
    store_context: Arc<StoreContext>,
) -> Result<Map, Failure> {
    match &config.topology {
        Topology::One(server) => Ok(whole(server.clone())),
        Topology::PrimaryOf(_) => {
            let reply = query(guide, config, store_context, &["ROLE"]).await?;
            let Value::List(words) = reply else { return Err(odd(guide)) };
            match words.first().map(text).as_deref() {
                Some("master") => Ok(whole(guide.clone())),
                _ => Err(Failure::Lost(format!("{guide} is not a primary"))),
            }
        }
        Topology::Sentinel { name, .. } => {
            // A sentinel has no databases.
            let config = Config { database: 0, ..config.clone() };
            let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name];
            let reply = query(guide, &config, store_context, &words).await?;
            let Value::List(words) = reply else {
                return Err(Failure::Lost(format!("{guide} knows no {name}")));
            };
            let [host, port] = words.as_slice() else { return Err(odd(guide)) };
            let port = number(port).ok_or_else(|| odd(guide))?;
            Ok(whole(guide.sibling(&text(host), port)))
        }
        Topology::Cluster(_) => map_of(guide, config, store_context).await,
    }
}

/// Queries a server of a cluster for the owners of the slots, and the epoch of that map.
async fn map_of(
    guide: &Server,
    config: &Config,
    store_context: Arc<StoreContext>,
) -> Result<Map, Failure> {
    let (connection, mut carrier) = connect(guide, config, store_context).await?;
    let reply = async {
        // Queried first, so that the map is not older than the epoch. A user without that
        // permission reads epoch 0.
        let epoch = connection
            .send(&["CLUSTER", "INFO"])
            .await
            .map_or(0, |reply| field(&text(&reply), "cluster_current_epoch").parse().unwrap_or(0));
        Ok((epoch, connection.send(&["CLUSTER", "SLOTS"]).await?))
    };
    let (epoch, reply) = carried(&mut carrier, reply).await?;
    Ok(Map { epoch, owners: owners(guide, &reply).ok_or_else(|| odd(guide))? })
}

/// Sends one command over a connection of its own.
async fn query(
    guide: &Server,
    config: &Config,
    store_context: Arc<StoreContext>,
    words: &[&str],
) -> Result<Value, Failure> {
    let (connection, mut carrier) = connect(guide, config, store_context).await?;
    carried(&mut carrier, connection.send(words)).await
}

fn odd(guide: &Server) -> Failure {
    Failure::Lost(format!("{guide} sent a reply in an unexpected format"))
}

fn whole(server: Server) -> Map {
    Map { epoch: 0, owners: vec![(server, vec![(0, 16_383)])] }
}
