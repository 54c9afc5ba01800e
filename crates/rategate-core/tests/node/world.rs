//! A world of nodes that borrow from one store: every message is late by chance, some are lost,
//! and nodes crash.
//!
//! Time is the store's, in nanoseconds that may be few.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU64;

use fastrand::Rng;
use rategate_core::any_policy::AnyPolicy;
use rategate_core::ledger::Ledger;
use rategate_core::node::{LeaseAction, LeaseActionId, LeaseConfig, Leased, LocalDecision};
use rategate_core::verdict::{Grant, Verdict};
use rategate_testkit::oracle::Grants;

use crate::node::clock::NodeClock;
use crate::node::n;

/// The parameters of the world.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) policy: AnyPolicy,
    /// The length of a fixed window's grid.
    pub(crate) grid_ns: Option<u64>,
    pub(crate) nodes: usize,
    pub(crate) length_ns: u64,
    pub(crate) max_units: u64,
    pub(crate) drift_ppm: u32,
    /// The shortest and the longest delay of a message.
    pub(crate) delays_ns: (u64, u64),
    /// One message in this many is lost; 0 for none.
    pub(crate) loses_one_in: u64,
    /// The time after which a node abandons a request, on its own clock.
    pub(crate) budget_ns: u64,
    /// The shortest and the longest gap between calls of a node.
    pub(crate) gaps_ns: (u64, u64),
    /// One gap in this many is forty times as long; 0 for none.
    pub(crate) pauses_one_in: u64,
    pub(crate) max_permits: u64,
    /// One call in this many finds that its node has crashed since; 0 for never.
    pub(crate) crashes_one_in: u64,
    pub(crate) ends_ns: u64,
}

/// The number of replies without permits after which a call gives up.
const PATIENCE: u32 = 4;

/// The identifier of a debit: the store's count of them.
type Receipt = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Call { node: usize },
    Wake { node: usize },
    GivenUp { node: usize, life: u64, id: LeaseActionId },
    AtStore { node: usize, life: u64, id: LeaseActionId, units: u64 },
    Answer { node: usize, life: u64, id: LeaseActionId, answer: Answer },
    Returned { receipt: Receipt, units: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Debited { receipt: Receipt, units: u64, window_ends_in_ns: Option<u64> },
    Denied { retry_after_ns: Option<u64>, at_ns: u64 },
}

struct Node {
    life: u64,
    clock: NodeClock,
    leased: Leased<Receipt>,
    under_way: Option<LeaseActionId>,
    /// The calls that wait for a reply, and the number that each has received.
    waiting: Vec<(u64, u32)>,
    /// The usable debits: their instants and what is left. The machine is checked against this.
    usable: BTreeMap<Receipt, Debit>,
    opens_ns: Option<u64>,
    wakes_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Debit {
    at_ns: u64,
    ends_ns: u64,
    left: u64,
    /// `true` if its reply came after it was abandoned.
    is_late: bool,
}

/// The accounts of all permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) debits: u64,
    pub(crate) debited: u64,
    pub(crate) used: u64,
    pub(crate) sent_back: u64,
    pub(crate) lost_on_the_way: u64,
    pub(crate) lost_in_crashes: u64,
    /// The permits left when a window of the grid ended.
    pub(crate) let_go: u64,
    pub(crate) requests: u64,
    pub(crate) denials: u64,
}

pub(crate) struct World {
    plan: Plan,
    random: Rng,
    store: Ledger,
    grants_of: Vec<(Grant, u64)>,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
    now_ns: u64,
    pub(crate) used: Grants,
    pub(crate) debits: Grants,
    pub(crate) books: Books,
    /// The instant at which a call had to wait for a reply for the last time.
    pub(crate) last_request_ns: u64,
}

impl World {
    pub(crate) fn new(plan: Plan, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let config = config(&plan);
        let node = |_| Node {
            life: 0,
            clock: NodeClock::any(&mut random, plan.drift_ppm),
            leased: Leased::new(config),
            under_way: None,
            waiting: Vec::new(),
            usable: BTreeMap::new(),
            opens_ns: None,
            wakes_ns: None,
        };
        let nodes = (0..plan.nodes).map(node).collect();
        Self {
            random,
            store: Ledger::new(plan.policy, 0),
            plan,
            grants_of: Vec::new(),
            nodes,
            events: BinaryHeap::new(),
            count: 0,
            now_ns: 0,
            used: Grants::default(),
            debits: Grants::default(),
            books: Books::default(),
            last_request_ns: 0,
        }
    }

    /// Runs until no event is left.
    pub(crate) fn run(mut self) -> Self {
        for node in 0..self.nodes.len() {
            let first_ns = self.random.u64(0..=self.plan.gaps_ns.1);
            self.at(first_ns, Event::Call { node });
        }
        while let Some(Reverse((at_ns, _, event))) = self.events.pop() {
            self.now_ns = at_ns;
            self.happen(event);
        }
        self
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at_ns, self.count, event)));
    }

    /// Sends a message. Returns `true` if it arrives.
    fn send(&mut self, event: Event) -> bool {
        let one_in = self.plan.loses_one_in;
        if one_in > 0 && self.random.u64(..one_in) == 0 {
            return false;
        }
        let (low_ns, high_ns) = self.plan.delays_ns;
        let delay_ns = self.random.u64(low_ns..=high_ns);
        self.at(self.now_ns + delay_ns, event);
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Call { node } => self.call(node),
            Event::Wake { node } => {
                if self.nodes[node].wakes_ns == Some(self.now_ns) {
                    self.nodes[node].wakes_ns = None;
                    self.send_lease_actions(node);
                }
            }
            Event::GivenUp { node, life, id } => {
                let here = &mut self.nodes[node];
                if here.life == life
                    && here.under_way.take_if(|under_way| *under_way == id).is_some()
                {
                    here.leased.lost(id, here.clock.at(self.now_ns));
                    here.waiting.clear();
                    self.send_lease_actions(node);
                }
            }
            Event::AtStore { node, life, id, units } => {
                let answer = self.decide(units);
                let is_sent = self.send(Event::Answer { node, life, id, answer });
                if let (false, Answer::Debited { units, .. }) = (is_sent, answer) {
                    self.books.lost_on_the_way += units;
                }
            }
            Event::Answer { node, life, id, answer } => self.answer(node, life, id, answer),
            Event::Returned { receipt, units } => {
                let (grant, left) = &mut self.grants_of[receipt];
                *left = left.checked_sub(units).expect("more came back than was debited");
                let grant = *grant;
                self.store.refund(self.now_ns, &grant, units);
            }
        }
    }

    fn decide(&mut self, units: u64) -> Answer {
        let now_ns = self.now_ns;
        let units = self.store.remaining(now_ns).min(units);
        if units == 0 {
            let retry_after_ns = self.store.peek(now_ns, 1).unwrap();
            return Answer::Denied { retry_after_ns, at_ns: now_ns };
        }
        let Ok(Verdict::Granted(grant)) = self.store.try_acquire(now_ns, units) else {
            panic!("what remains passes");
        };
        self.debits.add(now_ns, units);
        self.books.debits += 1;
        self.books.debited += units;
        self.grants_of.push((grant, units));
        let window_ends_in_ns = self.plan.grid_ns.map(|grid_ns| grid_ns - now_ns % grid_ns);
        Answer::Debited { receipt: self.grants_of.len() - 1, units, window_ends_in_ns }
    }

    fn call(&mut self, node: usize) {
        let (low_ns, high_ns) = self.plan.gaps_ns;
        let one_in = self.plan.pauses_one_in;
        let times = if one_in > 0 && self.random.u64(..one_in) == 0 { 40 } else { 1 };
        let next_ns = self.now_ns + self.random.u64(low_ns..=high_ns) * times;
        if next_ns < self.plan.ends_ns {
            self.at(next_ns, Event::Call { node });
        }
        if self.plan.crashes_one_in > 0 && self.random.u64(..self.plan.crashes_one_in) == 0 {
            self.crash(node);
        }
        let permits = self.random.u64(1..=self.plan.max_permits);
        self.decide_locally(node, permits, 0);
        self.send_lease_actions(node);
    }

    fn crash(&mut self, node: usize) {
        let config = config(&self.plan);
        let here = &mut self.nodes[node];
        here.life += 1;
        here.leased = Leased::new(config);
        here.under_way = None;
        here.waiting.clear();
        here.opens_ns = None;
        let usable = std::mem::take(&mut here.usable);
        self.books.lost_in_crashes += usable.values().map(|debit| debit.left).sum::<u64>();
    }

    fn decide_locally(&mut self, node: usize, permits: u64, received: u32) {
        let now_ns = self.now_ns;
        let here = &mut self.nodes[node];
        let local_ns = here.clock.at(now_ns);
        match here.leased.try_acquire(local_ns, n(permits)) {
            LocalDecision::Granted => {
                self.books.used += permits;
                self.used.add(now_ns, permits);
                here.use_up(now_ns, permits);
            }
            LocalDecision::Denied { retry_after_ns } => {
                self.books.denials += 1;
                let opens_ns = here.opens_ns.expect("only what the store said is remembered");
                assert!(now_ns < opens_ns, "denied though the store would grant");
                let reported_ns = local_ns + retry_after_ns.map_or(0, NonZeroU64::get);
                assert!(here.clock.at(opens_ns) <= reported_ns, "the reported wait is too short");
            }
            LocalDecision::NeedsLease => {
                self.books.requests += 1;
                self.last_request_ns = now_ns;
                if received < PATIENCE {
                    here.waiting.push((permits, received));
                }
            }
        }
    }

    fn answer(&mut self, node: usize, life: u64, id: LeaseActionId, answer: Answer) {
        let now_ns = self.now_ns;
        let here = &mut self.nodes[node];
        let local_ns = here.clock.at(now_ns);
        if here.life != life {
            if let Answer::Debited { units, .. } = answer {
                self.books.lost_in_crashes += units;
            }
            return;
        }
        let is_late = here.under_way.take_if(|under_way| *under_way == id).is_none();
        match answer {
            Answer::Debited { receipt, units, window_ends_in_ns } => {
                let at_ns = self.grants_of[receipt].0.start_ns;
                let length_ns = window_ends_in_ns.unwrap_or(u64::MAX).min(self.plan.length_ns);
                let debit = Debit { at_ns, ends_ns: at_ns + length_ns, left: units, is_late };
                here.usable.insert(receipt, debit);
                here.leased.debited(id, local_ns, n(units), window_ends_in_ns, receipt);
            }
            Answer::Denied { retry_after_ns, at_ns } => {
                if !is_late {
                    here.opens_ns = Some(at_ns + retry_after_ns.unwrap_or(0));
                }
                here.leased.denied(id, local_ns, retry_after_ns.and_then(NonZeroU64::new));
            }
        }
        for (permits, received) in std::mem::take(&mut self.nodes[node].waiting) {
            self.decide_locally(node, permits, received + 1);
        }
        self.send_lease_actions(node);
    }

    fn send_lease_actions(&mut self, node: usize) {
        let local_ns = self.nodes[node].clock.at(self.now_ns);
        while let Some(lease_action) = self.nodes[node].leased.lease_action(local_ns) {
            match lease_action {
                LeaseAction::Debit { id, units } => self.debit(node, id, units.get()),
                LeaseAction::Return { receipt, units } => {
                    let units = units.get();
                    self.nodes[node].credit(receipt, units);
                    self.books.sent_back += units;
                    self.send(Event::Returned { receipt, units });
                }
            }
        }
        let here = &mut self.nodes[node];
        assert!(here.waiting.is_empty() || here.under_way.is_some(), "waits for nothing");
        let Some(wakes_ns) = here.leased.wakes_at_ns() else { return };
        assert!(wakes_ns > local_ns, "wakes again and again");
        let wakes_ns = here.clock.first(wakes_ns);
        if here.wakes_ns != Some(wakes_ns) {
            here.wakes_ns = Some(wakes_ns);
            self.at(wakes_ns, Event::Wake { node });
        }
    }

    fn debit(&mut self, node: usize, id: LeaseActionId, units: u64) {
        let here = &mut self.nodes[node];
        here.under_way = Some(id);
        let max = self.plan.max_units.max(self.plan.max_permits);
        let has = here.leased.units(here.clock.at(self.now_ns));
        assert!(has + units <= max, "{has} units and {units} more");
        let life = here.life;
        let budget_ns = here.clock.at(self.now_ns) + self.plan.budget_ns;
        let gives_up_ns = here.clock.first(budget_ns);
        self.at(gives_up_ns, Event::GivenUp { node, life, id });
        self.send(Event::AtStore { node, life, id, units });
    }

    /// Accounts for every permit that the store debited: permits that nodes still have were never
    /// used.
    pub(crate) fn settle(&mut self) {
        let usable = self.nodes.iter().flat_map(|node| node.usable.values());
        let left: u64 = usable.map(|debit| debit.left).sum();
        self.books.let_go = left;
        for node in &self.nodes {
            assert!(node.leased.wakes_at_ns().is_none(), "something is left to do");
            let later_ns = node.clock.at(self.now_ns + 4 * self.plan.length_ns + 4);
            assert!(node.leased.may_be_evicted(later_ns), "never evictable");
        }
    }
}

impl Node {
    /// Takes used permits off the oldest debit that may still be used, in the model of a node.
    fn use_up(&mut self, now_ns: u64, permits: u64) {
        let mut left = permits;
        for debit in self.usable.values_mut() {
            if debit.is_late || now_ns >= debit.ends_ns {
                continue;
            }
            assert!(now_ns >= debit.at_ns, "used before it was debited");
            let taken = left.min(debit.left);
            debit.left -= taken;
            left -= taken;
        }
        assert_eq!(left, 0, "more than it had, or after its end");
        self.usable.retain(|_, debit| debit.left > 0);
    }
}

impl Node {
    /// Returns unused units.
    ///
    /// The model may have used up another lease than the machine, for which one ends a little
    /// sooner.
    fn credit(&mut self, receipt: Receipt, units: u64) {
        let mut left = units;
        if let Some(debit) = self.usable.get_mut(&receipt) {
            let own = debit.left.min(units);
            debit.left -= own;
            left -= own;
        }
        for debit in self.usable.values_mut() {
            let taken = left.min(debit.left);
            debit.left -= taken;
            left -= taken;
        }
        assert_eq!(left, 0, "used, and returned as well");
        self.usable.retain(|_, debit| debit.left > 0);
    }
}

fn config(plan: &Plan) -> LeaseConfig {
    LeaseConfig::new(n(plan.length_ns), n(plan.max_units), plan.drift_ppm).unwrap()
}
