//! A server: its connection, and what is to be asked there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rategate::store::{Fault, Gone};

use super::attempts::Attempts;
use super::config::Server;
use super::item::Item;
use super::line::Line;

/// How often a server that is ready is asked whether it still is, and what it has lost.
pub(crate) const HELLO_EVERY: Duration = Duration::from_secs(1);
/// The same of one that has let questions wait for too long.
const HELLO_EVERY_IN_SILENCE: Duration = Duration::from_millis(100);

/// A server: its connection, and what is to be asked there.
pub(crate) struct Node {
    pub(crate) server: Server,
    /// Some slot that it has. Whoever has none is not asked, and need not be there.
    pub(crate) slot: Option<u16>,
    pub(crate) queue: VecDeque<Item>,
    link: Link,
    /// Which connection this is: what came over another does not count for it.
    pub(crate) epoch: u64,
    pub(crate) dials: Attempts,
    /// Rounds under way on this connection: how many calls of each have no answer yet, since when.
    rounds: Vec<Round>,
    next_round: u64,
    pub(crate) hello_at: Instant,
    /// Since when a hello is under way.
    pub(crate) greeting_since: Option<Instant>,
    /// Of the run that the connection is to.
    pub(crate) run: String,
}

struct Round {
    id: u64,
    calls: usize,
    since: Instant,
}

enum Link {
    Up(Line),
    /// Not yet, or no longer; why, once that is known.
    Down(Option<Gone>),
}

impl Node {
    pub(crate) fn new(server: Server, now: Instant) -> Self {
        Self {
            server,
            slot: None,
            queue: VecDeque::new(),
            link: Link::Down(None),
            epoch: 0,
            dials: Attempts::new(now),
            rounds: Vec::new(),
            next_round: 0,
            hello_at: now,
            greeting_since: None,
            run: String::new(),
        }
    }

    pub(crate) const fn line(&self) -> Option<&Line> {
        match &self.link {
            Link::Up(line) => Some(line),
            Link::Down(_) => None,
        }
    }

    pub(crate) fn up(&mut self, line: Line, run: String, now: Instant) {
        self.link = Link::Up(line);
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
            for item in &mut self.queue {
                item.hear(Err(Fault::Gone(gone.clone())));
            }
            self.queue.clear();
            *why = Some(gone);
        }
    }

    /// Whether a connection is of use: there is none, or it owes an answer for too long.
    pub(crate) fn lacks_line(&self, now: Instant, patience: Duration) -> bool {
        match self.link {
            Link::Down(_) => true,
            Link::Up(_) => self.owes_at(patience).is_some_and(|at| at <= now),
        }
    }

    /// It was greeted, and has answered, within a budget or later. Returns whether it had been silent, and is not any more.
    pub(crate) fn greeted(&mut self, now: Instant, budget: Duration) -> bool {
        let Some(since) = self.greeting_since.take() else { return false };
        let is_soon = now.saturating_duration_since(since) <= budget;
        let is_silent = self.line().is_some_and(Line::is_silent);
        let every = if is_silent { HELLO_EVERY_IN_SILENCE } else { HELLO_EVERY };
        // One that waited with the others says nothing of how the server is now.
        let pause = if is_soon { every } else { Duration::ZERO };
        self.hello_at = now.checked_add(pause).unwrap_or(now);
        is_soon && self.line().is_some_and(Line::speaks)
    }

    /// Queues a question, or tells at once that nobody is there.
    pub(crate) fn put(&mut self, mut item: Item) {
        if let Link::Down(Some(gone)) = &self.link {
            item.hear(Err(Fault::Gone(gone.clone())));
        } else {
            self.queue.push_back(item);
        }
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
        self.slot.is_some() || !self.queue.is_empty()
    }

    /// It has no slot any more: its connection ends with the calls that are under way.
    pub(crate) fn retire(&mut self, now: Instant) -> std::collections::vec_deque::Drain<'_, Item> {
        self.broke(now);
        self.slot = None;
        self.queue.drain(..)
    }

    pub(crate) fn has_room(&self, rounds: usize) -> bool {
        matches!(self.link, Link::Up(_)) && self.rounds.len() < rounds
    }

    /// Begins a round of so many calls.
    pub(crate) fn begin(&mut self, calls: usize, now: Instant) -> u64 {
        self.next_round = self.next_round.wrapping_add(1);
        if calls > 0 {
            self.rounds.push(Round { id: self.next_round, calls, since: now });
        }
        self.next_round
    }

    pub(crate) fn ended(&mut self, epoch: u64, id: u64) {
        if epoch != self.epoch {
            return;
        }
        if let Some(round) = self.rounds.iter_mut().find(|round| round.id == id) {
            round.calls = round.calls.saturating_sub(1);
        }
        self.rounds.retain(|round| round.calls > 0);
    }

    /// Tells those whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.queue.front().is_some_and(|item| item.until <= now) {
            if let Some(mut item) = self.queue.pop_front() {
                item.late();
            }
        }
    }
}
