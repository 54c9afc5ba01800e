//! The thread that owns all connections: who is asked what, and what is done about refusals.

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rategate::store::{Fault, Gone};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::attempts::Attempts;
use super::call::Call;
use super::config::{Config, Places};
use super::dial::{Dialer, NotReady, Ready, dial, greet};
use super::item::Item;
use super::line::{Failure, Kit};
use super::manner::Manner;
use super::node::Node;
use super::panics::{PAUSE, caught, supervise};
use super::places::find;
use super::round::{self, Outcome};
use super::shared::Shared;
use super::slots::{Owner, Slots};
use crate::fault::Remedy;
use crate::key::KeySpace;

/// How long the driver sleeps at most.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Starts the thread. It ends when the store is closed.
pub(crate) fn start(
    shared: Arc<Shared>,
    config: Arc<Config>,
    keys: KeySpace,
    dialer: Dialer,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let body = move || {
        let _closes = Closes(Arc::clone(&shared));
        supervise(&shared, || {
            let driver = Driver::new(&shared, &config, &keys, &dialer);
            runtime.block_on(driver.run());
        });
        // A name that is still looked up must not hold the thread.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("rategate-redis".to_owned()).spawn(body).map(|_| ())
}

/// Runs the driver as a task of this runtime instead, until the store is closed or the runtime ends.
pub(crate) fn start_in(
    runtime: &Handle,
    shared: Arc<Shared>,
    config: Arc<Config>,
    keys: KeySpace,
    dialer: Dialer,
) {
    runtime.spawn(async move {
        let _closes = Closes(Arc::clone(&shared));
        while caught(&shared, Driver::new(&shared, &config, &keys, &dialer).run()).await.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    });
}

/// However the thread ends, nobody waits for it.
struct Closes(Arc<Shared>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.close();
        self.0.take(&mut Vec::new(), false);
    }
}

/// What a task of the driver's brings back.
enum Event {
    Called { node: usize, epoch: u64, round: u64, outcomes: Vec<Outcome> },
    Dialed { node: usize, ready: Result<Ready, NotReady> },
    Greeted { node: usize, epoch: u64, said: Result<(), Failure> },
    Found(Result<Vec<Owner>, Gone>),
}

pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) config: Arc<Config>,
    pub(super) kit: Arc<Kit>,
    pub(super) manner: Manner,
    pub(super) nodes: Vec<Node>,
    pub(super) slots: Slots,
    /// Questions for which no server is known yet.
    pub(super) homeless: Vec<Item>,
    /// Why none is known, once that is so.
    pub(super) nowhere: Option<Gone>,
    tasks: JoinSet<Event>,
    pub(super) search: Search,
    pub(super) has_warned: bool,
}

pub(super) struct Search {
    pub(super) is_wanted: bool,
    pub(super) attempts: Attempts,
}

impl Search {
    /// When the next search is due: one is wanted, or one has no end yet.
    fn due_at(&self) -> Option<Instant> {
        self.attempts.due_at().filter(|_| self.is_wanted || self.attempts.are_under_way())
    }
}

impl Driver {
    fn new(shared: &Arc<Shared>, config: &Arc<Config>, keys: &KeySpace, dialer: &Dialer) -> Self {
        #[cfg(not(feature = "tls"))]
        let Dialer {} = dialer;
        let now = Instant::now();
        let library = config.library;
        let kit = Kit {
            library,
            script: library.script(),
            clock: config.clock.clone(),
            #[cfg(feature = "tls")]
            dialer: dialer.clone(),
            shared: Arc::clone(shared),
        };
        let manner = Manner {
            keys: keys.clone(),
            settings: config.settings,
            is_within_memory: config.is_within_memory,
            is_cluster: config.is_cluster(),
        };
        let (nodes, slots) = match &config.places {
            Places::One(server) => {
                let mut node = Node::new(server.clone(), now);
                node.slot = Some(0);
                (vec![node], Slots::all(0))
            }
            _ => (Vec::new(), Slots::new()),
        };
        let search = Search { is_wanted: nodes.is_empty(), attempts: Attempts::new(now) };
        Self {
            shared: Arc::clone(shared),
            config: Arc::clone(config),
            kit: Arc::new(kit),
            manner,
            nodes,
            slots,
            homeless: Vec::new(),
            nowhere: None,
            tasks: JoinSet::new(),
            search,
            has_warned: false,
        }
    }

    async fn run(mut self) {
        let mut news = Vec::new();
        loop {
            let is_full = !self.nodes.is_empty()
                && self
                    .nodes
                    .iter()
                    .all(|node| node.line().is_some() && !node.has_room(self.config.rounds));
            // Whoever waits makes the driver look in time; else it has to be told.
            let is_waited_for = self.shared.open() > 0;
            if !self.shared.take(&mut news, is_full && is_waited_for) {
                return;
            }
            let now = Instant::now();
            for item in news.drain(..) {
                self.route(item);
            }
            self.expire(now);
            self.tend(now);
            self.send(now);
            let sleep = tokio::time::sleep_until(self.wakes_at(now, is_waited_for).into());
            tokio::select! {
                biased;
                Some(event) = self.tasks.join_next() => {
                    self.on(event);
                    while let Some(event) = self.tasks.try_join_next() {
                        self.on(event);
                    }
                }
                () = self.shared.told() => {}
                () = sleep => {}
            }
        }
    }

    /// To the server that has its slot.
    pub(super) fn route(&mut self, mut item: Item) {
        let slot = if self.manner.is_cluster { self.manner.slot_of(&item.task) } else { 0 };
        match self.slots.node_of(slot).and_then(|node| self.nodes.get_mut(node)) {
            Some(node) => node.put(item),
            None => match &self.nowhere {
                Some(gone) => {
                    item.hear(Err(Fault::Gone(gone.clone())));
                }
                None => self.homeless.push(item),
            },
        }
    }

    fn expire(&mut self, now: Instant) {
        for node in &mut self.nodes {
            node.expire(now);
        }
        self.homeless.retain_mut(|item| {
            let is_over = item.until <= now;
            if is_over {
                item.late();
            }
            !is_over
        });
    }

    /// Connects, greets and searches, as far as it is time.
    fn tend(&mut self, now: Instant) {
        let patience = self.config.patience();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let slot = node.slot.filter(|_| self.manner.is_cluster);
            if node.dials_at(patience).is_some_and(|at| at <= now) {
                node.dials.begin(now);
                let (server, config) = (node.server.clone(), Arc::clone(&self.config));
                let (kit, keys) = (Arc::clone(&self.kit), self.manner.keys.clone());
                self.tasks.spawn(async move {
                    let shared = Arc::clone(&kit.shared);
                    let ready = caught(&shared, dial(server, config, kit, keys, slot)).await;
                    let ready = ready.unwrap_or_else(|why| Err(NotReady::panicked(&why)));
                    Event::Dialed { node: at, ready }
                });
            }
            let is_due = node.greeting_since.is_none() && node.hello_at <= now;
            if let (true, Some(line)) = (is_due, node.line()) {
                let (mut line, keys, run) =
                    (line.clone(), self.manner.keys.clone(), node.run.clone());
                let epoch = node.epoch;
                node.greeting_since = Some(now);
                let shared = Arc::clone(&self.shared);
                self.tasks.spawn(async move {
                    let said = caught(&shared, greet(&mut line, &keys, slot, &run)).await;
                    let said = said.unwrap_or_else(|why| Err(Failure::Lost(why)));
                    Event::Greeted { node: at, epoch, said }
                });
            }
        }
        if self.search.due_at().is_some_and(|at| at <= now) {
            self.search.is_wanted = false;
            self.search.attempts.begin(now);
            let known = self.nodes.iter().map(|node| node.server.clone()).collect();
            let (config, kit) = (Arc::clone(&self.config), Arc::clone(&self.kit));
            self.tasks.spawn(async move {
                let shared = Arc::clone(&kit.shared);
                let found = caught(&shared, find(config, kit, known)).await;
                Event::Found(found.unwrap_or_else(|why| Err(Gone::Broken(why))))
            });
        }
    }

    /// Sends what waits, where there is room for another round: one write for each.
    fn send(&mut self, now: Instant) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            while node.has_room(self.config.rounds) {
                let items = node.next_round(self.config.batch, now);
                let calls = Call::gather(items.into_iter(), &self.manner);
                let Some(line) = node.line().cloned().filter(|_| !calls.is_empty()) else { break };
                let (round, epoch) = (node.begin(now), node.epoch);
                let (kit, manner) = (Arc::clone(&self.kit), self.manner.clone());
                self.tasks.spawn(async move {
                    let outcomes = caught(&kit.shared, round::run(calls, line, manner, &kit)).await;
                    // Whoever waited has heard: the questions were dropped.
                    let outcomes = outcomes.unwrap_or_else(|_| vec![Outcome::Lost]);
                    Event::Called { node: at, epoch, round, outcomes }
                });
            }
        }
    }

    fn wakes_at(&self, now: Instant, is_waited_for: bool) -> Instant {
        let longest = now.checked_add(LONGEST_SLEEP).unwrap_or(now);
        let patience = self.config.patience();
        let look = now.checked_add(self.config.budget).unwrap_or(now).min(longest);
        let mut at = if is_waited_for { look } else { longest };
        for node in &self.nodes {
            let queued = node.queue.front().map(|item| item.until);
            let greets =
                node.line().filter(|_| node.greeting_since.is_none()).map(|_| node.hello_at);
            let times = [queued, node.returned_at(), greets, node.dials_at(patience)];
            at = times.into_iter().flatten().fold(at, Instant::min);
        }
        self.search.due_at().map_or(at, |due_at| at.min(due_at))
    }

    fn on(&mut self, event: Result<Event, tokio::task::JoinError>) {
        let now = Instant::now();
        match event {
            Ok(Event::Called { node, epoch, round, outcomes }) => {
                self.called(node, epoch, round, outcomes, now);
            }
            Ok(Event::Dialed { node, ready }) => self.dialed(node, ready, now),
            Ok(Event::Greeted { node, epoch, said }) => self.greeted(node, epoch, &said, now),
            Ok(Event::Found(owners)) => self.found(owners, now),
            // Panics are caught within tasks, and nothing else ends one early.
            Err(_) => {}
        }
        let connected = self.nodes.iter().filter(|node| node.line().is_some()).count();
        self.shared.stats.connected(connected);
    }

    fn dialed(&mut self, at: usize, ready: Result<Ready, NotReady>, now: Instant) {
        let patience = self.config.patience();
        let Some(node) = self.nodes.get_mut(at) else { return };
        match ready {
            Ok(Ready { line, run, evicts }) => {
                node.dials.succeeded();
                // Another attempt was sooner.
                if !node.lacks_line(now, patience) {
                    return;
                }
                node.up(line, run, now);
                self.shared.stats.revival();
                if let (Some(policy), false, Some(warn)) =
                    (evicts, self.has_warned, &self.config.warn)
                {
                    self.has_warned = true;
                    let text = format!(
                        "{} has maxmemory-policy {policy}: when its memory is full it drops states, and limits \
                         begin anew; noeviction is right",
                        node.server
                    );
                    // Foreign code, whose panic is its own.
                    let _ = catch_unwind(AssertUnwindSafe(|| (warn.0)(&text)));
                }
            }
            Err(NotReady { gone, is_elsewhere }) => {
                node.dials.failed(now);
                node.failed(gone);
                self.search.is_wanted |= is_elsewhere && self.config.places.may_move();
            }
        }
    }

    fn greeted(&mut self, at: usize, epoch: u64, said: &Result<(), Failure>, now: Instant) {
        let Some(node) = self.nodes.get_mut(at).filter(|node| node.epoch == epoch) else { return };
        let is_back = node.greeted(now, self.config.budget);
        match said {
            Ok(()) if is_back => self.shared.stats.revival(),
            Ok(()) => {}
            Err(Failure::Lost(_)) => {
                node.broke(now);
                self.search.is_wanted |= self.config.places.may_move();
            }
            Err(Failure::Refused { fault, .. }) => {
                let is_elsewhere =
                    matches!(fault.remedy(), Remedy::RefreshThenRetry | Remedy::GoTo { .. });
                self.search.is_wanted |= is_elsewhere && self.config.places.may_move();
            }
        }
    }

    fn found(&mut self, owners: Result<Vec<Owner>, Gone>, now: Instant) {
        let owners = match owners {
            Ok(owners) => owners,
            Err(gone) => {
                for mut item in mem::take(&mut self.homeless) {
                    item.hear(Err(Fault::Gone(gone.clone())));
                }
                self.nowhere = Some(gone);
                self.search.is_wanted = true;
                self.search.attempts.failed(now);
                return;
            }
        };
        self.nowhere = None;
        self.search.attempts.succeeded();
        let mut slots = Slots::new();
        for (server, ranges) in owners {
            let node = self.place_of(server, now);
            for slot in ranges.into_iter().flat_map(|(first, last)| first..=last) {
                slots.set(slot, node);
            }
        }
        // A server that is gone and has no successor yet is no reason to ask all others over and over.
        if self.slots == slots {
            self.search.attempts.in_vain(now);
        }
        self.slots = slots;
        let mut homeless = mem::take(&mut self.homeless);
        for (at, node) in self.nodes.iter_mut().enumerate() {
            node.slot = self.slots.any_of(at);
            // What waits for a server that has nothing any more waits for the wrong one.
            if node.slot.is_none() {
                homeless.extend(node.retire(now));
            }
        }
        for item in homeless {
            self.route(item);
        }
    }
}
