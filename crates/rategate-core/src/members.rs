//! The limits that a call has to pass together, each with its state, and the instant at which all
//! of them let it start.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use crate::all_of::AllOf;
use crate::any_policy::{AnyPolicy, Member};
use crate::policy::{Correction, Held, Taken};
use crate::verdict::{Opening, Refusal};

/// One limit or several, each with its state. Without any, everything passes.
#[derive(Clone, Debug)]
pub struct Members(Kept);

/// One limit is kept without a list.
#[derive(Clone, Debug)]
enum Kept {
    One(Member),
    Several(Vec<Member>),
}

impl From<Member> for Members {
    fn from(member: Member) -> Self {
        Self(Kept::One(member))
    }
}

impl FromIterator<Member> for Members {
    fn from_iter<I: IntoIterator<Item = Member>>(members: I) -> Self {
        let mut several: Vec<Member> = members.into_iter().collect();
        match (several.pop(), several.is_empty()) {
            (Some(only), true) => only.into(),
            (last, _) => {
                several.extend(last);
                Self(Kept::Several(several))
            }
        }
    }
}

impl Members {
    /// Returns limits that are fresh at `now_ns`.
    #[must_use]
    pub fn fresh(limits: &AllOf, now_ns: u64) -> Self {
        limits.policies().iter().map(|&policy| Member::fresh(policy, now_ns)).collect()
    }

    /// Returns the limits, in order.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[Member] {
        match &self.0 {
            Kept::One(member) => core::slice::from_ref(member),
            Kept::Several(members) => members,
        }
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [Member] {
        match &mut self.0 {
            Kept::One(member) => core::slice::from_mut(member),
            Kept::Several(members) => members,
        }
    }

    /// Returns the limit, if there is one and no other.
    #[must_use]
    pub const fn only(&self) -> Option<&Member> {
        match &self.0 {
            Kept::One(member) => Some(member),
            Kept::Several(_) => None,
        }
    }

    /// Returns the limit, if there is one and no other.
    #[must_use]
    pub fn into_only(self) -> Option<Member> {
        match self.0 {
            Kept::One(member) => Some(member),
            Kept::Several(_) => None,
        }
    }

    /// Returns the policies in force, in order.
    #[must_use]
    pub fn policies(&self) -> impl ExactSizeIterator<Item = AnyPolicy> + Clone {
        self.as_slice().iter().map(Member::policy)
    }

    /// Returns the maximum number of permits that unused limits of these numbers grant at one
    /// instant.
    #[must_use]
    pub fn max_at_once(&self) -> u64 {
        self.policies().map(|policy| policy.max_at_once()).min().unwrap_or(u64::MAX)
    }

    #[inline]
    fn each(&self) -> core::slice::Iter<'_, Member> {
        self.as_slice().iter()
    }

    /// Returns all limits, or the one at this index.
    pub(crate) fn among(&self, only: Option<usize>) -> &[Member] {
        match only {
            None => self.as_slice(),
            Some(at) => self.as_slice().get(at..=at).unwrap_or_default(),
        }
    }

    /// Returns when `permits` could start in all of these, or in one of them, from `from_ns` on.
    /// Those that are held for waiters start before them.
    pub(crate) fn opening(
        &self,
        only: Option<usize>,
        from_ns: u64,
        held: Option<Held>,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        opening(self.among(only), from_ns, |member, from_ns| match held {
            None => member.opening(from_ns, permits),
            Some(held) => member.opening_behind(from_ns, held, permits),
        })
    }

    /// Records a grant by all of these, or by one of them.
    pub(crate) fn take(&mut self, only: Option<usize>, taken: Taken) {
        for (at, member) in self.as_mut_slice().iter_mut().enumerate() {
            if only.is_none_or(|only| only == at) {
                member.take(taken);
            }
        }
    }

    /// Returns until when none of these could be at rest without a grant that comes next. An
    /// earlier instant is always true as well.
    pub(crate) fn busy_until_ns(&self, taken: Taken) -> u64 {
        self.each().map(|member| member.busy_until_ns(taken)).min().unwrap_or(u64::MAX)
    }

    pub(crate) fn remaining(&self, now_ns: u64) -> u64 {
        self.each().map(|member| member.remaining(now_ns)).min().unwrap_or(u64::MAX)
    }

    pub(crate) fn fresh_at_ns(&self) -> Option<u64> {
        self.each().try_fold(0, |last_ns: u64, member| Some(last_ns.max(member.fresh_at_ns()?)))
    }

    /// Returns the last instant at which one of these recovers, as far as time restores it.
    #[must_use]
    pub fn recovers_by_ns(&self) -> u64 {
        self.each().filter_map(Member::fresh_at_ns).max().unwrap_or(0)
    }

    pub(crate) fn is_as_fresh(&self, now_ns: u64) -> bool {
        self.each().all(|member| member.is_as_fresh(now_ns))
    }

    /// Returns the bytes that the states take on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let list = match &self.0 {
            Kept::One(_) => 0,
            Kept::Several(members) => members.capacity().saturating_mul(size_of::<Member>()),
        };
        self.each().fold(list, |sum, member| sum.saturating_add(member.heap_bytes()))
    }

    pub(crate) fn slack_ns(&self) -> u64 {
        self.policies().map(|policy| policy.slack_ns()).min().unwrap_or(0)
    }

    /// Returns `true` if all keep a schedule: one limit that bounds starts is enough for starts to
    /// count when they happen.
    pub(crate) fn keeps_schedule(&self) -> bool {
        self.policies().all(|policy| policy.keeps_schedule())
    }

    pub(crate) fn most_late_ns(&self) -> Option<u64> {
        self.policies().filter_map(|policy| policy.most_late_ns()).min()
    }

    pub(crate) fn counts_in_flight(&self) -> bool {
        self.policies().any(|policy| policy.counts_in_flight())
    }

    pub(crate) fn follows_outcomes(&self) -> bool {
        self.policies().any(|policy| policy.follows_outcomes())
    }

    pub(crate) fn are_buckets(&self) -> bool {
        self.policies().all(|policy| policy.is_bucket())
    }

    /// Tells limits that follow measurements that a share of them was reached.
    pub(crate) fn fill_share(&mut self, now_ns: u64) {
        for member in self.as_mut_slice() {
            if let Member::AdaptiveConcurrency(_, state) = member {
                state.fill_share(now_ns);
            }
        }
    }

    /// Corrects each limit that knows such a correction. Returns `true` if any does.
    pub(crate) fn correct(&mut self, correction: Correction) -> bool {
        let members = self.as_mut_slice().iter_mut();
        members.fold(false, |any, member| member.correct(correction).is_some() | any)
    }
}

/// Returns when all of `limits` let a call start from `from_ns` on, where `opening` tells it of one
/// of them.
#[inline]
fn opening(
    limits: &[Member],
    from_ns: u64,
    opening: impl Fn(&Member, u64) -> Result<Opening, Refusal>,
) -> Result<Opening, Refusal> {
    if let [only] = limits {
        return opening(only, from_ns);
    }
    let starts = agree(limits, from_ns, &opening, |opening| opening.start_ns)?;
    let scheduled_ns = starts.scheduled_ns;
    let opens_ns = if starts.opens_alike {
        starts.at_ns
    } else {
        agree(limits, from_ns, &opening, |opening| opening.opens_ns)?.at_ns
    };
    Ok(Opening { start_ns: starts.at_ns, opens_ns, scheduled_ns })
}

/// An instant that all limits accept.
struct Agreed {
    at_ns: u64,
    scheduled_ns: Option<u64>,
    /// Set if every limit opens for a try no sooner than for a reservation.
    opens_alike: bool,
}

/// Returns the first instant from `from_ns` on that `instant_of` gives for every limit alike, or
/// the worst refusal.
fn agree(
    limits: &[Member],
    from_ns: u64,
    opening: impl Fn(&Member, u64) -> Result<Opening, Refusal>,
    instant_of: impl Fn(&Opening) -> u64,
) -> Result<Agreed, Refusal> {
    let mut agreed = Agreed { at_ns: from_ns, scheduled_ns: None, opens_alike: true };
    loop {
        let mut latest_ns = agreed.at_ns;
        let mut worst: Option<Refusal> = None;
        for limit in limits {
            match opening(limit, agreed.at_ns) {
                Ok(opening) => {
                    latest_ns = latest_ns.max(instant_of(&opening));
                    agreed.scheduled_ns = agreed.scheduled_ns.max(opening.scheduled_ns);
                    agreed.opens_alike &= opening.opens_ns == opening.start_ns;
                }
                Err(refusal) => {
                    let refusal = refusal.seen_from(agreed.at_ns.saturating_sub(from_ns));
                    if worst.is_none_or(|worst| severity(refusal) > severity(worst)) {
                        worst = Some(refusal);
                    }
                }
            }
        }
        match worst {
            Some(refusal) => return Err(refusal),
            None if latest_ns == agreed.at_ns => return Ok(agreed),
            None => agreed.at_ns = latest_ns,
        }
    }
}

/// Orders refusals by severity: never possible, then time cannot help, then held, then the longest
/// wait.
const fn severity(refusal: Refusal) -> (u8, u64) {
    match refusal {
        Refusal::Exceeds(_) => (3, 0),
        Refusal::TimeCannotHelp => (2, 0),
        Refusal::Held => (1, 0),
        Refusal::BeyondClock { wait_ns } => (0, wait_ns),
    }
}
