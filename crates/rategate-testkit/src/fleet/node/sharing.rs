//! A node that has a share of the limit for as long as it sends heartbeats.

use std::num::NonZeroU64;

use rategate_core::node::{Heartbeat, HeartbeatId, Member, MemberConfig};

use super::local_share::LocalShare;
use super::{Awaited, Call, NodeStep, Outbox, SharedState};
use crate::fleet::plan::{Flaw, Mode, Plan};
use crate::fleet::store::{Answer, Request};
use crate::fleet::tally::By;

/// The membership machine, the limit of its share, and the name of this life.
#[derive(Debug)]
pub(super) struct Sharing {
    member: Option<Member>,
    local_share: LocalShare,
    index: u32,
    name: [u8; 16],
}

impl Sharing {
    pub(super) fn new(plan: &Plan, index: u32, post: &mut Outbox) -> Self {
        // No other life of any node has this name.
        let name = (u128::from(index) << 64) | u128::from(post.number());
        let member = member_config(plan).map(Member::new);
        Self { member, local_share: LocalShare::NONE, index, name: name.to_be_bytes() }
    }

    pub(super) fn call(
        &mut self,
        shared_state: &mut SharedState,
        step: &mut NodeStep<'_>,
        call: Call,
    ) {
        let share = self.member.as_ref().map_or(0, |member| member.share(step.now_ns));
        if share == 0 && shared_state.breaker.is_open() {
            shared_state.fall_back(step, call);
            return;
        }
        // The share may have expired since the last check.
        self.local_share.resize(step.plan, step.now_ns, share, 0);
        self.local_share.call(step, call, By::Store);
    }

    pub(super) fn wake(&mut self, shared_state: &mut SharedState, step: &mut NodeStep<'_>) {
        let Some(member) = &mut self.member else { return };
        let Some(id) = member.heartbeat(step.now_ns) else { return };
        let length_ns = member_config(step.plan).map_or(0, |config| config.length_ns().get());
        let heartbeat = Heartbeat {
            member: self.name,
            total: step.plan.limit_of_store().total(),
            at_least: 0,
            length_ns,
            memory_ns: step.plan.limit.memory_ns(),
        };
        if !shared_state.send(step, Request::Heartbeat(heartbeat), Awaited::Heartbeat(id)) {
            member.lost(id, step.now_ns);
        }
    }

    pub(super) fn handle(&mut self, step: &mut NodeStep<'_>, id: HeartbeatId, answer: Answer) {
        let (Some(member), Answer::Share(received)) = (&mut self.member, answer) else { return };
        // An expired share is dropped first, so that it counts as gained if it is assigned again.
        self.local_share.resize(step.plan, step.now_ns, member.share(step.now_ns), 0);
        let resize = member.received(id, step.now_ns, received);
        let gain = resize.to.saturating_sub(resize.from);
        let fresh = if step.plan.has(Flaw::TakesAllAsFresh) { gain } else { resize.fresh };
        self.local_share.resize(step.plan, step.now_ns, resize.to, fresh);
        if resize.to != resize.from {
            step.tally.share(step.true_ns, self.index, resize.to);
        }
    }

    pub(super) fn lost(&mut self, step: &mut NodeStep<'_>, id: HeartbeatId) {
        if let Some(member) = &mut self.member {
            member.lost(id, step.now_ns);
        }
    }

    pub(super) fn wakes_at_ns(&self) -> Option<u64> {
        self.member.as_ref().and_then(Member::wakes_at_ns)
    }
}

/// Returns the plan's member config as the node understands it. If it is invalid, nothing is ever
/// granted.
fn member_config(plan: &Plan) -> Option<MemberConfig> {
    let Mode::Shared { heartbeat_ns } = plan.mode else { return None };
    MemberConfig::new(NonZeroU64::new(heartbeat_ns)?, plan.known_drift_ppm()).ok()
}
