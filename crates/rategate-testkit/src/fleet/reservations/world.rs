//! The world of a run with reservations: true time, messages, nodes and callers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rategate::charge::Debt;
use rategate::distributed::{Distributed, Leases, Mode};
use rategate::store::{
    Callback, MemoryImage, MemoryPlan, MemoryStore, Reply, ReservationId, Store as _, StoreError,
    StoreReply, StoreRequest,
};
use rategate::{ManualClock, SlidingLog};
use rategate_core::random::Random;

use super::caller::{Caller, CallerState};
use super::link::{Link, SharedStore};
use super::plan::ReservationPlan;
use super::{ReservationCounts, ReservationReport};
use crate::fleet::clock::NodeClock;
use crate::fleet::network::below;
use crate::fleet::oracle::FullestWindow;

/// The instant at which a run begins, so late that the store has long lost nothing.
const BEGIN_NS: u64 = 1 << 44;
pub(super) const KEY: &[u8] = b"key";
const MS: u64 = 1_000_000;
/// The time after which a caller tries again.
pub(super) const PAUSE_NS: u64 = 5 * MS;
/// The longest time for which a node is down.
const DOWN_NS: u64 = 60 * MS;

/// A message, or something that a party does.
pub(super) enum Event {
    /// A request reaches the store. A second delivery has no party that hears a reply.
    AtStore(StoreRequest<MemoryPlan>, Option<Listener>),
    /// A reply reaches its node, or the node stops waiting.
    AtNode(Result<StoreReply, StoreError>, Listener),
    /// A node runs its timers.
    Attend(u32),
    /// A caller acts.
    Act(usize),
    Crash(u32),
    Start(u32),
    FailOver,
}

/// The receiver of the first reply to a request, and its node.
#[derive(Clone)]
pub(super) struct Listener {
    pub(super) node: u32,
    pub(super) life: u32,
    pub(super) callback: Arc<Mutex<Option<Callback>>>,
}

pub(super) struct Node {
    clock: NodeClock,
    shown: ManualClock,
    pub(super) life: u32,
    /// Absent while it is down.
    pub(super) up: Option<(Arc<Link>, Distributed<Link, ManualClock>)>,
    attends_ns: u64,
}

pub(super) struct World<'p> {
    pub(super) plan: &'p ReservationPlan,
    pub(super) true_ns: u64,
    queue: BTreeMap<(u64, u64), Event>,
    caused: u64,
    pub(super) random: Random,
    pub(super) store: SharedStore,
    pub(super) store_clock: ManualClock,
    /// The states before the last requests, for a replica that lags behind.
    pub(super) images: Vec<(u64, MemoryImage)>,
    pub(super) nodes: Vec<Node>,
    pub(super) callers: Vec<Caller>,
    /// The instants at which the store has decided to hold.
    pub(super) decided: HashMap<ReservationId, u64>,
    /// The permits used within the estimates, by the instants of the decisions.
    pub(super) used: Vec<(u64, u64)>,
    pub(super) used_in_all: u64,
    pub(super) over: u64,
    /// `true` while the store may differ from the sum of what was used.
    pub(super) is_uncertain: bool,
    /// The time by which the store's clock is behind.
    pub(super) behind_ns: u64,
    pub(super) counts: ReservationCounts,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p ReservationPlan) -> Self {
        let store_clock = ManualClock::stepped();
        let store = Arc::new(MemoryStore::with_capacity(store_clock.clone(), 1_000));
        let mut random = Random::new(plan.seed.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let nodes = (0..plan.nodes).map(|_| {
            let max_ppm = i64::from(plan.drift_ppm);
            let drift_ppm = match below(&mut random, 3) {
                0 => max_ppm,
                1 => max_ppm.saturating_neg(),
                _ => 0,
            };
            let clock = NodeClock::new(random.bits() >> 20, drift_ppm);
            Node { clock, shown: ManualClock::stepped(), life: 0, up: None, attends_ns: u64::MAX }
        });
        let mut world = Self {
            plan,
            true_ns: BEGIN_NS,
            queue: BTreeMap::new(),
            caused: 0,
            nodes: nodes.collect(),
            random,
            store,
            store_clock,
            images: Vec::new(),
            callers: Vec::new(),
            decided: HashMap::new(),
            used: Vec::new(),
            used_in_all: 0,
            over: 0,
            is_uncertain: plan.failover_loses_ns.is_some() || plan.leases.is_some(),
            behind_ns: 0,
            counts: ReservationCounts::default(),
        };
        world.schedule();
        world
    }

    /// Schedules what does not depend on anything else.
    fn schedule(&mut self) {
        for node in 0..self.plan.nodes {
            self.push(0, Event::Start(node));
        }
        for _ in 0..self.plan.crashes {
            let node = self.some_node();
            let (at_ns, down_ns) = (self.some(self.plan.lasting_ns), self.some(DOWN_NS));
            self.push(at_ns, Event::Crash(node));
            self.push(at_ns.saturating_add(down_ns), Event::Start(node));
        }
        if self.plan.failover_loses_ns.is_some() {
            let at_ns = self.some(self.plan.lasting_ns >> 1);
            self.push(at_ns, Event::FailOver);
        }
        for number in 0..self.plan.callers {
            let comes_ns = self.some(self.plan.lasting_ns);
            let estimate = self.some(self.plan.max_estimate).saturating_add(1);
            let ttl_ns = self.some(self.plan.max_ttl_ns).saturating_add(1);
            let actual = match self.some(4) {
                0 => self.some(estimate.saturating_mul(2)),
                _ => self.some(estimate.saturating_add(1)),
            };
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            let gives_up_ns = BEGIN_NS.saturating_add(comes_ns);
            let caller = Caller {
                node: self.some_node(),
                id: ReservationId(id),
                estimate,
                actual,
                ttl_ns,
                work_ns: self.some(ttl_ns.saturating_add(ttl_ns >> 2)),
                is_local: self.some(2) == 0,
                gives_up_ns: gives_up_ns.saturating_add(self.plan.patience_ns()),
                begun_ns: None,
                ends_ns: None,
                has_sent_commit: false,
                state: CallerState::Idle,
            };
            self.callers.push(caller);
            self.push(comes_ns, Event::Act(self.callers.len().saturating_sub(1)));
        }
    }

    pub(super) fn play(mut self) -> ReservationReport {
        while let Some(((at_ns, _), event)) = self.queue.pop_first() {
            self.true_ns = at_ns;
            match event {
                Event::AtStore(request, listener) => self.at_store(request, listener),
                Event::AtNode(reply, listener) => self.at_node(reply, &listener),
                Event::Attend(node) => self.attend(node),
                Event::Act(caller) => self.act(caller),
                Event::Crash(node) => self.crash(node),
                Event::Start(node) => self.start(node),
                Event::FailOver => self.fail_over(),
            }
        }
        self.report()
    }

    fn report(mut self) -> ReservationReport {
        // All that is still held has ended by then.
        self.true_ns = self.true_ns.saturating_add(self.plan.max_ttl_ns.saturating_mul(2));
        let is_forgotten = self.true_ns.saturating_sub(BEGIN_NS) >= self.plan.period_ns;
        let counted = (!self.is_uncertain && !is_forgotten).then(|| self.counted());
        // A caller may hear of a decision so much later; a failover makes that matter.
        let shorter_ns = self.plan.failover_loses_ns.map_or(0, |_| self.plan.patience_ns());
        let window_ns = self.plan.period_ns.saturating_sub(shorter_ns);
        let mut fullest = FullestWindow::new(window_ns.max(1));
        self.used.sort_unstable();
        for &(at_ns, permits) in &self.used {
            fullest.push(at_ns, permits);
        }
        ReservationReport {
            max_used: fullest.max().0,
            bound: self.plan.bound(),
            over: self.over,
            counted: counted.map(|counted| (counted, self.used_in_all)),
            events: self.caused,
            counts: self.counts,
        }
    }

    /// Returns what the store has counted.
    fn counted(&mut self) -> u64 {
        let Some(plan) = self.rules() else { return 0 };
        let charge = StoreRequest::Charge {
            plan: Arc::new(plan),
            key: KEY.into(),
            permits: 0,
            debt: Debt::FORGOTTEN,
            once: None,
        };
        match self.decide(charge).map(|reply| reply.reply) {
            Ok(Reply::Charged(reply)) => {
                let (free, debt) = (reply.remaining, reply.charged.debt);
                self.plan.permits.saturating_sub(free).saturating_add(debt)
            }
            _ => 0,
        }
    }

    pub(super) fn rules(&self) -> Option<MemoryPlan> {
        self.store.plan(&[("limit", self.log()?.into())]).ok()
    }

    fn log(&self) -> Option<SlidingLog> {
        SlidingLog::try_new(self.plan.permits, Duration::from_nanos(self.plan.period_ns)).ok()
    }

    /// Returns the instant at which so much time has passed on a node's clock.
    pub(super) fn after(&self, index: u32, time_ns: u64) -> Option<u64> {
        let clock = &self.nodes.get(usize::try_from(index).ok()?)?.clock;
        Some(clock.true_ns(clock.reading_ns(self.true_ns).saturating_add(time_ns)))
    }

    fn start(&mut self, index: u32) {
        let (plan, log) = (self.plan, self.log());
        let link = Link::new(&self.store);
        self.at(index, |node| {
            let Some(log) = log.filter(|_| node.up.is_none()) else { return };
            let builder = Distributed::builder(Arc::clone(&link)).with_clock(node.shown.clone());
            let builder = builder.with_budget(Duration::from_nanos(plan.budget_ns)).unattended();
            let builder = match plan.failover_loses_ns {
                Some(_) => builder.with_quarantine(),
                None => builder,
            };
            let mode = plan.leases.map_or(Mode::Exact, |(length_ns, max_permits, guard)| {
                let ttl = Duration::from_nanos(length_ns);
                let drift_ppm = plan.drift_ppm;
                Mode::Leased(Leases { ttl, max_permits, guard, drift_ppm })
            });
            if let Ok(limiter) = builder.limit("limit", log).mode(mode).build() {
                node.up = Some((link, limiter));
                node.attends_ns = u64::MAX;
            }
        });
    }

    fn crash(&mut self, index: u32) {
        let crashed = self.at(index, |node| {
            node.life = node.life.saturating_add(1);
            node.up.take().is_some()
        });
        if crashed != Some(true) {
            return;
        }
        self.counts.crashes = self.counts.crashes.saturating_add(1);
        self.orphan(index);
    }

    fn attend(&mut self, index: u32) {
        self.at(index, |node| node.attends_ns = u64::MAX);
    }

    /// Lets a node act at its own time, and sends what it has written.
    pub(super) fn at<T>(&mut self, index: u32, act: impl FnOnce(&mut Node) -> T) -> Option<T> {
        let true_ns = self.true_ns;
        let node = self.nodes.get_mut(usize::try_from(index).ok()?)?;
        node.shown.set(Duration::from_nanos(node.clock.reading_ns(true_ns)));
        let acted = act(node);
        let mut sent = Vec::new();
        let mut attends_ns = None;
        if let Some((link, limiter)) = &node.up {
            let due_ns = limiter.attend().map(|due_ns| node.clock.true_ns(due_ns));
            attends_ns = due_ns.map(|due_ns| due_ns.max(true_ns.saturating_add(1)));
            attends_ns = attends_ns.filter(|&due_ns| due_ns < node.attends_ns);
            node.attends_ns = attends_ns.unwrap_or(node.attends_ns);
            sent = link.take();
        }
        let gives_up_ns =
            node.clock.true_ns(node.clock.reading_ns(true_ns).saturating_add(self.plan.budget_ns));
        let life = node.life;
        if let Some(attends_ns) = attends_ns {
            self.push_at(attends_ns, Event::Attend(index));
        }
        for (request, callback) in sent {
            let callback = Arc::new(Mutex::new(Some(callback)));
            self.send(request, Listener { node: index, life, callback }, gives_up_ns);
        }
        Some(acted)
    }

    pub(super) fn act_in(&mut self, number: usize, after_ns: u64) {
        self.push_at(self.true_ns.saturating_add(after_ns), Event::Act(number));
    }

    pub(super) fn push(&mut self, after_ns: u64, event: Event) {
        self.push_at(self.true_ns.saturating_add(after_ns), event);
    }

    pub(super) fn push_at(&mut self, at_ns: u64, event: Event) {
        self.caused = self.caused.saturating_add(1);
        self.queue.insert((at_ns, self.caused), event);
    }

    pub(super) fn some(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }

    pub(super) fn some_node(&mut self) -> u32 {
        u32::try_from(self.some(self.plan.nodes.into())).unwrap_or(0)
    }
}
