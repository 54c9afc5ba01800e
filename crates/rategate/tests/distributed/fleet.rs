//! Nodes, a store, and an oracle that records every grant.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use rategate::distributed::{Builder, DecidedBy, Decision, DecisionFuture, Distributed};
use rategate::store::MemoryStore;
use rategate::{Clock, ManualClock};
use rategate_testkit::oracle::Grants;

use crate::distributed::wire::{LinkState, Wire};

pub(crate) type Node = Distributed<Wire, ManualClock>;

pub(crate) struct Fleet {
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<MemoryStore<ManualClock>>,
    pub(crate) nodes: Vec<Member>,
    pub(crate) grants: Vec<Granted>,
    pub(crate) denials: Vec<(u64, Decision)>,
    pub(crate) random: Rng,
    seed: u64,
}

pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) wire: Arc<Wire>,
    waiting: Vec<(DecisionFuture, u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) at_ns: u64,
    pub(crate) permits: u64,
    pub(crate) by: DecidedBy,
}

impl Fleet {
    pub(crate) fn new(seed: u64) -> Self {
        let clock = ManualClock::stepped();
        clock.set(Duration::from_nanos(1_000 * crate::distributed::S));
        let store = Arc::new(MemoryStore::with_clock(clock.clone()));
        let random = Rng::with_seed(seed);
        Self {
            clock,
            store,
            nodes: Vec::new(),
            grants: Vec::new(),
            denials: Vec::new(),
            random,
            seed,
        }
    }

    pub(crate) fn join(&mut self, set_up: impl FnOnce(Builder<Wire>) -> Builder<Wire>) -> usize {
        let count = u64::try_from(self.nodes.len()).unwrap();
        let wire = Wire::new(&self.store, &self.clock, self.seed * 1_000 + count);
        let builder = set_up(Distributed::builder(Arc::clone(&wire)));
        let node = builder.with_clock(self.clock.clone()).unattended().build().unwrap();
        self.nodes.push(Member { node, wire, waiting: Vec::new() });
        self.nodes.len() - 1
    }

    /// Cuts a node off as if its process were killed.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].wire.set(LinkState::RequestsLost);
        self.nodes.remove(node);
    }

    pub(crate) fn set_all(&self, link_state: LinkState) {
        for member in &self.nodes {
            member.wire.set(link_state);
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(crate) fn call(&mut self, node: usize, key: &[u8], permits: u64) {
        let now_ns = self.now_ns();
        let deciding = self.nodes[node].node.try_acquire(key, permits);
        self.nodes[node].waiting.push((deciding, permits, now_ns));
        self.poll_waiting();
    }

    /// Runs event by event to `until_ns`.
    pub(crate) fn run_to(&mut self, until_ns: u64) {
        loop {
            for member in &self.nodes {
                member.wire.deliver_due();
            }
            let mut next_ns = until_ns;
            for member in &self.nodes {
                let attend_ns = member.node.attend();
                let event_ns = member.wire.next_ns();
                next_ns = attend_ns.into_iter().chain(event_ns).fold(next_ns, u64::min);
            }
            self.poll_waiting();
            if next_ns > self.now_ns() {
                self.clock.set(Duration::from_nanos(next_ns));
            } else if self.now_ns() >= until_ns {
                return;
            }
        }
    }

    /// Returns the most permits granted in any window of this length, by the parties that
    /// `counts` selects.
    pub(crate) fn max_in(&self, window_ns: u64, counts: impl Fn(DecidedBy) -> bool) -> u64 {
        let grants = self.grants.iter().filter(|grant| counts(grant.by));
        let grants = grants.map(|grant| (grant.at_ns, grant.permits));
        Grants(grants.collect()).fullest_window(window_ns).0
    }

    pub(crate) fn granted_since(&self, since_ns: u64) -> u64 {
        self.grants.iter().filter(|grant| grant.at_ns >= since_ns).map(|grant| grant.permits).sum()
    }

    /// Records the decisions made so far.
    fn poll_waiting(&mut self) {
        let now_ns = self.clock.now_ns();
        for member in &mut self.nodes {
            for (mut deciding, permits, requested_ns) in std::mem::take(&mut member.waiting) {
                let mut context = Context::from_waker(Waker::noop());
                match Pin::new(&mut deciding).poll(&mut context) {
                    Poll::Pending => member.waiting.push((deciding, permits, requested_ns)),
                    Poll::Ready(decision) => {
                        let decision = decision.unwrap();
                        assert!(
                            now_ns <= requested_ns + 20_000_000,
                            "waited {} ns",
                            now_ns - requested_ns
                        );
                        if decision.is_granted() {
                            let by = decision.by();
                            self.grants.push(Granted { at_ns: now_ns, permits, by });
                        } else {
                            self.denials.push((now_ns, decision));
                        }
                    }
                }
            }
        }
    }
}
