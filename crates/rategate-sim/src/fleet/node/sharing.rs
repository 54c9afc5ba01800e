//! A node that has a share of the limit for as long as it sends heartbeats.

use std::num::NonZeroU64;

use rategate_core::node::{Beat, BeatId, Member, MemberTerms};

use super::alone::Part;
use super::{Awaited, Call, Desk, Post, Turn};
use crate::fleet::plan::{Flaw, Mode, Plan};
use crate::fleet::store::{Answer, Question};
use crate::fleet::tally::By;

/// The membership machine, the limit of its share, and the name of this life.
#[derive(Debug)]
pub(super) struct Sharing {
    member: Option<Member>,
    part: Part,
    index: u32,
    name: [u8; 16],
}

impl Sharing {
    pub(super) fn new(plan: &Plan, index: u32, post: &mut Post) -> Self {
        // No other life of any node has this name.
        let name = (u128::from(index) << 64) | u128::from(post.number());
        let member = member_terms(plan).map(Member::new);
        Self { member, part: Part::NONE, index, name: name.to_be_bytes() }
    }

    pub(super) fn call(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, call: Call) {
        let share = self.member.as_ref().map_or(0, |member| member.share(turn.now_ns));
        if share == 0 && desk.breaker.is_open() {
            desk.fall_back(turn, call);
            return;
        }
        // The share may have expired since the last check.
        self.part.resize(turn.plan, turn.now_ns, share, 0);
        self.part.call(turn, call, By::Store);
    }

    pub(super) fn wake(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let Some(member) = &mut self.member else { return };
        let Some(id) = member.beat(turn.now_ns) else { return };
        let length_ns = member_terms(turn.plan).map_or(0, |terms| terms.length_ns().get());
        let beat = Beat {
            member: self.name,
            total: turn.plan.limit_of_store().total(),
            at_least: 0,
            length_ns,
            memory_ns: turn.plan.limit.memory_ns(),
        };
        if !desk.ask(turn, Question::Beat(beat), Awaited::Beat(id)) {
            member.lost(id, turn.now_ns);
        }
    }

    pub(super) fn hear(&mut self, turn: &mut Turn<'_>, id: BeatId, answer: Answer) {
        let (Some(member), Answer::Share(heard)) = (&mut self.member, answer) else { return };
        // An expired share is dropped first, so that it counts as gained if it is assigned again.
        self.part.resize(turn.plan, turn.now_ns, member.share(turn.now_ns), 0);
        let resize = member.heard(id, turn.now_ns, heard);
        let gain = resize.to.saturating_sub(resize.from);
        let fresh = if turn.plan.has(Flaw::TakesAllAsFresh) { gain } else { resize.fresh };
        self.part.resize(turn.plan, turn.now_ns, resize.to, fresh);
        if resize.to != resize.from {
            turn.tally.share(turn.true_ns, self.index, resize.to);
        }
    }

    pub(super) fn lost(&mut self, turn: &mut Turn<'_>, id: BeatId) {
        if let Some(member) = &mut self.member {
            member.lost(id, turn.now_ns);
        }
    }

    pub(super) fn wakes_at_ns(&self) -> Option<u64> {
        self.member.as_ref().and_then(Member::wakes_at_ns)
    }
}

/// Returns the plan's member config as the node understands it. If it is invalid, nothing is ever
/// granted.
fn member_terms(plan: &Plan) -> Option<MemberTerms> {
    let Mode::Shared { beat_ns } = plan.mode else { return None };
    MemberTerms::new(NonZeroU64::new(beat_ns)?, plan.known_drift_ppm()).ok()
}
