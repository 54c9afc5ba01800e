//! The driver of a store, which owns all connections and schedules all requests.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use rategate::store::{StoreError, Unavailable};

use super::call::Call;
use super::config::{Config, Topology};
use super::connection::{Failure, StoreContext};
use super::dial::{Dialer, NotReady, Ready};
use super::encoder::Encoder;
use super::item::Item;
use super::node::Node;
use super::queue::Queue;
use super::round::{self, Outcome};
use super::shared::Shared;
use super::slots::{Owner, Slots};
use super::supervisor::caught;
use super::upkeep::Search;
use crate::key::KeySpace;

/// The maximum time the driver sleeps.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The result of a task of the driver.
pub(super) enum Event {
    Called {
        node: usize,
        epoch: u64,
        round: u64,
        outcomes: Vec<Outcome>,
    },
    Dialed {
        node: usize,
        ready: Result<Ready, NotReady>,
    },
    HelloDone {
        node: usize,
        epoch: u64,
        /// The policy by which the server evicts keys, if it has one.
        outcome: Result<Option<String>, Failure>,
    },
    Found(Result<Vec<Owner>, Unavailable>),
    /// The carrier of a connection has ended. Its pending calls fail on their own.
    Carried,
}

pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) config: Arc<Config>,
    pub(super) store_context: Arc<StoreContext>,
    pub(super) encoder: Arc<Encoder>,
    pub(super) nodes: Vec<Node>,
    pub(super) slots: Slots,
    /// Requests for which no server is known yet.
    pub(super) unrouted: Queue,
    /// The reason why no server is known, once a search has failed.
    pub(super) no_server_reason: Option<Unavailable>,
    /// All tasks under way, connections included. The driver polls them itself, so a reply passes
    /// no other task on its way.
    tasks: FuturesUnordered<Pin<Box<dyn Future<Output = Event> + Send>>>,
    pub(super) search: Search,
    pub(super) has_warned: bool,
}

impl Driver {
    pub(super) fn new(
        shared: &Arc<Shared>,
        config: &Arc<Config>,
        keys: &KeySpace,
        dialer: &Dialer,
    ) -> Self {
        #[cfg(not(feature = "tls"))]
        let Dialer {} = dialer;
        let now = Instant::now();
        let library = config.library;
        let store_context = StoreContext {
            library,
            script: library.script(),
            clock: config.clock.clone(),
            #[cfg(feature = "tls")]
            dialer: dialer.clone(),
            shared: Arc::clone(shared),
        };
        let encoder = Encoder {
            keys: keys.clone(),
            is_within_memory: config.is_within_memory,
            is_cluster: config.is_cluster(),
        };
        let (nodes, slots) = match &config.topology {
            Topology::One(server) => {
                let mut node = Node::new(server.clone(), now);
                node.slot = Some(0);
                (vec![node], Slots::all(0))
            }
            _ => (Vec::new(), Slots::new()),
        };
        let search = Search::new(nodes.is_empty(), now);
        Self {
            shared: Arc::clone(shared),
            config: Arc::clone(config),
            store_context: Arc::new(store_context),
            encoder: Arc::new(encoder),
            nodes,
            slots,
            unrouted: Queue::default(),
            no_server_reason: None,
            tasks: FuturesUnordered::new(),
            search,
            has_warned: false,
        }
    }

    pub(super) async fn run(mut self) {
        let mut news = Vec::new();
        let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            // While requests are pending, the driver looks in time by itself; otherwise it has to
            // be notified.
            let is_waited_for = self.shared.open() > 0;
            if !self.shared.take(&mut news, self.is_full() && is_waited_for) {
                return;
            }
            let now = Instant::now();
            for item in news.drain(..) {
                self.route(item);
            }
            self.expire(now);
            self.maintain_connections(now);
            self.send(now);
            // The timer is only moved to earlier instants. If it fires too early, it is set again
            // then. Most calls end long before, so it is rarely set.
            let wakes_at = self.wakes_at(now, is_waited_for);
            if sleep.is_elapsed() || sleep.deadline() > wakes_at.into() {
                sleep.as_mut().reset(wakes_at.into());
            }
            tokio::select! {
                biased;
                Some(event) = self.tasks.next() => {
                    self.on(event);
                    // Completed tasks are gathered first, so that the next round is a large one.
                    while let Some(Some(event)) = self.tasks.next().now_or_never() {
                        self.on(event);
                    }
                }
                () = self.shared.woken() => {}
                () = &mut sleep => {}
            }
        }
    }

    /// Returns `true` if every connected server has its maximum of rounds under way.
    fn is_full(&self) -> bool {
        let rounds = self.config.rounds;
        let is_full = |node: &Node| node.connection().is_some() && !node.has_capacity(rounds);
        !self.nodes.is_empty() && self.nodes.iter().all(is_full)
    }

    /// Starts a task whose end is an event.
    pub(super) fn begin(&self, task: impl Future<Output = Event> + Send + 'static) {
        self.tasks.push(Box::pin(task));
    }

    /// Queues a request at the server that has its slot.
    pub(super) fn route(&mut self, mut item: Item) {
        let slot = if self.encoder.is_cluster { self.encoder.slot_of(&item.request) } else { 0 };
        match self.slots.node_of(slot).and_then(|node| self.nodes.get_mut(node)) {
            Some(node) => node.enqueue(item),
            None => match &self.no_server_reason {
                Some(unavailable) => {
                    item.respond(Err(StoreError::Unavailable(unavailable.clone())));
                }
                None => self.unrouted.push(item),
            },
        }
    }

    fn expire(&mut self, now: Instant) {
        for node in &mut self.nodes {
            node.expire(now);
        }
        self.unrouted.expire(now);
    }

    /// Sends queued requests while another round may start: one write for each round.
    fn send(&mut self, now: Instant) {
        for (at, node) in self.nodes.iter_mut().enumerate() {
            while node.has_capacity(self.config.rounds) {
                let items = node.next_round(self.config.batch, now);
                let ids = items.iter().filter_map(Item::key_and_id).collect();
                let calls = Call::gather(items.into_iter(), &self.encoder);
                let connection = node.connection().cloned().filter(|_| !calls.is_empty());
                let Some(connection) = connection else { break };
                let (round, epoch) = (node.begin(ids, now), node.epoch);
                let (store_context, encoder) =
                    (Arc::clone(&self.store_context), Arc::clone(&self.encoder));
                self.tasks.push(Box::pin(async move {
                    let called = round::run(calls, connection, &encoder, &store_context);
                    // The panic dropped the requests, which answered them.
                    let outcomes = caught(&store_context.shared, called).await;
                    let outcomes = outcomes.unwrap_or_else(|_| vec![Outcome::Lost(Vec::new())]);
                    Event::Called { node: at, epoch, round, outcomes }
                }));
            }
        }
    }

    fn wakes_at(&self, now: Instant, is_waited_for: bool) -> Instant {
        let latest = now.checked_add(MAX_SLEEP).unwrap_or(now);
        let patience = self.config.patience();
        let expiry_at = now.checked_add(self.config.budget).unwrap_or(now).min(latest);
        let mut at = if is_waited_for { expiry_at } else { latest };
        for node in &self.nodes {
            let greets =
                node.connection().filter(|_| node.hello_since.is_none()).map(|_| node.hello_at);
            let times = [node.late_at(), greets, node.dials_at(patience)];
            at = times.into_iter().flatten().fold(at, Instant::min);
        }
        let times = [self.unrouted.late_at(), self.search.due_at()];
        times.into_iter().flatten().fold(at, Instant::min)
    }

    fn on(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Called { node, epoch, round, outcomes } => {
                self.called(node, epoch, round, outcomes, now);
            }
            Event::Dialed { node, ready } => self.dialed(node, ready, now),
            Event::HelloDone { node, epoch, outcome } => self.greeted(node, epoch, outcome, now),
            Event::Found(owners) => self.found(owners, now),
            Event::Carried => {}
        }
        let connected = self.nodes.iter().filter(|node| node.connection().is_some()).count();
        self.shared.stats.connected(connected);
    }
}
