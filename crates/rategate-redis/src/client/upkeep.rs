//! Upkeep of servers: connecting, greeting, and searching for the owners of slots.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use rategate::store::{StoreError, Unavailable};

use super::attempts::Attempts;
use super::connection::Failure;
use super::dial::{NotReady, Ready, dial, greet};
use super::driver::{Driver, Event};
use super::slots::{Owner, Slots};
use super::supervisor::caught;
use super::topology::find;
use crate::refusal::Remedy;

/// The search for the primary, or for the servers of a cluster.
pub(super) struct Search {
    pub(super) is_wanted: bool,
    attempts: Attempts,
}

impl Search {
    pub(super) const fn new(is_wanted: bool, now: Instant) -> Self {
        Self { is_wanted, attempts: Attempts::new(now) }
    }

    /// Returns when the next search is due: one is wanted, or one has not ended yet.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.attempts.due_at().filter(|_| self.is_wanted || self.attempts.are_under_way())
    }
}

impl Driver {
    /// Connects, greets and searches, as far as each is due.
    pub(super) fn maintain_connections(&mut self, now: Instant) {
        for at in 0..self.nodes.len() {
            self.connect_if_due(at, now);
            self.hello_if_due(at, now);
        }
        if self.search.due_at().is_some_and(|at| at <= now) {
            self.search.is_wanted = false;
            self.search.attempts.begin(now);
            // A server without slots is not queried: another program may listen there by now, and
            // would receive the password.
            let known = self.nodes.iter().filter(|node| node.slot.is_some());
            let known = known.map(|node| node.server.clone()).collect();
            let (config, store_context) =
                (Arc::clone(&self.config), Arc::clone(&self.store_context));
            self.begin(async move {
                let shared = Arc::clone(&store_context.shared);
                let found = caught(&shared, find(config, store_context, known)).await;
                Event::Found(found.unwrap_or_else(|why| Err(Unavailable::Broken(why))))
            });
        }
    }

    fn connect_if_due(&mut self, at: usize, now: Instant) {
        let (patience, is_cluster) = (self.config.patience(), self.encoder.is_cluster);
        let Some(node) = self.nodes.get_mut(at) else { return };
        if node.dials_at(patience).is_none_or(|at| at > now) {
            return;
        }
        node.dials.begin(now);
        let (server, slot) = (node.server.clone(), node.slot.filter(|_| is_cluster));
        let (config, store_context) = (Arc::clone(&self.config), Arc::clone(&self.store_context));
        let keys = self.encoder.keys.clone();
        self.begin(async move {
            let shared = Arc::clone(&store_context.shared);
            let ready = caught(&shared, dial(server, config, store_context, keys, slot)).await;
            let ready = ready.unwrap_or_else(|why| Err(NotReady::panicked(&why)));
            Event::Dialed { node: at, ready }
        });
    }

    fn hello_if_due(&mut self, at: usize, now: Instant) {
        let is_cluster = self.encoder.is_cluster;
        let Some(node) = self.nodes.get_mut(at) else { return };
        if node.hello_since.is_some() || node.hello_at > now {
            return;
        }
        let Some(connection) = node.connection().cloned() else { return };
        node.hello_since = Some(now);
        let (epoch, run, slot) = (node.epoch, node.run.clone(), node.slot.filter(|_| is_cluster));
        let (shared, keys) = (Arc::clone(&self.shared), self.encoder.keys.clone());
        self.begin(async move {
            let outcome = caught(&shared, greet(&connection, &keys, slot, &run)).await;
            let outcome = outcome.unwrap_or_else(|why| Err(Failure::Lost(why)));
            Event::HelloDone { node: at, epoch, outcome }
        });
    }

    pub(super) fn dialed(&mut self, at: usize, ready: Result<Ready, NotReady>, now: Instant) {
        let patience = self.config.patience();
        let Some(node) = self.nodes.get_mut(at) else { return };
        match ready {
            Ok(Ready { connection, carrier, run, evicts }) => {
                node.dials.succeeded();
                // Another attempt was sooner, or no requests go there any more.
                if !node.lacks_connection(now, patience) || !node.is_of_use() {
                    return;
                }
                node.up(connection, run, now);
                self.shared.stats.revivals.one();
                let shared = Arc::clone(&self.shared);
                self.begin(async move {
                    let _ = caught(&shared, carrier).await;
                    Event::Carried
                });
                if let Some(policy) = evicts {
                    self.warn_of(at, &policy);
                }
            }
            Err(NotReady { unavailable, is_elsewhere }) => {
                node.dials.failed(now);
                node.failed(unavailable);
                self.search.is_wanted |= is_elsewhere && self.config.topology.may_move();
            }
        }
    }

    /// Warns once of a server that drops keys when its memory is full.
    fn warn_of(&mut self, at: usize, policy: &str) {
        let (Some(node), false, Some(warn)) =
            (self.nodes.get(at), self.has_warned, &self.config.warn)
        else {
            return;
        };
        self.has_warned = true;
        let text = format!(
            "{} has maxmemory-policy {policy}: when its memory is full it drops states, \
             which resets limits; set it to noeviction",
            node.server
        );
        // A panic in the foreign callback is contained.
        let _ = catch_unwind(AssertUnwindSafe(|| (warn.0)(&text)));
    }

    pub(super) fn greeted(
        &mut self,
        at: usize,
        epoch: u64,
        outcome: Result<Option<String>, Failure>,
        now: Instant,
    ) {
        let Some(node) = self.nodes.get_mut(at).filter(|node| node.epoch == epoch) else { return };
        let is_back = node.greeted(now, self.config.budget);
        match outcome {
            Ok(evicts) => {
                if is_back {
                    self.shared.stats.revivals.one();
                }
                if let Some(policy) = evicts {
                    self.warn_of(at, &policy);
                }
            }
            Err(Failure::Lost(_)) => {
                node.broke(now);
                self.search.is_wanted |= self.config.topology.may_move();
            }
            Err(Failure::Refused { refusal, .. }) => {
                let is_elsewhere =
                    matches!(refusal.remedy(), Remedy::RefreshThenRetry | Remedy::GoTo { .. });
                self.search.is_wanted |= is_elsewhere && self.config.topology.may_move();
            }
        }
    }

    pub(super) fn found(&mut self, owners: Result<Vec<Owner>, Unavailable>, now: Instant) {
        let owners = match owners {
            Ok(owners) => owners,
            Err(unavailable) => {
                for mut item in self.unrouted.drain() {
                    item.respond(Err(StoreError::Unavailable(unavailable.clone())));
                }
                self.no_server_reason = Some(unavailable);
                self.search.is_wanted = true;
                self.search.attempts.failed(now);
                return;
            }
        };
        self.no_server_reason = None;
        self.search.attempts.succeeded();
        let mut slots = Slots::new();
        for (server, ranges) in owners {
            let at = self.node_for(server, now);
            for slot in ranges.into_iter().flat_map(|(first, last)| first..=last) {
                slots.set(slot, at);
                // From now on the index is taken.
                if let Some(node) = self.nodes.get_mut(at) {
                    node.slot = Some(slot);
                }
            }
        }
        // An unavailable server without a successor is no reason to query all others over and
        // over.
        if self.slots == slots {
            self.search.attempts.found_nothing_new(now);
        }
        self.slots = slots;
        let mut unrouted = std::mem::take(&mut self.unrouted);
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.slot = self.slots.any_of(at);
            // Requests queued for a server without slots have to find another.
            if node.slot.is_none() {
                node.retire(now).for_each(|item| unrouted.push(item));
            }
        }
        for item in unrouted.drain() {
            self.route(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::client::config::{Config, Server};
    use crate::client::dial::Dialer;
    use crate::client::round::Outcome;
    use crate::client::shared::Shared;
    use crate::key::KeySpace;

    fn driver() -> Driver {
        let config = Config::cluster([Server::tcp("guide", 1)]);
        let dialer = Dialer::new(&config).unwrap();
        let (shared, keys) = (Arc::new(Shared::new(8)), KeySpace::new("t").unwrap());
        Driver::new(&shared, &Arc::new(config), &keys, &dialer)
    }

    /// Three servers at a time have the slots, and two of them are others in each map.
    #[test]
    fn replaced_servers_reuse_nodes() {
        let (mut driver, now) = (driver(), Instant::now());
        for port in 0..50 {
            let owners = [
                (Server::tcp("comes", port), vec![(0, 99), (200, 299)]),
                (Server::tcp("comes too", port), vec![(100, 199)]),
                (Server::tcp("stays", 1), vec![(300, 16_383)]),
            ];
            driver.found(Ok(owners.to_vec()), now);
            for (server, ranges) in owners {
                let slots = ranges.into_iter().flat_map(|(first, last)| first..=last);
                for slot in slots {
                    let at = driver.slots.node_of(slot).unwrap();
                    assert_eq!(driver.nodes[at].server, server, "{slot}");
                    assert!(driver.nodes[at].slot.is_some());
                }
            }
            let servers: HashSet<_> = driver.nodes.iter().map(|node| &node.server).collect();
            assert_eq!(servers.len(), driver.nodes.len());
        }
        assert!(driver.nodes.len() <= 5, "{}", driver.nodes.len());
    }

    /// Results of a round name their server by its index.
    #[test]
    fn a_node_with_pending_work_keeps_its_server() {
        let (mut driver, now) = (driver(), Instant::now());
        let node_of_newest = |driver: &mut Driver, port| {
            let server = Server::tcp("h", port);
            driver.found(Ok(vec![(server.clone(), vec![(0, 16_383)])]), now);
            driver.nodes.iter().position(|node| node.server == server).unwrap()
        };
        let first = node_of_newest(&mut driver, 1);
        let (epoch, round) =
            (driver.nodes[first].epoch, driver.nodes[first].begin(HashSet::new(), now));
        assert_ne!(node_of_newest(&mut driver, 2), first, "it had slots until now");
        assert_ne!(node_of_newest(&mut driver, 3), first, "a round is under way");
        driver.nodes[first].dials.begin(now);
        driver.called(first, epoch, round, vec![Outcome::Abandoned], now);
        assert_ne!(node_of_newest(&mut driver, 4), first, "a connection is being made");
        driver.nodes[first].dials.succeeded();
        assert_eq!(node_of_newest(&mut driver, 5), first);
        assert_ne!(driver.nodes[first].epoch, epoch, "what is left of the other's does not count");
    }
}
