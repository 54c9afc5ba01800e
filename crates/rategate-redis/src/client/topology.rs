//! Looking for the server that decides, or for those of a cluster.

use std::sync::Arc;
use std::time::Duration;

use rategate::store::Gone;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::config::{Config, Server, Topology};
use super::connection::{Failure, Kit, carried};
use super::dial::{READY_WITHIN, connect, field};
use super::slots::{Owner, number, owners, text};

/// For how long the answers of a majority are awaited once there is one.
const SETTLED_WITHIN: Duration = Duration::from_millis(200);

/// Who decides on which slots, and how new that is: the epoch of the cluster that the server knew of.
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

    /// Whether a server is reached by TLS.
    pub(crate) fn are_by_tls(&self) -> bool {
        let is_tls = |server: &Server| matches!(server, Server::Tls(..));
        match self {
            Self::One(server) => is_tls(server),
            Self::PrimaryOf(servers)
            | Self::Sentinel { sentinels: servers, .. }
            | Self::Cluster(servers) => servers.iter().any(is_tls),
        }
    }

    /// Whether there is anybody else to find.
    pub(crate) const fn may_move(&self) -> bool {
        !matches!(self, Self::One(_))
    }

    /// Whom to ask, with those that were found before.
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

    /// How many of so many guides have to answer. A change of a cluster is known to most of its servers before it holds,
    /// and most of those that are asked have one of them among them.
    const fn quorum(&self, guides: usize) -> usize {
        match self {
            Self::Cluster(_) => guides.saturating_add(1).div_ceil(2),
            Self::One(_) | Self::PrimaryOf(_) | Self::Sentinel { .. } => 1,
        }
    }
}

/// Asks all who may know, at once, and takes the first answer. In a cluster it takes the newest that most of them give,
/// as a server that was cut off may be the first to answer, and does not know who took over.
pub(crate) async fn find(
    config: Arc<Config>,
    kit: Arc<Kit>,
    known: Vec<Server>,
) -> Result<Vec<Owner>, Gone> {
    kit.shared.stats.searches.one();
    if let Topology::One(server) = &config.topology {
        return Ok(whole(server.clone()).owners);
    }
    let guides = config.topology.guides(known);
    let quorum = config.topology.quorum(guides.len());
    let mut asked = JoinSet::new();
    for guide in guides {
        let (config, kit) = (Arc::clone(&config), Arc::clone(&kit));
        asked.spawn(async move { ask(&guide, &config, kit).await });
    }
    let (mut maps, mut why) = (Vec::new(), String::from("no server that was asked answers"));
    let mut until = after(READY_WITHIN);
    while maps.len() < quorum
        && let Ok(Some(told)) = timeout_at(until, asked.join_next()).await
    {
        match told {
            Ok(Ok(map)) => {
                until = until.min(after(SETTLED_WITHIN));
                maps.push(map);
            }
            Ok(Err(Failure::Lost(text) | Failure::Refused { text, .. })) => why = text,
            Err(_) => {}
        }
    }
    // Of two that are as new, the first.
    let newest =
        maps.into_iter().reduce(|one, other| if other.epoch > one.epoch { other } else { one });
    let newest = newest.ok_or_else(|| Gone::Unreachable(format!("no primary is known: {why}")))?;
    Ok(newest.owners)
}

fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

async fn ask(guide: &Server, config: &Config, kit: Arc<Kit>) -> Result<Map, Failure> {
    match &config.topology {
        Topology::One(server) => Ok(whole(server.clone())),
        Topology::PrimaryOf(_) => {
            let told = ask_for(guide, config, kit, &["ROLE"]).await?;
            let redis::Value::Array(words) = told else { return Err(odd(guide)) };
            match words.first().map(text).as_deref() {
                Some("master") => Ok(whole(guide.clone())),
                _ => Err(Failure::Lost(format!("{guide} is no primary"))),
            }
        }
        Topology::Sentinel { name, .. } => {
            // A sentinel has no databases.
            let config = Config { database: 0, ..config.clone() };
            let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name];
            let told = ask_for(guide, &config, kit, &words).await?;
            let redis::Value::Array(words) = told else {
                return Err(Failure::Lost(format!("{guide} knows no {name}")));
            };
            let [host, port] = words.as_slice() else { return Err(odd(guide)) };
            let port = number(port).ok_or_else(|| odd(guide))?;
            Ok(whole(guide.beside(&text(host), port)))
        }
        Topology::Cluster(_) => map_of(guide, config, kit).await,
    }
}

/// Asks a server of a cluster who has which slots, and how new that is.
async fn map_of(guide: &Server, config: &Config, kit: Arc<Kit>) -> Result<Map, Failure> {
    let (mut connection, mut carrier) = connect(guide, config, kit).await?;
    let told = async {
        // First, so that the map is not older than this says. A user who may not ask knows of no epoch.
        let epoch = connection
            .send(&["CLUSTER", "INFO"])
            .await
            .map_or(0, |told| field(&text(&told), "cluster_current_epoch").parse().unwrap_or(0));
        Ok((epoch, connection.send(&["CLUSTER", "SLOTS"]).await?))
    };
    let (epoch, told) = carried(&mut carrier, told).await?;
    Ok(Map { epoch, owners: owners(guide, &told).ok_or_else(|| odd(guide))? })
}

/// Asks once, over a connection of its own.
async fn ask_for(
    guide: &Server,
    config: &Config,
    kit: Arc<Kit>,
    words: &[&str],
) -> Result<redis::Value, Failure> {
    let (mut connection, mut carrier) = connect(guide, config, kit).await?;
    carried(&mut carrier, connection.send(words)).await
}

fn odd(guide: &Server) -> Failure {
    Failure::Lost(format!("{guide} gives an answer of another form than was asked for"))
}

fn whole(server: Server) -> Map {
    Map { epoch: 0, owners: vec![(server, vec![(0, 16_383)])] }
}
