//! The world of a fleet: true time, messages, nodes, their callers and their calls.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rategate::ManualClock;
use rategate::distributed::{
    DecidedBy, Decision, DecisionFuture, Distributed, Mode, OnUnavailable,
};
use rategate::store::{
    Callback, MemoryImage, MemoryPlan, MemoryStore, ReservationId, Rule, StoreError, StoreReply,
    StoreRequest,
};
use rategate_core::random::Random;

use super::caller::{Caller, CallerState};
use super::link::{Link, SharedStore};
use super::network::below;
use super::oracle::most_used;
use super::plan::{Call, FaultKind, Plan};
use super::{CallCounts, Counts, Report};
use crate::clock::VirtualClock;

/// The instant at which a run begins, so late that the store has long lost nothing.
pub(super) const BEGIN_NS: u64 = 1 << 44;
pub(super) const KEY: &[u8] = b"key";
const MS: u64 = 1_000_000;
/// The time after which a caller tries again.
pub(super) const PAUSE_NS: u64 = 5 * MS;

/// A message, or something that a party does.
pub(super) enum Event {
    /// A request reaches the store. A second delivery has no party that hears a reply.
    AtStore(StoreRequest<MemoryPlan>, Option<Sender>),
    /// A reply reaches its node, with the instant of the decision; or the node stops waiting.
    AtNode(Result<StoreReply, StoreError>, u64, Sender),
    /// A node begins.
    Start(u32),
    /// A node runs its timers.
    Attend(u32),
    /// A caller acts.
    Act(usize),
    /// The call of this index comes.
    Call(usize),
    /// A fault of the plan begins, or ends.
    Begin(usize),
    End(usize),
    /// The replica reads its last.
    Copy,
}

/// The sender of a request, and the number of it.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) node: u32,
    pub(super) request: u64,
}

pub(super) struct Node {
    clock: VirtualClock,
    shown: ManualClock,
    /// Absent while it is down.
    pub(super) up: Option<(Arc<Link>, Distributed<Link, ManualClock>)>,
    attends_ns: u64,
    /// What hears the replies to its requests, by their numbers.
    pub(super) waits: HashMap<u64, Callback>,
    /// The calls that wait for a decision, in order.
    waiting: Vec<Waiting>,
}

/// A call that waits for a decision.
struct Waiting {
    decision: DecisionFuture,
    permits: u64,
    since_ns: u64,
}

pub(super) struct World<'p> {
    pub(super) plan: &'p Plan,
    pub(super) true_ns: u64,
    queue: BTreeMap<(u64, u64), Event>,
    caused: u64,
    pub(super) random: Random,
    pub(super) store: SharedStore,
    pub(super) store_clock: ManualClock,
    /// The state that the replica has, which is about to take over.
    pub(super) image: Option<MemoryImage>,
    /// `true` while the store has failed.
    pub(super) is_down: bool,
    /// The faults in progress.
    pub(super) active: Vec<usize>,
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
    pub(super) counts: Counts,
    pub(super) calls: CallCounts,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        let store_clock = ManualClock::stepped();
        let store = Arc::new(MemoryStore::with_capacity(store_clock.clone(), 1_000));
        let mut random = Random::new(plan.seed.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let nodes = (0..plan.nodes).map(|_| {
            let max_ppm = i64::from(plan.drift_ppm);
            let drift_ppm = [max_ppm, -max_ppm, 0][below(&mut random, 3) as usize];
            let clock = VirtualClock::new(random.bits() >> 20).drifting(drift_ppm);
            let (shown, waits, waiting) = (ManualClock::stepped(), HashMap::new(), Vec::new());
            Node { clock, shown, up: None, attends_ns: u64::MAX, waits, waiting }
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
            image: None,
            is_down: false,
            active: Vec::new(),
            callers: Vec::new(),
            decided: HashMap::new(),
            used: Vec::new(),
            used_in_all: 0,
            over: 0,
            is_uncertain: plan.fails_over() || plan.leases.is_some() || !plan.calls.is_empty(),
            behind_ns: 0,
            counts: Counts::default(),
            calls: CallCounts::default(),
        };
        world.schedule();
        world
    }

    /// Schedules what does not depend on anything else.
    fn schedule(&mut self) {
        for node in 0..self.plan.nodes {
            self.push(0, Event::Start(node));
        }
        for (index, fault) in self.plan.faults.iter().enumerate() {
            if let FaultKind::Failover { loses_ns, .. } = fault.kind {
                self.push(fault.at_ns.saturating_sub(loses_ns), Event::Copy);
            }
            self.push(fault.at_ns, Event::Begin(index));
            self.push(fault.at_ns + fault.lasting_ns, Event::End(index));
        }
        for (index, call) in self.plan.calls.iter().enumerate() {
            self.push(call.at_ns, Event::Call(index));
        }
        for number in 0..self.plan.callers {
            let comes_ns = self.some(self.plan.lasting_ns);
            let caller = self.caller(number, BEGIN_NS + comes_ns);
            self.callers.push(caller);
            self.push(comes_ns, Event::Act(self.callers.len() - 1));
        }
    }

    fn caller(&mut self, number: u32, comes_ns: u64) -> Caller {
        let estimate = 1 + self.some(self.plan.max_estimate);
        let ttl_ns = 1 + self.some(self.plan.max_ttl_ns);
        let actual = match self.some(4) {
            0 => self.some(estimate * 2),
            _ => self.some(estimate + 1),
        };
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        Caller {
            node: self.some_node(),
            id: ReservationId(id),
            estimate,
            actual,
            ttl_ns,
            work_ns: self.some(ttl_ns + (ttl_ns >> 2)),
            is_local: self.some(2) == 0,
            gives_up_ns: comes_ns + self.plan.patience_ns(),
            begun_ns: None,
            ends_ns: None,
            has_sent_commit: false,
            state: CallerState::Idle,
        }
    }

    pub(super) fn play(mut self) -> Report {
        while let Some(((at_ns, _), event)) = self.queue.pop_first() {
            self.true_ns = at_ns;
            match event {
                Event::AtStore(request, sender) => self.at_store(request, sender),
                Event::AtNode(reply, decided_ns, sender) => {
                    self.at_node(reply, decided_ns, sender);
                }
                Event::Attend(node) => {
                    self.at(node, 0, |node| node.attends_ns = u64::MAX);
                }
                Event::Act(caller) => self.act(caller),
                Event::Call(index) => self.call(index),
                Event::Start(node) => self.start(node),
                Event::Begin(fault) => self.begin(fault),
                Event::End(fault) => self.end(fault),
                Event::Copy => self.image = Some(self.store.image()),
            }
        }
        self.report()
    }

    fn report(mut self) -> Report {
        // All that is still held has ended by then.
        self.true_ns += self.plan.max_ttl_ns * 2;
        let period_ns = match self.plan.limit {
            Rule::Log(log) => log.held_for_ns(),
            _ => 0,
        };
        let is_forgotten = self.true_ns - BEGIN_NS >= period_ns;
        let counted = (!self.is_uncertain && !is_forgotten).then(|| self.counted());
        // A caller may hear of a decision so much later; a failover makes that matter.
        let hears_late = self.plan.fails_over() && self.plan.callers > 0;
        let shorter_ns = if hears_late { self.plan.patience_ns() } else { 0 };
        self.used.sort_unstable();
        let is_alone = matches!(self.plan.on_unavailable, OnUnavailable::Local { .. });
        let times = if is_alone { 2 } else { 1 };
        let max_used = most_used(&self.plan.limit, &self.used, shorter_ns, times);
        Report {
            max_used,
            bound: self.plan.bound(self.calls.forgotten),
            over: self.over,
            counted: counted.map(|counted| (counted, self.used_in_all)),
            events: self.caused,
            counts: self.counts,
            calls: self.calls,
        }
    }

    /// Returns the instant at which so much time has passed on a node's clock.
    pub(super) fn after(&self, index: u32, time_ns: u64) -> u64 {
        let clock = &self.nodes[index as usize].clock;
        clock.true_ns(clock.reading_ns(self.true_ns) + time_ns)
    }

    fn start(&mut self, index: u32) {
        let plan = self.plan;
        let link = Link::new(&self.store);
        self.at(index, 0, |node| {
            if node.up.is_some() {
                return;
            }
            let builder = Distributed::builder(Arc::clone(&link))
                .with_clock(node.shown.clone())
                .with_budget(Duration::from_nanos(plan.budget_ns))
                .on_unavailable(plan.on_unavailable)
                .unattended();
            let builder = if plan.quarantine { builder.with_quarantine() } else { builder };
            let mode = plan.leases.map_or(Mode::Exact, Mode::Leased);
            let limiter = builder.limit("limit", plan.limit).mode(mode).build().unwrap();
            node.up = Some((link, limiter));
            node.attends_ns = u64::MAX;
        });
    }

    fn crash(&mut self, index: u32) {
        let has_crashed = self.at(index, 0, |node| {
            node.waits.clear();
            node.waiting.clear();
            node.up.take().is_some()
        });
        if has_crashed {
            self.counts.crashes += 1;
            self.orphan(index);
        }
    }

    fn begin(&mut self, fault: usize) {
        self.active.push(fault);
        match &self.plan.faults[fault].kind {
            FaultKind::Crash(nodes) => nodes.clone().for_each(|node| self.crash(node)),
            FaultKind::Failover { .. } => self.is_down = true,
            FaultKind::Cut(_) | FaultKind::Slow { .. } => {}
        }
    }

    fn end(&mut self, fault: usize) {
        self.active.retain(|&active| active != fault);
        match &self.plan.faults[fault].kind {
            FaultKind::Crash(nodes) => nodes.clone().for_each(|node| self.start(node)),
            FaultKind::Failover { behind_ns, .. } => {
                self.is_down = false;
                self.fail_over(*behind_ns);
            }
            FaultKind::Cut(_) | FaultKind::Slow { .. } => {}
        }
    }

    fn call(&mut self, index: usize) {
        let (Call { node, permits, .. }, since_ns) = (self.plan.calls[index], self.true_ns);
        self.calls.made += 1;
        self.at(node, 0, |node| {
            if let Some((_, limiter)) = &node.up {
                let decision = limiter.try_acquire(KEY, permits);
                node.waiting.push(Waiting { decision, permits, since_ns });
            }
        });
    }

    /// Lets a node act at its own time, sends what it has written, and hears what it has decided;
    /// the store's decision, if that is the reason, was made at `decided_ns`.
    pub(super) fn at<T>(
        &mut self,
        index: u32,
        decided_ns: u64,
        act: impl FnOnce(&mut Node) -> T,
    ) -> T {
        let true_ns = self.true_ns;
        let late_ns = match self.plan.late_ns {
            0 => 0,
            late_ns => self.some(late_ns),
        };
        let node = &mut self.nodes[index as usize];
        node.shown.set(Duration::from_nanos(node.clock.reading_ns(true_ns)));
        let acted = act(node);
        let mut sent = Vec::new();
        let mut attends_ns = None;
        if let Some((link, limiter)) = &node.up {
            let due_ns = limiter.attend().map(|due_ns| node.clock.true_ns(due_ns) + late_ns);
            attends_ns = due_ns.map(|due_ns| due_ns.max(true_ns + 1));
            attends_ns = attends_ns.filter(|&due_ns| due_ns < node.attends_ns);
            node.attends_ns = attends_ns.unwrap_or(node.attends_ns);
            sent = link.take();
        }
        let gives_up_ns = node.clock.true_ns(node.clock.reading_ns(true_ns) + self.plan.budget_ns);
        for mut waiting in std::mem::take(&mut node.waiting) {
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(decided) = Pin::new(&mut waiting.decision).poll(&mut context) else {
                node.waiting.push(waiting);
                continue;
            };
            let decided = decided.unwrap();
            self.calls.waited += u64::from(waiting.since_ns < true_ns);
            let is_alone = decided.by() == DecidedBy::Fallback;
            let at_ns = if decided.by() == DecidedBy::Store { decided_ns } else { true_ns };
            if let Decision::Granted(_) = decided {
                self.used.push((at_ns, waiting.permits));
                self.calls.granted += 1;
                self.calls.granted_alone += u64::from(is_alone);
            } else {
                self.calls.denied += 1;
                self.calls.denied_alone += u64::from(is_alone);
            }
        }
        if let Some(attends_ns) = attends_ns {
            self.push_at(attends_ns, Event::Attend(index));
        }
        for request in sent {
            self.send(index, request, gives_up_ns);
        }
        acted
    }

    pub(super) fn act_in(&mut self, number: usize, after_ns: u64) {
        self.push_at(self.true_ns + after_ns, Event::Act(number));
    }

    pub(super) fn push(&mut self, after_ns: u64, event: Event) {
        self.push_at(self.true_ns + after_ns, event);
    }

    pub(super) fn push_at(&mut self, at_ns: u64, event: Event) {
        self.caused += 1;
        self.queue.insert((at_ns, self.caused), event);
    }

    pub(super) fn some(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }

    pub(super) fn some_node(&mut self) -> u32 {
        u32::try_from(self.some(self.plan.nodes.into())).unwrap()
    }
}
