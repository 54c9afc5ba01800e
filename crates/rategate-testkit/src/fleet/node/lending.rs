//! A node that borrows permits and grants them by itself.

use std::num::NonZeroU64;

use rategate_core::node::{LeaseAction, LeaseActionId, LeaseConfig, Leased, LocalDecision};
use rategate_core::verdict::Grant;

use super::{Awaited, Call, NodeStep, SharedState};
use crate::fleet::plan::{Flaw, Mode, Plan};
use crate::fleet::store::{Answer, Request};
use crate::fleet::tally::By;

/// The lease machine, and the calls that wait for its next reply.
#[derive(Debug)]
pub(super) struct Lending {
    leased: Option<Leased<Grant>>,
    waiting: Vec<Call>,
}

impl Lending {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { leased: config(plan).map(Leased::new), waiting: Vec::new() }
    }

    pub(super) fn call(
        &mut self,
        shared_state: &mut SharedState,
        step: &mut NodeStep<'_>,
        call: Call,
    ) {
        self.decide(step, call);
        self.run_actions(shared_state, step);
    }

    fn decide(&mut self, step: &mut NodeStep<'_>, call: Call) {
        let local =
            self.leased.as_mut().map(|leased| leased.try_acquire(step.now_ns, call.permits));
        match local {
            Some(LocalDecision::Granted) => step.grant(call, By::Store),
            Some(LocalDecision::Denied { .. }) | None => step.deny(call, By::Store),
            Some(LocalDecision::NeedsLease) => self.waiting.push(call),
        }
    }

    /// Decides all waiting calls anew, in order.
    fn serve(&mut self, step: &mut NodeStep<'_>) {
        for call in std::mem::take(&mut self.waiting) {
            self.decide(step, call);
        }
    }

    fn run_actions(&mut self, shared_state: &mut SharedState, step: &mut NodeStep<'_>) {
        while let Some(lease_action) =
            self.leased.as_mut().and_then(|leased| leased.lease_action(step.now_ns))
        {
            match lease_action {
                LeaseAction::Return { receipt, units } => {
                    step.post.enqueue(Request::Return { receipt, units }, false);
                }
                LeaseAction::Debit { id, units } => {
                    if !shared_state.send(step, Request::Debit { units }, Awaited::Debit(id)) {
                        // The breaker is open, so no request was sent.
                        self.without_answer(shared_state, step, id);
                        return;
                    }
                }
            }
        }
    }

    pub(super) fn handle(
        &mut self,
        shared_state: &mut SharedState,
        step: &mut NodeStep<'_>,
        id: LeaseActionId,
        answer: Answer,
    ) {
        if let Some(leased) = &mut self.leased {
            match answer {
                Answer::Granted { units, window_ends_in_ns, receipt } => {
                    leased.debited(id, step.now_ns, units, window_ends_in_ns, receipt);
                }
                Answer::Denied { retry_after_ns } => leased.denied(id, step.now_ns, retry_after_ns),
                _ => leased.lost(id, step.now_ns),
            }
        }
        self.serve(step);
        self.run_actions(shared_state, step);
    }

    pub(super) fn lost(
        &mut self,
        shared_state: &mut SharedState,
        step: &mut NodeStep<'_>,
        id: LeaseActionId,
    ) {
        self.without_answer(shared_state, step, id);
        self.run_actions(shared_state, step);
    }

    /// Ends a debit without a reply, and decides the waiting calls by the fallback.
    fn without_answer(
        &mut self,
        shared_state: &mut SharedState,
        step: &mut NodeStep<'_>,
        id: LeaseActionId,
    ) {
        if let Some(leased) = &mut self.leased {
            leased.lost(id, step.now_ns);
        }
        for call in self.waiting.drain(..) {
            shared_state.fall_back(step, call);
        }
    }

    pub(super) fn wake(&mut self, shared_state: &mut SharedState, step: &mut NodeStep<'_>) {
        self.run_actions(shared_state, step);
    }

    pub(super) fn wakes_at_ns(&self) -> Option<u64> {
        self.leased.as_ref().and_then(Leased::wakes_at_ns)
    }
}

/// Returns the plan's lease config as the node understands it. If it is invalid, nothing is ever
/// granted.
fn config(plan: &Plan) -> Option<LeaseConfig> {
    let Mode::Leased { length_ns, max_units, .. } = plan.mode else { return None };
    let longer_ns = if plan.has(Flaw::CountsFromReply) {
        // There and back where the network is slow: equal to counting from the reply.
        plan.slowest_ns().saturating_mul(2)
    } else {
        0
    };
    let length_ns = NonZeroU64::new(length_ns.saturating_add(longer_ns))?;
    LeaseConfig::new(length_ns, NonZeroU64::new(max_units)?, plan.known_drift_ppm()).ok()
}
