//! Nodes that send each call to the store, and nodes that go by the store's last reply.

use super::{Awaited, Call, Desk, Turn};
use crate::fleet::store::{Answer, Question, Reply};
use crate::fleet::tally::By;

/// Requests a decision about a call.
pub(super) fn decide(desk: &mut Desk, turn: &mut Turn<'_>, call: Call) {
    if !desk.ask(turn, Question::Decide { permits: call.permits }, Awaited::Call(call)) {
        desk.fall_back(turn, call);
    }
}

/// Carries out the store's decision.
pub(super) fn decided(turn: &mut Turn<'_>, call: Call, reply: Reply) {
    match reply.answer {
        Answer::Granted { .. } => turn.pass_on(call, reply.decided_ns, By::Store),
        _ => turn.deny(call, By::Store),
    }
}

/// Requests the number of free permits for a call.
pub(super) fn check(desk: &mut Desk, turn: &mut Turn<'_>, call: Call) {
    if !desk.ask(turn, Question::Peek, Awaited::Call(call)) {
        desk.fall_back(turn, call);
    }
}

/// Goes ahead if the reply says that permits are free, and reports it.
pub(super) fn checked(turn: &mut Turn<'_>, call: Call, answer: Answer) {
    match answer {
        Answer::Free { permits } if permits >= call.permits.get() => {
            turn.post.put(Question::Tell { permits: call.permits.get() }, false);
            turn.tally.counts.questions = turn.tally.counts.questions.saturating_add(1);
            turn.grant(call, By::Store);
        }
        _ => turn.deny(call, By::Store),
    }
}

/// A node that learns at intervals how many permits are free, and grants until they are used up.
#[derive(Debug)]
pub(super) struct Gossip {
    every_ns: u64,
    asks_at_ns: u64,
    /// The permits that were free at the last reply.
    free: u64,
    /// The permits that it has used and not reported.
    untold: u64,
}

impl Gossip {
    pub(super) const fn new(every_ns: u64) -> Self {
        Self { every_ns, asks_at_ns: 0, free: 0, untold: 0 }
    }

    pub(super) fn call(&mut self, turn: &mut Turn<'_>, call: Call) {
        match self.free.checked_sub(call.permits.get()) {
            Some(free) => {
                self.free = free;
                self.untold = self.untold.saturating_add(call.permits.get());
                turn.grant(call, By::Store);
            }
            None => turn.deny(call, By::Store),
        }
    }

    pub(super) fn wake(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if turn.now_ns < self.asks_at_ns {
            return;
        }
        self.asks_at_ns = turn.now_ns.saturating_add(self.every_ns);
        let permits = std::mem::take(&mut self.untold);
        let _ = desk.ask(turn, Question::Tell { permits }, Awaited::Rumour);
    }

    pub(super) fn hear(&mut self, answer: Answer) {
        if let Answer::Free { permits } = answer {
            self.free = permits.saturating_sub(self.untold);
        }
    }

    pub(super) const fn wakes_at_ns(&self) -> u64 {
        self.asks_at_ns
    }
}
