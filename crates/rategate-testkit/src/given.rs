//! Grants of named calls, and the permits of each that can still be refunded.

use std::collections::BTreeMap;

use rategate_core::adaptive::Outcome as Ending;
use rategate_core::error::CountsInFlight;
use rategate_core::fair::ClassId;
use rategate_core::verdict::Grant;

use crate::report::Outcome;
use crate::steps::Answer;
use crate::wait_queue::QueuedLimits;
use crate::world::Subject;

/// The grants of named calls, kept for later settle, refund and cancel steps.
#[derive(Default)]
pub(crate) struct NamedGrants<'s> {
    /// The step index of the newest call of each name.
    steps: BTreeMap<&'s str, usize>,
    grants: BTreeMap<usize, One>,
}

struct One {
    grant: Grant,
    class: ClassId,
    /// The index of this grant among all grants.
    index: usize,
    /// The number of permits not yet refunded.
    left: u64,
    is_settled: bool,
    has_ended: bool,
    /// `true` once a settlement, a refund or an end has used the reservation, which then cannot be
    /// cancelled.
    is_used: bool,
}

impl<'s> NamedGrants<'s> {
    /// Binds `name` to `step`, replacing an earlier binding.
    pub(crate) fn name(&mut self, name: &'s str, step: usize) {
        self.steps.insert(name, step);
    }

    /// Records the grant of a named step, which must be the last of `all`.
    pub(crate) fn add(&mut self, step: usize, grant: Grant, class: ClassId, all: &[(u64, u64)]) {
        let (index, left) = (all.len().saturating_sub(1), grant.permits);
        let (is_settled, has_ended, is_used) = (false, false, false);
        let one = One { grant, class, index, left, is_settled, has_ended, is_used };
        self.grants.insert(step, one);
    }

    /// Removes a step's grant and returns it with its index among all grants. Returns `None` if
    /// it has been settled or refunded.
    pub(crate) fn cancel(&mut self, step: usize) -> Option<(Grant, usize)> {
        if self.grants.get(&step)?.is_used {
            return None;
        }
        self.grants.remove(&step).map(|one| (one.grant, one.index))
    }

    /// Settles the grant of the named call.
    pub(crate) fn settle(
        &mut self,
        (name, actual): (&str, u64),
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
        all: &mut [(u64, u64)],
    ) -> Answer {
        let Some(one) = self.find(name) else { return Answer::only(Outcome::Ungranted) };
        one.is_used = true;
        // Each grant is settled once, and not after a part of it was refunded or its end.
        if one.has_ended || one.is_settled || one.left < one.grant.permits {
            return Answer::only(Outcome::TooLate);
        }
        let debt = actual.saturating_sub(one.grant.permits);
        let returned = match limits.settle(now_ns, one.class, &one.grant, actual) {
            Ok(settled) => Answer::settled(Outcome::Settled, settled),
            // Nothing was taken.
            Err(CountsInFlight) => return Answer::only(Outcome::NotForThisLimit),
        };
        one.is_settled = true;
        if let Some((_, permits)) = all.get_mut(one.index) {
            // The permits beyond the estimate were used all the same, no later than now.
            *permits = permits.saturating_add(debt).saturating_sub(returned.back.unwrap_or(0));
        }
        returned
    }

    /// Refunds the grant of the named call, or as much of it as is left.
    pub(crate) fn refund(
        &mut self,
        (name, permits): (&str, u64),
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
        all: &mut [(u64, u64)],
    ) -> Answer {
        let Some(one) = self.find(name) else { return Answer::only(Outcome::Ungranted) };
        one.is_used = true;
        if one.has_ended || one.is_settled || one.left == 0 {
            return Answer::only(Outcome::TooLate);
        }
        // No permit is refunded twice.
        let back = limits.refund(now_ns, one.class, &one.grant, permits.min(one.left));
        one.left = one.left.saturating_sub(back);
        if let Some((_, permits)) = all.get_mut(one.index) {
            *permits = permits.saturating_sub(back);
        }
        let mut returned = Answer::only(Outcome::Refunded);
        returned.back = Some(back);
        returned
    }

    /// Ends the operations of the named call's grant. Returns its permits, if there is one.
    pub(crate) fn end(
        &mut self,
        (name, ending): (&str, Ending),
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
    ) -> (Option<u64>, Outcome) {
        let Some(one) = self.find(name) else { return (None, Outcome::Ungranted) };
        one.is_used = true;
        if one.has_ended || one.is_settled || one.left < one.grant.permits {
            return (Some(one.grant.permits), Outcome::TooLate);
        }
        one.has_ended = true;
        limits.release_with_outcome(now_ns, &one.grant, ending);
        (Some(one.grant.permits), Outcome::Set)
    }

    fn find(&mut self, name: &str) -> Option<&mut One> {
        self.grants.get_mut(self.steps.get(name)?)
    }
}
