//! A server: its connection, and what is to be asked there.

use std::time::{Duration, Instant};

use rategate::store::{Fault, Gone};

use super::attempts::Attempts;
use super::config::Server;
use super::connection::Connection;
use super::item::Item;
use super::queue::Queue;

/// How often a server that is ready is asked whether it still is, and what it has lost.
pub(crate) const HELLO_EVERY: Duration = Duration::from_secs(1);
/// The same of one that has let questions wait for too long.
const HELLO_EVERY_IN_SILENCE: Duration = Duration::from_millis(100);

/// Permits on their way back that wait for a round, at most, and how many grants of them one round takes.
const MAX_RETURNS: usize = 8_192;
const RETURNS_OF_ROUND: usize = 128;

/// A server: its connection, and what is to be asked there.
pub(crate) struct Node {
    pub(crate) server: Server,
    /// Some slot that it has. Whoever has none is not asked, and need not be there.
    pub(crate) slot: Option<u16>,
    pub(crate) queue: Queue,
    /// Permits of late grants on their way back: nobody waits for them.
    returns: Queue,
    link: Link,
    /// Which connection this is: what came over another does not count for it.
    pub(crate) epoch: u64,
    pub(crate) dials: Attempts,
    /// Rounds under way on this connection, and since when.
    rounds: Vec<Round>,
    /// Rounds under way on any connection: what they bring back names this node by its place.
    unanswered: usize,
    /// How long rounds take of late.
    takes: Duration,
    last_round: u64,
    pub(crate) hello_at: Instant,
    /// Since when a hello is under way.
    pub(crate) greeting_since: Option<Instant>,
    /// Of the run that the connection is to.
    pub(crate) run: String,
}

struct Round {
    id: u64,
    since: Instant,
}

enum Link {
    Up(Connection),
    /// Not yet, or no longer; why, once that is known.
    Down(Option<Gone>),
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
            greeting_since: None,
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
        self.greeting_since = None;
        self.hello_at = now.checked_add(HELLO_EVERY).unwrap_or(now);
    }

    /// The connection is of no use any more; another is tried at once.
    pub(crate) fn broke(&mut self, now: Instant) {
        self.link = Link::Down(None);
        self.epoch = self.epoch.wrapping_add(1);
        self.rounds.clear();
        self.greeting_since = None;
        self.dials.again(now);
    }

    /// It could not be reached. Who asks meanwhile hears why, at once.
    pub(crate) fn failed(&mut self, gone: Gone) {
        if let Link::Down(why) = &mut self.link {
            for mut item in self.queue.drain() {
                item.hear(Err(Fault::Gone(gone.clone())));
            }
            *why = Some(gone);
        }
    }

    /// Whether a connection is of use: there is none, or it owes an answer for too long.
    pub(crate) fn lacks_connection(&self, now: Instant, patience: Duration) -> bool {
        match self.link {
            Link::Down(_) => true,
            Link::Up(_) => self.owes_at(patience).is_some_and(|at| at <= now),
        }
    }

    /// It was greeted, and has answered, within a budget or later. Returns whether it had been silent, and is not any more.
    pub(crate) fn greeted(&mut self, now: Instant, budget: Duration) -> bool {
        let Some(since) = self.greeting_since.take() else { return false };
        let is_soon = now.saturating_duration_since(since) <= budget;
        let is_silent = self.connection().is_some_and(|connection| connection.observed.is_silent());
        // One that waited with the others says nothing of how the server is now.
        let is_known = is_soon || !is_silent;
        let every = if is_known { HELLO_EVERY } else { HELLO_EVERY_IN_SILENCE };
        self.hello_at = now.checked_add(every).unwrap_or(now);
        is_soon && self.connection().is_some_and(|connection| connection.observed.speaks())
    }

    /// Queues a question, or tells at once that nobody is there.
    pub(crate) fn put(&mut self, mut item: Item) {
        if let Link::Down(Some(gone)) = &self.link {
            item.hear(Err(Fault::Gone(gone.clone())));
        } else if item.is_waited_for() {
            self.queue.push(item);
        } else {
            // What finds no place ages out of the store instead.
            if self.returns.len() >= MAX_RETURNS {
                drop(self.returns.pop());
            }
            self.returns.push(item);
        }
    }

    /// Takes what goes out together: so many questions, and some of what comes back. A question that would be answered
    /// too late by how long rounds take is told so, and not sent: it would be decided for nobody.
    pub(crate) fn next_round(&mut self, most: usize, now: Instant) -> Vec<Item> {
        let mut items: Vec<Item> =
            std::iter::from_fn(|| self.returns.pop()).take(RETURNS_OF_ROUND).collect();
        let back = items.len();
        let takes = now.checked_add(self.takes).unwrap_or(now);
        while items.len().saturating_sub(back) < most
            && let Some(mut item) = self.queue.pop()
        {
            if item.until <= takes && item.is_past_half(now) {
                item.shed();
            } else {
                items.push(item);
            }
        }
        items
    }

    /// When a connection has to be tried: there is none, or it owes an answer for too long.
    pub(crate) fn dials_at(&self, patience: Duration) -> Option<Instant> {
        let due_at = self.dials.due_at().filter(|_| self.is_of_use())?;
        match self.link {
            Link::Down(_) => Some(due_at),
            Link::Up(_) => Some(self.owes_at(patience)?.max(due_at)),
        }
    }

    /// From when on it owes an answer for too long.
    fn owes_at(&self, patience: Duration) -> Option<Instant> {
        let rounds = self.rounds.iter().map(|round| round.since);
        rounds.chain(self.greeting_since).min()?.checked_add(patience)
    }

    pub(crate) fn is_of_use(&self) -> bool {
        self.slot.is_some() || !self.is_idle()
    }

    /// Whether its place may become another server's: it has no slot, nothing waits here, and nothing comes back.
    pub(crate) fn is_vacant(&self) -> bool {
        !self.is_of_use() && self.unanswered == 0 && !self.dials.are_under_way()
    }

    /// Puts another server in this place. What still comes over the connections of before does not count for it.
    pub(crate) fn replace(&mut self, server: Server, now: Instant) {
        let epoch = self.epoch.wrapping_add(1);
        *self = Self { epoch, ..Self::new(server, now) };
    }

    /// It has no slot any more: its connection ends with the calls that are under way.
    pub(crate) fn retire(&mut self, now: Instant) -> impl Iterator<Item = Item> {
        self.broke(now);
        self.slot = None;
        self.queue.drain().chain(self.returns.drain())
    }

    pub(crate) fn has_room(&self, rounds: usize) -> bool {
        matches!(self.link, Link::Up(_)) && self.rounds.len() < rounds
    }

    /// Returns when the first of what waits is late.
    pub(crate) fn late_at(&self) -> Option<Instant> {
        self.queue.late_at().into_iter().chain(self.returns.late_at()).min()
    }

    /// Whether there is nothing to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.returns.is_empty()
    }

    /// Begins a round.
    pub(crate) fn begin(&mut self, now: Instant) -> u64 {
        self.last_round = self.last_round.wrapping_add(1);
        self.unanswered = self.unanswered.saturating_add(1);
        self.rounds.push(Round { id: self.last_round, since: now });
        self.last_round
    }

    pub(crate) fn ended(&mut self, epoch: u64, id: u64, now: Instant) {
        self.unanswered = self.unanswered.saturating_sub(1);
        if epoch != self.epoch {
            return;
        }
        if let Some(round) = self.rounds.iter().find(|round| round.id == id) {
            // An eighth of the newest, so that one that stood still is soon forgotten.
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

    /// Answers those whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.queue.expire(now);
        self.returns.expire(now);
    }
}
