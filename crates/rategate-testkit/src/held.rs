//! Holds of steps, and the permits that each of them used.

use std::collections::BTreeMap;

use rategate_core::holds::{Committed, Hold, HoldVerdict};
use rategate_core::verdict::Settled;

use crate::report::Outcome;
use crate::steps::Answer;
use crate::wait_queue::QueuedLimits;
use crate::world::Subject;

/// The holds of all steps. Those with a name can be committed or cancelled.
#[derive(Default)]
pub(crate) struct NamedHolds<'s> {
    /// The hold of the newest step of each name, if it was held.
    named: BTreeMap<&'s str, Option<usize>>,
    all: Vec<One>,
}

struct One {
    hold: Hold,
    /// The index of its permits among all grants.
    index: usize,
    has_ended: bool,
}

impl<'s> NamedHolds<'s> {
    /// Holds permits until the end of their time, if they fit.
    pub(crate) fn hold(
        &mut self,
        (permits, ttl_ns): (u64, u64),
        name: Option<&'s str>,
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
        grants: &mut Vec<(u64, u64)>,
    ) -> Answer {
        let (answer, hold) = match limits.try_hold(now_ns, permits, ttl_ns) {
            Ok(HoldVerdict::Held(hold)) => (Answer::held(now_ns), Some(hold)),
            Ok(HoldVerdict::Denied(denial)) => (Answer::denied(denial), None),
            Err(_) => (Answer::only(Outcome::Never), None),
        };
        self.named.extend(name.map(|name| (name, hold.map(|_| self.all.len()))));
        if let Some(hold) = hold {
            self.all.push(One { hold, index: grants.len(), has_ended: false });
            grants.push((now_ns, hold.permits));
        }
        answer
    }

    /// Commits the hold of that name.
    pub(crate) fn commit(
        &mut self,
        (name, actual): (&str, u64),
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
        grants: &mut Vec<(u64, u64)>,
    ) -> Answer {
        let one = match self.take(name) {
            Ok(one) => one,
            Err(outcome) => return Answer::only(outcome),
        };
        let committed = limits.commit(now_ns, one.hold, actual);
        // All that was used in time counts from the start. What is charged counts from now on.
        let (used, charged) = match committed {
            Committed::InTime(Settled::Owed { permits, .. }) => (one.hold.permits, permits),
            Committed::InTime(_) => (actual.min(one.hold.permits), 0),
            Committed::Late(charged) => (0, charged.booked),
        };
        one.used(used, grants);
        grants.push((now_ns, charged));
        match committed {
            Committed::InTime(settled) => Answer::settled(Outcome::Committed, settled),
            Committed::Late(charged) => Answer::charged(Outcome::Late, &charged),
        }
    }

    /// Cancels the hold of that name. Returns its permits, if there is one.
    pub(crate) fn cancel(
        &mut self,
        name: &str,
        now_ns: u64,
        limits: &mut QueuedLimits<impl Subject>,
        grants: &mut [(u64, u64)],
    ) -> (Option<u64>, Outcome) {
        let one = match self.take(name) {
            Ok(one) => one,
            Err(outcome) => return (None, outcome),
        };
        one.used(0, grants);
        let outcome = match limits.commit(now_ns, one.hold, 0) {
            Committed::InTime(_) => Outcome::Cancelled,
            Committed::Late(_) => Outcome::TooLate,
        };
        (Some(one.hold.permits), outcome)
    }

    /// Takes out of all grants what the holds kept that ended by themselves by `end_ns`.
    pub(crate) fn end(&self, end_ns: u64, grants: &mut [(u64, u64)]) {
        let is_over = |one: &&One| !one.has_ended && one.hold.end_ns <= end_ns;
        self.all.iter().filter(is_over).for_each(|one| one.used(0, grants));
    }

    /// Returns the hold of that name, which ends now, or the reason why none does.
    fn take(&mut self, name: &str) -> Result<&One, Outcome> {
        let held = self.named.get(name).copied().flatten();
        let one = held.and_then(|at| self.all.get_mut(at)).ok_or(Outcome::Ungranted)?;
        if std::mem::replace(&mut one.has_ended, true) { Err(Outcome::TooLate) } else { Ok(one) }
    }
}

impl One {
    fn used(&self, used: u64, grants: &mut [(u64, u64)]) {
        if let Some((_, permits)) = grants.get_mut(self.index) {
            *permits = used;
        }
    }
}
