//! Looking for the server that decides, or for those of a cluster.

use std::sync::Arc;

use rategate::store::Gone;
use tokio::task::JoinSet;

use super::config::{Config, Server, Topology};
use super::connection::{Failure, Kit, carried};
use super::dial::{READY_WITHIN, connect};
use super::slots::{Owner, number, owners, text};

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
}

/// Asks all who may know, at once, and takes the first answer.
pub(crate) async fn find(
    config: Arc<Config>,
    kit: Arc<Kit>,
    known: Vec<Server>,
) -> Result<Vec<Owner>, Gone> {
    kit.shared.stats.search();
    if let Topology::One(server) = &config.topology {
        return Ok(whole(server.clone()));
    }
    let mut asked = JoinSet::new();
    for guide in config.topology.guides(known) {
        let (config, kit) = (Arc::clone(&config), Arc::clone(&kit));
        asked.spawn(
            async move { tokio::time::timeout(READY_WITHIN, ask(&guide, &config, kit)).await },
        );
    }
    let mut why = String::from("nobody who was asked answers");
    while let Some(told) = asked.join_next().await {
        match told {
            Ok(Ok(Ok(owners))) => return Ok(owners),
            Ok(Ok(Err(failure))) => {
                why = match failure {
                    Failure::Lost(why) => why,
                    Failure::Refused { text, .. } => text,
                }
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
    Err(Gone::Unreachable(format!("no primary is known: {why}")))
}

async fn ask(guide: &Server, config: &Config, kit: Arc<Kit>) -> Result<Vec<Owner>, Failure> {
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
        Topology::Cluster(_) => {
            let told = ask_for(guide, config, kit, &["CLUSTER", "SLOTS"]).await?;
            owners(guide, &told).ok_or_else(|| odd(guide))
        }
    }
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
    Failure::Lost(format!("{guide} gives an answer that nobody understands"))
}

fn whole(server: Server) -> Vec<Owner> {
    vec![(server, vec![(0, 16_383)])]
}
