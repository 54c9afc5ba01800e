//! A cluster of primaries whose slots can move.

use std::time::{Duration, Instant};

use rategate_redis::client::Server as Address;

use super::load::at;
use rategate_testkit::redis::{Brand, Reply, Server};

pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    ids: Vec<String>,
}

impl Cluster {
    /// Starts three primaries, each with a third of the slots.
    pub(crate) fn start(brand: Brand) -> Self {
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500"];
        let options = [&options[..], &["--cluster-require-full-coverage", "no"]].concat();
        let servers: Vec<Server> = (0..3).map(|_| Server::with(brand, &options)).collect();
        let ids = servers.iter().map(|server| server.client().ok(&["CLUSTER", "MYID"]).text());
        let ids: Vec<String> = ids.collect();
        let ranges = [("0", "5460"), ("5461", "10922"), ("10923", "16383")];
        for (server, (first, last)) in servers.iter().zip(ranges) {
            server.client().ok(&["CLUSTER", "ADDSLOTSRANGE", first, last]);
        }
        for (server, epoch) in servers.iter().zip(["1", "2", "3"]) {
            server.client().ok(&["CLUSTER", "SET-CONFIG-EPOCH", epoch]);
        }
        for server in servers.iter().skip(1) {
            let port = servers[0].port().to_string();
            server.client().ok(&["CLUSTER", "MEET", "127.0.0.1", &port]);
        }
        let cluster = Self { servers, ids };
        let start = Instant::now();
        while !cluster.servers.iter().all(Self::is_whole) {
            assert!(start.elapsed() < Duration::from_secs(15), "no cluster");
            std::thread::sleep(Duration::from_millis(20));
        }
        cluster
    }

    fn is_whole(server: &Server) -> bool {
        let info = server.client().ok(&["CLUSTER", "INFO"]).text();
        info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.servers.iter().map(|server| at(server.port())).collect()
    }

    /// Moves a slot from one server to another, key by key, with a pause after each.
    pub(crate) fn migrate(&self, slot: u16, from: usize, to: usize, pause: Duration) {
        let slot = slot.to_string();
        let (source, target) = (&self.servers[from], &self.servers[to]);
        target.client().ok(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        source.client().ok(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
        let port = target.port().to_string();
        let mut client = source.client();
        loop {
            let Reply::List(keys) = client.ok(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]) else {
                panic!("no list")
            };
            let Some(Reply::Bulk(key)) = keys.first() else { break };
            let words = [&b"MIGRATE"[..], b"127.0.0.1", port.as_bytes(), key, b"0", b"1000"];
            client.ok(&words);
            std::thread::sleep(pause);
        }
        for server in [target, source] {
            server.client().ok(&["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]);
        }
    }
}
