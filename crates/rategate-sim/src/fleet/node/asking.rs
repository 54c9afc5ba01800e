//! Nodes that ask the store about each call, and those that go by what they heard from it.

use super::{Awaited, Call, Desk, Turn};
use crate::fleet::store::{Answer, Question, Reply};
use crate::fleet::tally::By;

/// Asks about a call.
pub(super) fn decide(desk: &mut Desk, turn: &mut Turn<'_>, call: Call) {
    if !desk.ask(turn, Question::Decide { permits: call.permits }, Awaited::Call(call)) {
        desk.fall_back(turn, call);
    }
}

/// Does as the store says.
pub(super) fn decided(turn: &mut Turn<'_>, call: Call, reply: Reply) {
    match reply.answer {
        Answer::Granted { .. } => turn.pass_on(call, reply.decided_ns, By::Store),
        _ => turn.deny(call, By::Store),
    }
}

/// Asks whether there is room for a call.
pub(super) fn check(desk: &mut Desk, turn: &mut Turn<'_>, call: Call) {
    if !desk.ask(turn, Question::Peek, Awaited::Call(call)) {
        desk.fall_back(turn, call);
    }
}

/// There was room when the store was asked: goes ahead, and tells.
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

/// A node that hears now and then how much room there is, and grants until that is used.
#[derive(Debug)]
pub(super) struct Gossip {
    every_ns: u64,
    asks_at_ns: u64,
    /// What was free when it last heard.
    free: u64,
    /// What it has used and not told.
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
