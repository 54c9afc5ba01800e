//! Remedies for failed calls: another server, another attempt, or an error for the callers.

use std::time::{Duration, Instant};

use rategate::store::StoreError;

use super::config::Server;
use super::dial::unavailable_from;
use super::driver::Driver;
use super::item::Item;
use super::node::Node;
use super::round::Outcome;
use crate::refusal::{Remedy, ServerRefusal as Refusal};

/// The delay before a server that replies late receives another `HELLO`.
const HELLO_RETRY_DELAY: Duration = Duration::from_millis(30);

impl Driver {
    /// Handles the end of a round.
    pub(super) fn called(
        &mut self,
        at: usize,
        epoch: u64,
        round: u64,
        outcomes: Vec<Outcome>,
        now: Instant,
    ) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.ended(epoch, round, now);
            let is_lost = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Lost(_)));
            if is_lost && node.epoch == epoch {
                node.broke(now);
                self.search.is_wanted |= self.config.topology.may_move();
            }
            // Another `HELLO` shows what the server has lost, and whether it replies in time.
            let (is_lost, is_silent) = node.connection().map_or((false, false), |connection| {
                (connection.observed.is_lost(), connection.observed.is_silent())
            });
            if is_lost {
                node.hello_at = now;
            } else if is_silent {
                // The delay limits the greetings to fewer than one for each of many replies.
                node.hello_at =
                    node.hello_at.min(now.checked_add(HELLO_RETRY_DELAY).unwrap_or(now));
            }
        }
        for outcome in outcomes {
            match outcome {
                Outcome::Answered(back) => {
                    for item in back {
                        self.shared.stats.returned.one();
                        self.route(item);
                    }
                }
                Outcome::Refused { refusal, text, items } => {
                    self.refused(at, &refusal, &text, items, now);
                }
                Outcome::Lost(again) => {
                    for mut item in again {
                        self.shared.stats.resent.one();
                        item.is_asking = false;
                        self.route(item);
                    }
                }
                Outcome::Abandoned => {}
            }
        }
    }

    /// Handles a refusal, which changed nothing: some requests are sent again, within their time.
    fn refused(
        &mut self,
        at: usize,
        refusal: &Refusal,
        text: &str,
        items: Vec<Item>,
        now: Instant,
    ) {
        let remedy = refusal.remedy();
        let is_elsewhere = matches!(remedy, Remedy::RefreshThenRetry | Remedy::GoTo { .. })
            || matches!(refusal, Refusal::ClusterDown | Refusal::MasterDown);
        self.search.is_wanted |= is_elsewhere && self.config.topology.may_move();
        let is_many = items.len() > 1;
        let goes_to = match (&remedy, refusal) {
            (Remedy::GoTo { address, asking }, _) => {
                self.known(at, address, now).map(|node| (node, *asking))
            }
            _ => None,
        };
        if let (Some((node, false)), Refusal::Moved { slot, .. }) = (goes_to, refusal) {
            self.slots.set(*slot, node);
            if let Some(node) = self.nodes.get_mut(node) {
                node.slot.get_or_insert(*slot);
            }
        }
        let unavailable = unavailable_from(refusal, text);
        for mut item in items {
            let may_help = match &remedy {
                Remedy::GoTo { .. } => goes_to.is_some(),
                Remedy::RefreshThenRetry => self.config.topology.may_move(),
                // The functions were flushed again since they were loaded.
                Remedy::RetrySoon | Remedy::LoadThenRetry | Remedy::SendScript => true,
                // The error may be due to another request of the same call.
                Remedy::Report => is_many,
                _ => false,
            };
            if !may_help || item.until <= now || !item.resend() {
                item.respond(Err(StoreError::Unavailable(unavailable.clone())));
                continue;
            }
            self.shared.stats.resent.one();
            item.is_asking = false;
            match (&remedy, goes_to) {
                (Remedy::GoTo { .. }, Some((node, asking))) => {
                    item.is_asking = asking;
                    if let Some(node) = self.nodes.get_mut(node) {
                        node.enqueue(item);
                    }
                }
                (Remedy::RefreshThenRetry, _) => {
                    // The request waits until the new primary is found.
                    self.unrouted.push(item);
                }
                _ => {
                    item.is_single = matches!(remedy, Remedy::RetrySoon | Remedy::Report);
                    self.route(item);
                }
            }
        }
    }

    /// Returns the index of a node by the address that another one named.
    fn known(&mut self, from: usize, address: &str, now: Instant) -> Option<usize> {
        let server = self.nodes.get(from)?.server.at(address)?;
        Some(self.node_for(server, now))
    }

    /// Returns the index of a node. A new server reuses the index of one that is of no use any
    /// more.
    ///
    /// So a cluster whose servers come and go has no more indices than it had servers at a time.
    pub(super) fn node_for(&mut self, server: Server, now: Instant) -> usize {
        if let Some(known) = self.nodes.iter().position(|node| node.server == server) {
            return known;
        }
        let vacant = self.nodes.iter_mut().enumerate().find(|(_, node)| node.is_vacant());
        if let Some((at, node)) = vacant {
            node.replace(server, now);
            return at;
        }
        self.nodes.push(Node::new(server, now));
        self.nodes.len().saturating_sub(1)
    }
}
