//! The world of a fleet: true time, the messages under way, and the faults.
//!
//! Everything that happens is an event at an instant of true time. Nodes see their own clocks,
//! the store sees true time; only the oracle sees what all nodes do.

use super::faults::{Fault, FaultKind};
use super::network::below;
use super::node::{Node, NodeStep, Outbox};
use super::plan::Plan;
use super::queue::{Event, Queue};
use super::report::Report;
use super::store::Store;
use super::tally::Tally;
use super::traffic::Calls;
use rategate_core::random::Random;

/// The absences of the store: stalled, or unavailable.
#[derive(Clone, Copy, Debug, Default)]
struct Away {
    stalled_until_ns: u64,
    unavailable_until_ns: u64,
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    true_ns: u64,
    queue: Queue,
    nodes: Vec<Node>,
    store: Store,
    away: Away,
    /// The faults in progress.
    active: Vec<usize>,
    calls: Calls<'p>,
    /// The random numbers that decide about messages.
    message_random: Random,
    post: Outbox,
    tally: Tally,
}

impl<'p> World<'p> {
    pub(super) fn new(plan: &'p Plan, slice_ns: u64) -> Self {
        // Each kind of chance has its own random numbers, so that other modes see the same calls.
        let chance = |sort: u64| Random::new(plan.seed.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ sort);
        let (mut clocks, mut starts) = (chance(1), chance(2));
        let nodes: Vec<Node> =
            (0..plan.nodes).map(|index| Node::new(plan, index, &mut clocks)).collect();
        let mut queue = Queue::default();
        for node in 0..plan.nodes {
            queue.push(below(&mut starts, plan.starts_within_ns()), Event::Start { node });
        }
        for (fault, described) in plan.faults.iter().enumerate() {
            queue.push(described.at_ns, Event::Begins { fault });
            queue.push(described.end_ns(), Event::Ends { fault });
        }
        Self {
            plan,
            true_ns: 0,
            queue,
            nodes,
            store: Store::new(plan),
            away: Away::default(),
            active: Vec::new(),
            calls: Calls::new(&plan.traffic, plan.nodes, chance(3)),
            message_random: chance(4),
            post: Outbox::default(),
            tally: Tally::new(plan, slice_ns),
        }
    }

    pub(super) fn play(mut self) -> Report {
        self.next_calls();
        while let Some((at_ns, event)) = self.queue.pop() {
            if at_ns >= self.plan.lasting_ns {
                break;
            }
            self.true_ns = at_ns;
            match event {
                Event::Start { node } => self.start(node),
                Event::Calls { node, calls } => self.call(node, calls),
                Event::Wake { node } => self.step(node, Node::wake),
                Event::AtStore { node, number, .. } => self.at_store(node, number, event),
                Event::AtNode { node, number, reply } if !self.is_cut(node) => {
                    self.step(node, |node, step| node.handle(step, number, reply));
                }
                Event::AtNode { .. } => {}
                Event::GiveUp { node, number } => {
                    self.step(node, |node, step| node.give_up(step, number));
                }
                Event::Begins { fault } => self.begins(fault),
                Event::Ends { fault } => self.ends(fault),
            }
        }
        let events = self.queue.caused();
        Report::of(self.plan, self.tally, events)
    }

    /// Starts a node, unless it is down from the beginning.
    fn start(&mut self, node: u32) {
        if !self.is_struck(node, |kind| matches!(kind, FaultKind::Crash(_))) {
            self.step(node, Node::start);
        }
    }

    fn next_calls(&mut self) {
        if let Some(arrival) = self.calls.next() {
            let (node, calls) = (arrival.node, arrival.calls);
            self.queue.push(arrival.at_ns, Event::Calls { node, calls });
        }
    }

    fn call(&mut self, node: u32, calls: u32) {
        for _ in 0..calls {
            let permits = self.calls.permits();
            self.step(node, |node, step| node.call(step, permits));
        }
        self.next_calls();
    }

    /// Lets a node act, and sends the messages that it wrote.
    fn step(&mut self, index: u32, act: impl FnOnce(&mut Node, &mut NodeStep<'_>)) {
        let Some(node) =
            usize::try_from(index).ok().and_then(|position| self.nodes.get_mut(position))
        else {
            return;
        };
        let now_ns = node.clock().reading_ns(self.true_ns);
        let (true_ns, plan) = (self.true_ns, self.plan);
        let mut step =
            NodeStep { true_ns, now_ns, plan, post: &mut self.post, tally: &mut self.tally };
        act(node, &mut step);
        if let Some(wake_ns) = node.wakes_at_ns(true_ns) {
            let late_ns = match plan.late_ns {
                0 => 0,
                max_ns => below(&mut self.message_random, max_ns.saturating_add(1)),
            };
            self.queue.push(wake_ns.saturating_add(late_ns), Event::Wake { node: index });
        }
        let give_up_ns = node.clock().true_ns(now_ns.saturating_add(plan.budget_ns));
        let letters = std::mem::take(&mut self.post.letters);
        for message_delay in &letters {
            let number = message_delay.number;
            if message_delay.is_awaited {
                self.queue.push(give_up_ns, Event::GiveUp { node: index, number });
            }
            self.tally.note(self.true_ns, 4, number);
            if let Some(delay_ns) = self.passes(index) {
                let at_ns = self.true_ns.saturating_add(delay_ns);
                let request = message_delay.request;
                self.queue.push(at_ns, Event::AtStore { node: index, number, request });
            }
        }
        // The allocation is kept.
        self.post.letters = letters;
        self.post.letters.clear();
    }

    /// Returns the delay of a message to or from a node, or `None` if it never arrives.
    fn passes(&mut self, node: u32) -> Option<u64> {
        // Drawn in any case, so that a cut changes no other message.
        let delay_ns = self.plan.network.message_delay(&mut self.message_random)?;
        let slowest = self.active().map(|(_, fault)| match fault.kind {
            FaultKind::Slow { min_ns } => min_ns,
            _ => 0,
        });
        let delay_ns = slowest.fold(delay_ns, u64::max);
        if self.is_cut(node) { None } else { Some(delay_ns) }
    }

    fn is_cut(&self, node: u32) -> bool {
        self.is_struck(node, |kind| matches!(kind, FaultKind::Cut(_)))
    }

    /// Returns `true` if a node currently has a fault of such a kind.
    fn is_struck(&self, node: u32, is_such: impl Fn(FaultKind) -> bool) -> bool {
        let seed = self.plan.seed;
        self.active().any(|(index, fault)| is_such(fault.kind) && fault.concerns(seed, index, node))
    }

    /// Returns the faults in progress, each with its index in the plan.
    fn active(&self) -> impl Iterator<Item = (usize, &Fault)> {
        self.active.iter().filter_map(|&index| Some((index, self.plan.faults.get(index)?)))
    }

    fn at_store(&mut self, node: u32, number: u64, event: Event) {
        let Event::AtStore { request, .. } = event else { return };
        if self.true_ns < self.away.unavailable_until_ns || self.is_cut(node) {
            return;
        }
        if self.true_ns < self.away.stalled_until_ns {
            self.queue.push(self.away.stalled_until_ns, event);
            return;
        }
        let reply = self.store.handle(self.true_ns, request, &mut self.tally);
        if let Some(delay_ns) = self.passes(node) {
            let at_ns = self.true_ns.saturating_add(delay_ns);
            self.queue.push(at_ns, Event::AtNode { node, number, reply });
        }
    }

    fn begins(&mut self, index: usize) {
        let Some(fault) = self.plan.faults.get(index) else { return };
        self.tally.note(self.true_ns, 5, fault.lasting_ns);
        self.active.push(index);
        match fault.kind {
            FaultKind::Crash(affected) => {
                for (node, position) in self.nodes.iter_mut().zip(0..) {
                    if affected.has(self.plan.seed, index, position) {
                        node.crash();
                        self.tally.share(self.true_ns, position, 0);
                    }
                }
            }
            FaultKind::Cut(_) | FaultKind::Slow { .. } => {}
            FaultKind::Stall => {
                self.away.stalled_until_ns = self.away.stalled_until_ns.max(fault.end_ns());
            }
            FaultKind::Failover { loses_ns } => {
                self.away.unavailable_until_ns = self.away.unavailable_until_ns.max(fault.end_ns());
                self.store.fail(self.true_ns, loses_ns, &mut self.tally);
            }
        }
    }

    fn ends(&mut self, index: usize) {
        self.active.retain(|&active| active != index);
        let Some(fault) = self.plan.faults.get(index) else { return };
        match fault.kind {
            FaultKind::Crash(affected) => {
                for node in 0..self.plan.nodes {
                    if affected.has(self.plan.seed, index, node) {
                        self.step(node, Node::start);
                    }
                }
            }
            FaultKind::Failover { .. } => self.store.take_over(self.true_ns),
            FaultKind::Cut(_) | FaultKind::Slow { .. } | FaultKind::Stall => {}
        }
    }
}
