//! A node that borrows permits and grants them by itself.

use std::num::NonZeroU64;

use rategate_core::node::{Errand, ErrandId, Leased, Local, Terms};
use rategate_core::verdict::Grant;

use super::{Awaited, Call, Desk, Turn};
use crate::fleet::plan::{Flaw, Mode, Plan};
use crate::fleet::store::{Answer, Question};
use crate::fleet::tally::By;

/// The lease machine, and the calls that wait for its next reply.
#[derive(Debug)]
pub(super) struct Lending {
    leased: Option<Leased<Grant>>,
    waiting: Vec<Call>,
}

impl Lending {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { leased: terms(plan).map(Leased::new), waiting: Vec::new() }
    }

    pub(super) fn call(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, call: Call) {
        self.decide(turn, call);
        self.run_errands(desk, turn);
    }

    fn decide(&mut self, turn: &mut Turn<'_>, call: Call) {
        let local =
            self.leased.as_mut().map(|leased| leased.try_acquire(turn.now_ns, call.permits));
        match local {
            Some(Local::Granted) => turn.grant(call, By::Store),
            Some(Local::Denied { .. }) | None => turn.deny(call, By::Store),
            Some(Local::Ask) => self.waiting.push(call),
        }
    }

    /// Decides all waiting calls anew, in order.
    fn serve(&mut self, turn: &mut Turn<'_>) {
        for call in std::mem::take(&mut self.waiting) {
            self.decide(turn, call);
        }
    }

    fn run_errands(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        while let Some(errand) = self.leased.as_mut().and_then(|leased| leased.errand(turn.now_ns))
        {
            match errand {
                Errand::Return { receipt, units } => {
                    turn.post.put(Question::Return { receipt, units }, false);
                }
                Errand::Debit { id, units } => {
                    if !desk.ask(turn, Question::Debit { units }, Awaited::Debit(id)) {
                        // The breaker is open, so no request was sent.
                        self.without_answer(desk, turn, id);
                        return;
                    }
                }
            }
        }
    }

    pub(super) fn hear(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        id: ErrandId,
        answer: Answer,
    ) {
        if let Some(leased) = &mut self.leased {
            match answer {
                Answer::Granted { units, window_ends_in_ns, receipt } => {
                    leased.debited(id, turn.now_ns, units, window_ends_in_ns, receipt);
                }
                Answer::Denied { retry_after_ns } => leased.denied(id, turn.now_ns, retry_after_ns),
                _ => leased.lost(id, turn.now_ns),
            }
        }
        self.serve(turn);
        self.run_errands(desk, turn);
    }

    pub(super) fn lost(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, id: ErrandId) {
        self.without_answer(desk, turn, id);
        self.run_errands(desk, turn);
    }

    /// Ends a debit without a reply; the waiting calls fall back.
    fn without_answer(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, id: ErrandId) {
        if let Some(leased) = &mut self.leased {
            leased.lost(id, turn.now_ns);
        }
        for call in self.waiting.drain(..) {
            desk.fall_back(turn, call);
        }
    }

    pub(super) fn wake(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        self.run_errands(desk, turn);
    }

    pub(super) fn wakes_at_ns(&self) -> Option<u64> {
        self.leased.as_ref().and_then(Leased::wakes_at_ns)
    }
}

/// Returns the plan's lease config as the node understands it. If it is invalid, nothing is ever
/// granted.
fn terms(plan: &Plan) -> Option<Terms> {
    let Mode::Leased { length_ns, most_units, .. } = plan.mode else { return None };
    let longer_ns = if plan.has(Flaw::CountsFromHearing) {
        // There and back where the network is slow: equal to counting from the reply.
        plan.slowest_ns().saturating_mul(2)
    } else {
        0
    };
    let length_ns = NonZeroU64::new(length_ns.saturating_add(longer_ns))?;
    Terms::new(length_ns, NonZeroU64::new(most_units)?, plan.known_drift_ppm()).ok()
}
