//! Nodes that send each call to the store, and nodes that go by the store's last reply.

use super::{Awaited, Call, NodeStep, SharedState};
use crate::fleet::store::{Answer, Reply, Request};
use crate::fleet::tally::By;

/// Requests a decision about a call.
pub(super) fn decide(shared_state: &mut SharedState, step: &mut NodeStep<'_>, call: Call) {
    if !shared_state.send(step, Request::Decide { permits: call.permits }, Awaited::Call(call)) {
        shared_state.fall_back(step, call);
    }
}

/// Carries out the store's decision.
pub(super) fn decided(step: &mut NodeStep<'_>, call: Call, reply: Reply) {
    match reply.answer {
        Answer::Granted { .. } => step.pass_on(call, reply.decided_ns, By::Store),
        _ => step.deny(call, By::Store),
    }
}

/// Requests the number of free permits for a call.
pub(super) fn check(shared_state: &mut SharedState, step: &mut NodeStep<'_>, call: Call) {
    if !shared_state.send(step, Request::Peek, Awaited::Call(call)) {
        shared_state.fall_back(step, call);
    }
}

/// Goes ahead if the reply says that permits are free, and reports it.
pub(super) fn checked(step: &mut NodeStep<'_>, call: Call, answer: Answer) {
    match answer {
        Answer::Free { permits } if permits >= call.permits.get() => {
            step.post.enqueue(Request::Record { permits: call.permits.get() }, false);
            step.tally.counts.requests = step.tally.counts.requests.saturating_add(1);
            step.grant(call, By::Store);
        }
        _ => step.deny(call, By::Store),
    }
}

/// A node that learns at intervals how many permits are free, and grants until they are used up.
#[derive(Debug)]
pub(super) struct Gossip {
    every_ns: u64,
    next_request_ns: u64,
    /// The permits that were free at the last reply.
    free: u64,
    /// The permits that it has used and not reported.
    unreported: u64,
}

impl Gossip {
    pub(super) const fn new(every_ns: u64) -> Self {
        Self { every_ns, next_request_ns: 0, free: 0, unreported: 0 }
    }

    pub(super) fn call(&mut self, step: &mut NodeStep<'_>, call: Call) {
        match self.free.checked_sub(call.permits.get()) {
            Some(free) => {
                self.free = free;
                self.unreported = self.unreported.saturating_add(call.permits.get());
                step.grant(call, By::Store);
            }
            None => step.deny(call, By::Store),
        }
    }

    pub(super) fn wake(&mut self, shared_state: &mut SharedState, step: &mut NodeStep<'_>) {
        if step.now_ns < self.next_request_ns {
            return;
        }
        self.next_request_ns = step.now_ns.saturating_add(self.every_ns);
        let permits = std::mem::take(&mut self.unreported);
        let _ = shared_state.send(step, Request::Record { permits }, Awaited::Usage);
    }

    pub(super) fn handle(&mut self, answer: Answer) {
        if let Answer::Free { permits } = answer {
            self.free = permits.saturating_sub(self.unreported);
        }
    }

    pub(super) const fn wakes_at_ns(&self) -> u64 {
        self.next_request_ns
    }
}
