//! A node: its clock, the calls that come to it, and the machines that decide about them.
//!
//! The machines are those of [`rategate_core::node`], the very ones that a real node runs. This
//! module only carries messages to them and from them.

mod lending;
mod local_share;
mod sharing;
mod store_calls;

use std::num::NonZeroU64;

use rategate_core::node::{Breaker, BreakerConfig, Pass};

use self::lending::Lending;
use self::local_share::LocalShare;
use self::sharing::Sharing;
use self::store_calls::Gossip;
use super::clock::NodeClock;
use super::network::below;
use super::plan::{Fallback, Flaw, Mode, Plan};
use super::store::{Answer, Reply, Request};
use super::tally::{By, Tally};
use rategate_core::random::Random;

/// A node of a fleet.
#[derive(Debug)]
pub(super) struct Node {
    index: u32,
    clock: NodeClock,
    is_up: bool,
    /// `true` once it has been up before.
    is_back: bool,
    strategy: Strategy,
    shared_state: SharedState,
    /// The true instant of its next wake-up.
    wake_ns: Option<u64>,
}

/// The way in which a node decides about calls.
#[derive(Debug)]
enum Strategy {
    Exact,
    Leased(Box<Lending>),
    Shared(Box<Sharing>),
    Static(Box<LocalShare>),
    Gossip(Box<Gossip>),
    CheckThenAct,
}

/// The state that all ways share: pending requests, the breaker, and the fallback.
#[derive(Debug)]
struct SharedState {
    awaited: Vec<(u64, Awaited)>,
    breaker: Breaker,
    /// The node's share of what the fleet may use without the store.
    local_share: LocalShare,
}

/// The purpose of a pending request.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    /// A call that waits for the reply.
    Call(Call),
    /// Units for calls to come.
    Debit(rategate_core::node::LeaseActionId),
    /// A share.
    Heartbeat(rategate_core::node::HeartbeatId),
    /// The permits that all nodes have used.
    Usage,
}

/// A call to be decided.
#[derive(Clone, Copy, Debug)]
struct Call {
    at_ns: u64,
    permits: NonZeroU64,
}

/// The world as a node sees it while it acts.
pub(super) struct NodeStep<'w> {
    /// True time, for the records; a node does not know it.
    pub(super) true_ns: u64,
    /// The reading of the node's clock.
    pub(super) now_ns: u64,
    pub(super) plan: &'w Plan,
    pub(super) post: &'w mut Outbox,
    pub(super) tally: &'w mut Tally,
}

/// The outbox of the nodes.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) letters: Vec<StoreMessage>,
    next: u64,
}

/// A message to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreMessage {
    pub(super) number: u64,
    pub(super) request: Request,
    /// `true` if the node waits for the reply.
    pub(super) is_awaited: bool,
}

impl Node {
    /// Returns a node that is not up yet, with a random clock.
    pub(super) fn new(plan: &Plan, index: u32, clocks: &mut Random) -> Self {
        let origin_ns = clocks.bits() >> 20;
        let max_ppm = i64::from(plan.drift_ppm);
        // Half of the clocks are at the ends of the range, where the error is worst.
        let drift_ppm = match below(clocks, 4) {
            0 => max_ppm,
            1 => max_ppm.saturating_neg(),
            _ => {
                let span = u64::from(plan.drift_ppm).saturating_mul(2).saturating_add(1);
                i64::try_from(below(clocks, span)).unwrap_or(0).saturating_sub(max_ppm)
            }
        };
        let clock = NodeClock::new(origin_ns, drift_ppm);
        let shared_state = SharedState {
            awaited: Vec::new(),
            breaker: Breaker::new(BreakerConfig::default()),
            local_share: LocalShare::NONE,
        };
        let strategy = Strategy::Exact;
        Self { index, clock, is_up: false, is_back: false, strategy, shared_state, wake_ns: None }
    }

    pub(super) const fn clock(&self) -> NodeClock {
        self.clock
    }

    /// Starts the node, with no state from before.
    pub(super) fn start(&mut self, step: &mut NodeStep<'_>) {
        let plan = step.plan;
        // A node that was up before may have used any permit until a moment ago.
        let is_fresh = !self.is_back || plan.has(Flaw::ForgetsAtRestart);
        let local_share = |total| {
            LocalShare::new(plan, plan.even_share(total, self.index), step.now_ns, is_fresh)
        };
        self.shared_state.breaker = Breaker::new(BreakerConfig::default());
        self.shared_state.local_share = match plan.fallback {
            Fallback::Local { total, .. } => local_share(total),
            Fallback::Deny | Fallback::Admit => LocalShare::NONE,
        };
        self.strategy = match plan.mode {
            Mode::Exact => Strategy::Exact,
            Mode::Leased { .. } => Strategy::Leased(Box::new(Lending::new(plan))),
            Mode::Shared { .. } => {
                Strategy::Shared(Box::new(Sharing::new(plan, self.index, step.post)))
            }
            Mode::Static => Strategy::Static(Box::new(local_share(plan.limit.total()))),
            Mode::Gossip { every_ns } => Strategy::Gossip(Box::new(Gossip::new(every_ns))),
            Mode::CheckThenAct => Strategy::CheckThenAct,
        };
        (self.is_up, self.is_back) = (true, true);
        self.wake(step);
    }

    /// Stops the node and drops its state.
    pub(super) fn crash(&mut self) {
        self.is_up = false;
        self.shared_state.awaited.clear();
        self.strategy = Strategy::Exact;
        self.wake_ns = None;
    }

    /// Decides about a call.
    pub(super) fn call(&mut self, step: &mut NodeStep<'_>, permits: u64) {
        let Some(permits) = NonZeroU64::new(permits).filter(|_| self.is_up) else {
            step.tally.counts.unserved = step.tally.counts.unserved.saturating_add(1);
            return;
        };
        step.tally.counts.calls = step.tally.counts.calls.saturating_add(1);
        let call = Call { at_ns: step.true_ns, permits };
        let shared_state = &mut self.shared_state;
        match &mut self.strategy {
            Strategy::Exact => store_calls::decide(shared_state, step, call),
            Strategy::CheckThenAct => store_calls::check(shared_state, step, call),
            Strategy::Leased(lending) => lending.call(shared_state, step, call),
            Strategy::Shared(sharing) => sharing.call(shared_state, step, call),
            Strategy::Static(local_share) => local_share.call(step, call, By::Store),
            Strategy::Gossip(gossip) => gossip.call(step, call),
        }
    }

    /// Handles a reply.
    pub(super) fn handle(&mut self, step: &mut NodeStep<'_>, number: u64, reply: Reply) {
        if !self.is_up {
            return;
        }
        let Some(awaited) = self.shared_state.take(number) else {
            return_grant(step, reply.answer);
            return;
        };
        self.shared_state.breaker.answered();
        if reply.intact_for_ns < step.plan.quarantine_ns() {
            return_grant(step, reply.answer);
            self.no_answer(step, awaited);
            return;
        }
        let shared_state = &mut self.shared_state;
        match (&mut self.strategy, awaited) {
            (Strategy::Exact, Awaited::Call(call)) => store_calls::decided(step, call, reply),
            (Strategy::CheckThenAct, Awaited::Call(call)) => {
                store_calls::checked(step, call, reply.answer);
            }
            (Strategy::Leased(lending), Awaited::Debit(id)) => {
                lending.handle(shared_state, step, id, reply.answer);
            }
            (Strategy::Shared(sharing), Awaited::Heartbeat(id)) => {
                sharing.handle(step, id, reply.answer);
            }
            (Strategy::Gossip(gossip), Awaited::Usage) => gossip.handle(reply.answer),
            _ => {}
        }
    }

    /// Handles the end of the time for a reply.
    pub(super) fn give_up(&mut self, step: &mut NodeStep<'_>, number: u64) {
        // The reply may have come, or the request may be that of an earlier life.
        let Some(awaited) = self.shared_state.take(number) else { return };
        step.tally.counts.lost = step.tally.counts.lost.saturating_add(1);
        self.shared_state.breaker.failed(step.now_ns);
        self.no_answer(step, awaited);
    }

    fn no_answer(&mut self, step: &mut NodeStep<'_>, awaited: Awaited) {
        let shared_state = &mut self.shared_state;
        match (&mut self.strategy, awaited) {
            (Strategy::Leased(lending), Awaited::Debit(id)) => lending.lost(shared_state, step, id),
            (Strategy::Shared(sharing), Awaited::Heartbeat(id)) => sharing.lost(step, id),
            (_, Awaited::Call(call)) => shared_state.fall_back(step, call),
            _ => {}
        }
    }

    /// Runs the machines at an instant that the node scheduled.
    pub(super) fn wake(&mut self, step: &mut NodeStep<'_>) {
        if !self.is_up {
            return;
        }
        let shared_state = &mut self.shared_state;
        match &mut self.strategy {
            Strategy::Leased(lending) => lending.wake(shared_state, step),
            Strategy::Shared(sharing) => sharing.wake(shared_state, step),
            Strategy::Gossip(gossip) => gossip.wake(shared_state, step),
            Strategy::Exact | Strategy::Static(_) | Strategy::CheckThenAct => {}
        }
    }

    /// Returns the true instant of the node's next wake-up, unless it is scheduled already.
    pub(super) fn wakes_at_ns(&mut self, true_ns: u64) -> Option<u64> {
        let by_its_clock_ns = match &self.strategy {
            _ if !self.is_up => None,
            Strategy::Leased(lending) => lending.wakes_at_ns(),
            Strategy::Shared(sharing) => sharing.wakes_at_ns(),
            Strategy::Gossip(gossip) => Some(gossip.wakes_at_ns()),
            Strategy::Exact | Strategy::Static(_) | Strategy::CheckThenAct => None,
        };
        let wake_ns = self.clock.true_ns(by_its_clock_ns?);
        // A wake-up that is scheduled and has not come yet will come.
        let is_known =
            self.wake_ns.is_some_and(|known_ns| known_ns > true_ns && known_ns <= wake_ns);
        if is_known {
            return None;
        }
        let wake_ns = wake_ns.max(true_ns.saturating_add(1));
        self.wake_ns = Some(wake_ns);
        Some(wake_ns)
    }
}

impl SharedState {
    /// Sends a request to the store, unless the breaker is open. Returns `true` if it was sent.
    fn send(&mut self, step: &mut NodeStep<'_>, request: Request, awaited: Awaited) -> bool {
        if let Pass::Reject { .. } = self.breaker.pass(step.now_ns) {
            return false;
        }
        let number = step.post.enqueue(request, true);
        step.tally.counts.requests = step.tally.counts.requests.saturating_add(1);
        self.awaited.push((number, awaited));
        true
    }

    fn take(&mut self, number: u64) -> Option<Awaited> {
        let position = self.awaited.iter().position(|(known, _)| *known == number)?;
        Some(self.awaited.swap_remove(position).1)
    }

    /// Decides about a call without the store.
    fn fall_back(&mut self, step: &mut NodeStep<'_>, call: Call) {
        match step.plan.fallback {
            Fallback::Deny => step.deny(call, By::Fallback),
            Fallback::Admit => step.grant(call, By::Fallback),
            Fallback::Local { .. } => self.local_share.call(step, call, By::Fallback),
        }
    }
}

impl NodeStep<'_> {
    /// Grants a call by the node's own decision.
    fn grant(&mut self, call: Call, by: By) {
        self.pass_on(call, self.true_ns, by);
    }

    /// Passes on a grant that was decided at that true instant.
    fn pass_on(&mut self, call: Call, decided_ns: u64, by: By) {
        self.tally.wait(call.at_ns, self.true_ns);
        self.tally.grant(self.true_ns, decided_ns, call.permits.get(), by);
    }

    fn deny(&mut self, call: Call, by: By) {
        self.tally.wait(call.at_ns, self.true_ns);
        self.tally.deny(self.true_ns, by);
    }
}

impl Outbox {
    fn enqueue(&mut self, request: Request, is_awaited: bool) -> u64 {
        let number = self.number();
        self.letters.push(StoreMessage { number, request, is_awaited });
        number
    }

    /// Returns a number that no other message or member has.
    fn number(&mut self) -> u64 {
        self.next = self.next.saturating_add(1);
        self.next
    }
}

/// Sends the permits of a reply back to the store, since no call waits for them any more.
fn return_grant(step: &mut NodeStep<'_>, answer: Answer) {
    if let Answer::Granted { units, receipt, .. } = answer {
        step.post.enqueue(Request::Return { receipt, units }, false);
    }
}
