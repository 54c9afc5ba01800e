//! A server of the store: its connection, and the requests queued for it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rategate::store::{Key, ReservationId, StoreError, Unavailable};

use super::attempts::Attempts;
use super::config::Server;
use super::connection::Connection;
use super::item::Item;
use super::queue::Queue;

/// The interval between greetings of a ready server, which find out what it has lost.
pub(crate) const HELLO_EVERY: Duration = Duration::from_secs(1);
/// The interval between greetings of a server that replies late.
const HELLO_EVERY_IN_SILENCE: Duration = Duration::from_millis(100);

/// The maximum number of queued refunds.
const MAX_RETURNS: usize = 8_192;
/// The maximum number of refunds in one round, besides its requests.
const RETURNS_OF_ROUND: usize = 128;

/// A server of the store: its connection, and the requests queued for it.
pub(crate) struct Node {
    pub(crate) server: Server,
    /// A slot that the server has. A server without one gets no requests, and need not be
    /// reachable.
    pub(crate) slot: Option<u16>,
    pub(crate) queue: Queue,
    /// Refunds of late grants, which have no waiter.
    returns: Queue,
    link: Link,
    /// The number of the connection. Results of an older connection do not count.
    pub(crate) epoch: u64,
    pub(crate) dials: Attempts,
    /// The rounds under way on this connection.
    rounds: Vec<Round>,
    /// The number of rounds under way on any connection of this node, old ones included.
    ///
    /// Their results name this node by its index, which must not be reused until then.
    unanswered: usize,
    /// The recent average duration of a round.
    takes: Duration,
    last_round: u64,
    pub(crate) hello_at: Instant,
    /// The start of the greeting under way.
    pub(crate) hello_since: Option<Instant>,
    /// The identifier of the run of the server that the connection is to.
    pub(crate) run: String,
}

struct Round {
    id: u64,
    since: Instant,
    /// The keys and ids of its requests that count once.
    ids: HashSet<(Key, ReservationId)>,
}

enum Link {
    Up(Connection),
    /// Not connected yet, or no longer, with the reason once it is known.
    Down(Option<Unavailable>),
}

impl Node {
    pub(crate) fn new(server: Server, now: Instant) -> Self {
        Self {
            server,
            slot: None,
            queue: Queue::default(),
            returns: Queue::default(),
            takes: Duration::ZERO,
            link: Link::Down(None),
            epoch: 0,
            dials: Attempts::new(now),
            rounds: Vec::new(),
            unanswered: 0,
            last_round: 0,
            hello_at: now,
            hello_since: None,
            run: String::new(),
        }
    }

    pub(crate) const fn connection(&self) -> Option<&Connection> {
        match &self.link {
            Link::Up(connection) => Some(connection),
            Link::Down(_) => None,
        }
    }

    pub(crate) fn up(&mut self, connection: Connection, run: String, now: Instant) {
        self.link = Link::Up(connection);
        self.run = run;
        self.epoch = self.epoch.wrapping_add(1);
        self.rounds.clear();
        self.hello_since = None;
        self.hello_at = now.checked_add(HELLO_EVERY).unwrap_or(now);
    }

    /// Drops a connection that is of no use any more; another is tried at once.
    pub(crate) fn broke(&mut self, now: Instant) {
        self.link = Link::Down(None);
        self.epoch = self.epoch.wrapping_add(1);
        self.rounds.clear();
        self.hello_since = None;
        self.dials.again(now);
    }

    /// Records that the server could not be reached. Until it is, requests are answered at once
    /// with the reason.
    pub(crate) fn failed(&mut self, unavailable: Unavailable) {
        if let Link::Down(why) = &mut self.link {
            for mut item in self.queue.drain() {
                item.respond(Err(StoreError::Unavailable(unavailable.clone())));
            }
            *why = Some(unavailable);
        }
    }

    /// Returns `true` if there is no connection, or if it has owed a reply for too long.
    pub(crate) fn lacks_connection(&self, now: Instant, patience: Duration) -> bool {
        match self.link {
            Link::Down(_) => true,
            Link::Up(_) => self.owes_at(patience).is_some_and(|at| at <= now),
        }
    }

    /// Records the reply to a greeting. Returns `true` if it came within `budget` and ended a
    /// silence.
    pub(crate) fn greeted(&mut self, now: Instant, budget: Duration) -> bool {
        let Some(since) = self.hello_since.take() else { return false };
        let is_soon = now.saturating_duration_since(since) <= budget;
        let is_silent = self.connection().is_some_and(|connection| connection.observed.is_silent());
        // A greeting that waited with late requests says nothing about the server now.
        let is_known = is_soon || !is_silent;
        let every = if is_known { HELLO_EVERY } else { HELLO_EVERY_IN_SILENCE };
        self.hello_at = now.checked_add(every).unwrap_or(now);
        is_soon && self.connection().is_some_and(|connection| connection.observed.speaks())
    }

    /// Queues a request, or answers it at once if the server is known to be unreachable.
    pub(crate) fn enqueue(&mut self, mut item: Item) {
        if let Link::Down(Some(unavailable)) = &self.link {
            item.respond(Err(StoreError::Unavailable(unavailable.clone())));
        } else if item.is_waited_for() {
            self.queue.push(item);
        } else {
            // A full queue drops its refund with the earliest deadline, whose grant ages out of
            // the store instead.
            if self.returns.len() >= MAX_RETURNS {
                drop(self.returns.pop());
            }
            self.returns.push(item);
        }
    }

    /// Takes the items of the next round: up to `max_items` requests, and some refunds.
    ///
    /// A request whose reply would come too late, by the duration of recent rounds, is answered
    /// as late. It is not sent, since its decision would be of no use. One of a key and an id of
    /// which another is under way waits for that one's reply: the server may refuse the other
    /// alone, which is then sent again.
    pub(crate) fn next_round(&mut self, max_items: usize, now: Instant) -> Vec<Item> {
        let mut items: Vec<Item> =
            std::iter::from_fn(|| self.returns.pop()).take(RETURNS_OF_ROUND).collect();
        let back = items.len();
        let takes = now.checked_add(self.takes).unwrap_or(now);
        let (mut ids, mut held_back) = (HashSet::new(), Vec::new());
        while items.len().saturating_sub(back) < max_items
            && let Some(mut item) = self.queue.pop()
        {
            if item.until <= takes && item.is_past_half(now) {
                item.shed();
            } else if let Some(own) = item.key_and_id()
                && (self.rounds.iter().any(|round| round.ids.contains(&own)) || !ids.insert(own))
            {
                held_back.push(item);
            } else {
                items.push(item);
            }
        }
        self.queue.put_back(held_back);
        items
    }

    /// Returns when a connection has to be tried: there is none, or it has owed a reply for too
    /// long.
    pub(crate) fn dials_at(&self, patience: Duration) -> Option<Instant> {
        let due_at = self.dials.due_at().filter(|_| self.is_of_use())?;
        match self.link {
            Link::Down(_) => Some(due_at),
            Link::Up(_) => Some(self.owes_at(patience)?.max(due_at)),
        }
    }

    /// Returns from when on the connection has owed a reply for too long.
    fn owes_at(&self, patience: Duration) -> Option<Instant> {
        let rounds = self.rounds.iter().map(|round| round.since);
        rounds.chain(self.hello_since).min()?.checked_add(patience)
    }

    pub(crate) fn is_of_use(&self) -> bool {
        self.slot.is_some() || !self.is_idle()
    }

    /// Returns `true` if the index may be reused for another server: no slot, no queue, and no
    /// results to come.
    pub(crate) fn is_vacant(&self) -> bool {
        !self.is_of_use() && self.unanswered == 0 && !self.dials.are_under_way()
    }

    /// Reuses the index for another server. Results over older connections do not count for it.
    pub(crate) fn replace(&mut self, server: Server, now: Instant) {
        let epoch = self.epoch.wrapping_add(1);
        *self = Self { epoch, ..Self::new(server, now) };
    }

    /// Retires a server without slots. Its connection ends with the calls that are under way.
    pub(crate) fn retire(&mut self, now: Instant) -> impl Iterator<Item = Item> {
        self.broke(now);
        self.slot = None;
        self.queue.drain().chain(self.returns.drain())
    }

    pub(crate) fn has_capacity(&self, rounds: usize) -> bool {
        matches!(self.link, Link::Up(_)) && self.rounds.len() < rounds
    }

    /// Returns when the first queued item is late.
    pub(crate) fn late_at(&self) -> Option<Instant> {
        self.queue.late_at().into_iter().chain(self.returns.late_at()).min()
    }

    /// Returns `true` if the queues are empty.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.returns.is_empty()
    }

    /// Starts a round with requests of these keys and ids, and returns its number.
    pub(crate) fn begin(&mut self, ids: HashSet<(Key, ReservationId)>, now: Instant) -> u64 {
        self.last_round = self.last_round.wrapping_add(1);
        self.unanswered = self.unanswered.saturating_add(1);
        self.rounds.push(Round { id: self.last_round, since: now, ids });
        self.last_round
    }

    pub(crate) fn ended(&mut self, epoch: u64, id: u64, now: Instant) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if epoch != self.epoch {
            return;
        }
        if let Some(round) = self.rounds.iter().find(|round| round.id == id) {
            // The newest round counts an eighth, so that one long stall soon loses its weight.
            let took = now.saturating_duration_since(round.since);
            if self.takes.is_zero() {
                self.takes = took;
            }
            self.takes = self
                .takes
                .saturating_mul(7)
                .saturating_add(took)
                .checked_div(8)
                .unwrap_or_default();
        }
        self.rounds.retain(|round| round.id != id);
    }

    /// Answers the queued items whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.queue.expire(now);
        self.returns.expire(now);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Arc;

    use rategate::store::{ReservationEnd, StoreRequest};
    use rategate_core::debt::Debt;
    use rategate_core::gcra::Gcra;

    use super::*;
    use crate::client::shared::Shared;
    use crate::plan::Plan;

    /// An end is not sent together with its beginning, or while that is under way: the server may
    /// refuse one call of a round and carry out another.
    #[test]
    fn requests_of_one_key_and_id_are_sent_one_after_the_other() {
        let (shared, now) = (Arc::new(Shared::new(8)), Instant::now());
        let gcra = Gcra::new("1/s".parse().unwrap(), 1).unwrap();
        let plan = Arc::new(Plan::of_rules(&[("a", gcra.into())]).unwrap());
        let mut node = Node::new(Server::tcp("127.0.0.1", 1), now);
        node.link = Link::Down(None);
        let add = |node: &mut Node, key: &[u8], id: u8, is_end: bool| {
            let (plan, key, id) = (Arc::clone(&plan), Key::from(key), ReservationId([id; 16]));
            let (end, debt) = (ReservationEnd::Cancel, Debt::FORGOTTEN);
            let request = if is_end {
                StoreRequest::End { plan, key, id, end, debt }
            } else {
                let (permits, ttl_ns) = (NonZeroU64::MIN, NonZeroU64::MIN);
                StoreRequest::Reserve { plan, key, permits, id, ttl_ns, spared: 0 }
            };
            let budget = Duration::from_secs(60);
            node.enqueue(Item::new(&shared, request, Box::new(|_| ()), budget));
        };
        for (id, is_end) in [(1, false), (1, true), (2, false), (1, false), (3, true)] {
            add(&mut node, b"k", id, is_end);
        }
        let round = |node: &mut Node| -> Vec<(u8, bool)> {
            let items = node.next_round(8, now);
            let is_end = |item: &Item| matches!(item.request, StoreRequest::End { .. });
            let sent = items.iter().map(|item| (item.id().unwrap().0[0], is_end(item))).collect();
            node.begin(items.iter().filter_map(Item::key_and_id).collect(), now);
            sent
        };
        assert_eq!(round(&mut node), [(1, false), (2, false), (3, true)]);
        assert_eq!(round(&mut node), [], "the first is under way");
        node.ended(node.epoch, 1, now);
        assert_eq!(round(&mut node), [(1, true)]);
        // What is refused comes before what waits behind it.
        node.ended(node.epoch, 3, now);
        assert_eq!(round(&mut node), [(1, false)]);
        // The rules of one reservation have keys of their own, and take one round together.
        for key in [b"l", b"m", b"m"] {
            add(&mut node, key, 4, false);
        }
        add(&mut node, b"k", 4, true);
        assert_eq!(round(&mut node), [(4, false), (4, false), (4, true)]);
    }
}
