//! A node: its clock, the calls that come to it, and the machines that decide about them.
//!
//! The machines are those of [`rategate_core::node`], the very ones that a real node runs. This
//! module only carries messages to them and from them.

mod alone;
mod asking;
mod lending;
mod sharing;

use std::num::NonZeroU64;

use rategate_core::node::{Breaker, BreakerTerms, Pass};

use self::alone::Part;
use self::asking::Gossip;
use self::lending::Lending;
use self::sharing::Sharing;
use super::clock::NodeClock;
use super::network::below;
use super::plan::{Fallback, Flaw, Mode, Plan};
use super::store::{Answer, Question, Reply};
use super::tally::{By, Tally};
use crate::random::Random;

/// A node of a fleet.
#[derive(Debug)]
pub(super) struct Node {
    index: u32,
    clock: NodeClock,
    is_up: bool,
    /// `true` once it has been up before.
    is_back: bool,
    way: Way,
    desk: Desk,
    /// The true instant of its next wake-up.
    wake_ns: Option<u64>,
}

/// The way in which a node decides about calls.
#[derive(Debug)]
enum Way {
    Exact,
    Leased(Box<Lending>),
    Shared(Box<Sharing>),
    Static(Box<Part>),
    Gossip(Box<Gossip>),
    CheckThenAct,
}

/// The state that all ways share: pending requests, the breaker, and the fallback.
#[derive(Debug)]
struct Desk {
    awaited: Vec<(u64, Awaited)>,
    breaker: Breaker,
    /// The node's share of what the fleet may use without the store.
    alone: Part,
}

/// The purpose of a pending request.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    /// A call that waits for the reply.
    Call(Call),
    /// Units for calls to come.
    Debit(rategate_core::node::ErrandId),
    /// A share.
    Beat(rategate_core::node::BeatId),
    /// The permits that all nodes have used.
    Rumour,
}

/// A call to be decided.
#[derive(Clone, Copy, Debug)]
struct Call {
    at_ns: u64,
    permits: NonZeroU64,
}

/// The world as a node sees it while it acts.
pub(super) struct Turn<'w> {
    /// True time, for the records; a node does not know it.
    pub(super) true_ns: u64,
    /// The reading of the node's clock.
    pub(super) now_ns: u64,
    pub(super) plan: &'w Plan,
    pub(super) post: &'w mut Post,
    pub(super) tally: &'w mut Tally,
}

/// The outbox of the nodes.
#[derive(Debug, Default)]
pub(super) struct Post {
    pub(super) letters: Vec<Letter>,
    next: u64,
}

/// A message to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter {
    pub(super) number: u64,
    pub(super) question: Question,
    /// `true` if the node waits for the reply.
    pub(super) is_awaited: bool,
}

impl Node {
    /// Returns a node that is not up yet, with a random clock.
    pub(super) fn new(plan: &Plan, index: u32, clocks: &mut Random) -> Self {
        let origin_ns = clocks.bits() >> 20;
        let most_ppm = i64::from(plan.drift_ppm);
        // Half of the clocks are at the ends of the range, where the error is worst.
        let drift_ppm = match below(clocks, 4) {
            0 => most_ppm,
            1 => most_ppm.saturating_neg(),
            _ => {
                let span = u64::from(plan.drift_ppm).saturating_mul(2).saturating_add(1);
                i64::try_from(below(clocks, span)).unwrap_or(0).saturating_sub(most_ppm)
            }
        };
        let clock = NodeClock::new(origin_ns, drift_ppm);
        let desk = Desk {
            awaited: Vec::new(),
            breaker: Breaker::new(BreakerTerms::default()),
            alone: Part::NONE,
        };
        let way = Way::Exact;
        Self { index, clock, is_up: false, is_back: false, way, desk, wake_ns: None }
    }

    pub(super) const fn clock(&self) -> NodeClock {
        self.clock
    }

    /// Starts the node, with no state from before.
    pub(super) fn start(&mut self, turn: &mut Turn<'_>) {
        let plan = turn.plan;
        // A node that was up before may have used any permit until a moment ago.
        let is_fresh = !self.is_back || plan.has(Flaw::ForgetsAtRestart);
        let part =
            |total| Part::new(plan, plan.even_part(total, self.index), turn.now_ns, is_fresh);
        self.desk.breaker = Breaker::new(BreakerTerms::default());
        self.desk.alone = match plan.fallback {
            Fallback::Local { total, .. } => part(total),
            Fallback::Deny | Fallback::Admit => Part::NONE,
        };
        self.way = match plan.mode {
            Mode::Exact => Way::Exact,
            Mode::Leased { .. } => Way::Leased(Box::new(Lending::new(plan))),
            Mode::Shared { .. } => Way::Shared(Box::new(Sharing::new(plan, self.index, turn.post))),
            Mode::Static => Way::Static(Box::new(part(plan.limit.total()))),
            Mode::Gossip { every_ns } => Way::Gossip(Box::new(Gossip::new(every_ns))),
            Mode::CheckThenAct => Way::CheckThenAct,
        };
        (self.is_up, self.is_back) = (true, true);
        self.wake(turn);
    }

    /// Stops the node and drops its state.
    pub(super) fn crash(&mut self) {
        self.is_up = false;
        self.desk.awaited.clear();
        self.way = Way::Exact;
        self.wake_ns = None;
    }

    /// Decides about a call.
    pub(super) fn call(&mut self, turn: &mut Turn<'_>, permits: u64) {
        let Some(permits) = NonZeroU64::new(permits).filter(|_| self.is_up) else {
            turn.tally.counts.unserved = turn.tally.counts.unserved.saturating_add(1);
            return;
        };
        turn.tally.counts.calls = turn.tally.counts.calls.saturating_add(1);
        let call = Call { at_ns: turn.true_ns, permits };
        let desk = &mut self.desk;
        match &mut self.way {
            Way::Exact => asking::decide(desk, turn, call),
            Way::CheckThenAct => asking::check(desk, turn, call),
            Way::Leased(lending) => lending.call(desk, turn, call),
            Way::Shared(sharing) => sharing.call(desk, turn, call),
            Way::Static(part) => part.call(turn, call, By::Store),
            Way::Gossip(gossip) => gossip.call(turn, call),
        }
    }

    /// Handles a reply.
    pub(super) fn hear(&mut self, turn: &mut Turn<'_>, number: u64, reply: Reply) {
        if !self.is_up {
            return;
        }
        let Some(awaited) = self.desk.take(number) else {
            give_back(turn, reply.answer);
            return;
        };
        self.desk.breaker.answered();
        if reply.intact_for_ns < turn.plan.quarantine_ns() {
            give_back(turn, reply.answer);
            self.no_answer(turn, awaited);
            return;
        }
        let desk = &mut self.desk;
        match (&mut self.way, awaited) {
            (Way::Exact, Awaited::Call(call)) => asking::decided(turn, call, reply),
            (Way::CheckThenAct, Awaited::Call(call)) => asking::checked(turn, call, reply.answer),
            (Way::Leased(lending), Awaited::Debit(id)) => {
                lending.hear(desk, turn, id, reply.answer);
            }
            (Way::Shared(sharing), Awaited::Beat(id)) => sharing.hear(turn, id, reply.answer),
            (Way::Gossip(gossip), Awaited::Rumour) => gossip.hear(reply.answer),
            _ => {}
        }
    }

    /// Handles the end of the time for a reply.
    pub(super) fn give_up(&mut self, turn: &mut Turn<'_>, number: u64) {
        // The reply may have come, or the request may be that of an earlier life.
        let Some(awaited) = self.desk.take(number) else { return };
        turn.tally.counts.lost = turn.tally.counts.lost.saturating_add(1);
        self.desk.breaker.failed(turn.now_ns);
        self.no_answer(turn, awaited);
    }

    fn no_answer(&mut self, turn: &mut Turn<'_>, awaited: Awaited) {
        let desk = &mut self.desk;
        match (&mut self.way, awaited) {
            (Way::Leased(lending), Awaited::Debit(id)) => lending.lost(desk, turn, id),
            (Way::Shared(sharing), Awaited::Beat(id)) => sharing.lost(turn, id),
            (_, Awaited::Call(call)) => desk.fall_back(turn, call),
            _ => {}
        }
    }

    /// Runs the machines at an instant that the node scheduled.
    pub(super) fn wake(&mut self, turn: &mut Turn<'_>) {
        if !self.is_up {
            return;
        }
        let desk = &mut self.desk;
        match &mut self.way {
            Way::Leased(lending) => lending.wake(desk, turn),
            Way::Shared(sharing) => sharing.wake(desk, turn),
            Way::Gossip(gossip) => gossip.wake(desk, turn),
            Way::Exact | Way::Static(_) | Way::CheckThenAct => {}
        }
    }

    /// Returns the true instant of the node's next wake-up, unless it is scheduled already.
    pub(super) fn wakes_at_ns(&mut self, true_ns: u64) -> Option<u64> {
        let by_its_clock_ns = match &self.way {
            _ if !self.is_up => None,
            Way::Leased(lending) => lending.wakes_at_ns(),
            Way::Shared(sharing) => sharing.wakes_at_ns(),
            Way::Gossip(gossip) => Some(gossip.wakes_at_ns()),
            Way::Exact | Way::Static(_) | Way::CheckThenAct => None,
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

impl Desk {
    /// Sends a request to the store, unless the breaker is open. Returns `true` if it was sent.
    fn ask(&mut self, turn: &mut Turn<'_>, question: Question, awaited: Awaited) -> bool {
        if let Pass::Stay { .. } = self.breaker.pass(turn.now_ns) {
            return false;
        }
        let number = turn.post.put(question, true);
        turn.tally.counts.questions = turn.tally.counts.questions.saturating_add(1);
        self.awaited.push((number, awaited));
        true
    }

    fn take(&mut self, number: u64) -> Option<Awaited> {
        let place = self.awaited.iter().position(|(known, _)| *known == number)?;
        Some(self.awaited.swap_remove(place).1)
    }

    /// Decides about a call without the store.
    fn fall_back(&mut self, turn: &mut Turn<'_>, call: Call) {
        match turn.plan.fallback {
            Fallback::Deny => turn.deny(call, By::Alone),
            Fallback::Admit => turn.grant(call, By::Alone),
            Fallback::Local { .. } => self.alone.call(turn, call, By::Alone),
        }
    }
}

impl Turn<'_> {
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

impl Post {
    fn put(&mut self, question: Question, is_awaited: bool) -> u64 {
        let number = self.number();
        self.letters.push(Letter { number, question, is_awaited });
        number
    }

    /// Returns a number that no other message or member has.
    fn number(&mut self) -> u64 {
        self.next = self.next.saturating_add(1);
        self.next
    }
}

/// Returns the permits of a reply that no call waits for any more, since they will not be used.
fn give_back(turn: &mut Turn<'_>, answer: Answer) {
    if let Answer::Granted { units, receipt, .. } = answer {
        turn.post.put(Question::Return { receipt, units }, false);
    }
}
