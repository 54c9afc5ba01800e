//! The limit of one counter, and what is in flight under it.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;

use rategate::adaptive::{Outcome, Reason};
use rategate::{AdaptiveConcurrency, Share};
use rategate_core::policy::{Ended, Policy, Taken};
use rategate_core::portable::{RestoreContext, RestoreTarget, numbers_of, save_state};

use super::{AdaptiveStatus, Holder};

/// A counter under an adaptive limit.
#[derive(Debug)]
pub(super) struct Tracked {
    policy: AdaptiveConcurrency,
    state: <AdaptiveConcurrency as Policy>::State,
    held: HashMap<Holder, Held>,
    by_end: BTreeSet<(u64, Holder)>,
    /// The number of changes that are tallied, and the instant of the last.
    changes: u32,
    changed_ns: u64,
}

/// Permits in flight.
#[derive(Clone, Copy, Debug)]
struct Held {
    start_ns: u64,
    until_ns: u64,
    permits: u64,
    /// The number in flight at the start, these included.
    in_flight: u32,
    /// `true` if these took all that their share of the limit had left.
    fills_share: bool,
    /// The outcome that the holder has stated.
    outcome: Option<Outcome>,
    /// `false` if its start is unknown, so that it is no sample.
    is_measured: bool,
}

/// The way in which a holder ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By its caller.
    Ended,
    /// By its time, which was over at this instant.
    Expired(u64),
}

/// A holder that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedHolder {
    pub(super) until_ns: u64,
    pub(super) outcome: Outcome,
    pub(super) latency_ns: u64,
    /// The reason of a change of the limit, if there was one.
    pub(super) reason: Option<Reason>,
}

impl Tracked {
    pub(super) fn new(policy: AdaptiveConcurrency, now_ns: u64) -> Self {
        Self {
            policy,
            state: policy.fresh(now_ns),
            held: HashMap::new(),
            by_end: BTreeSet::new(),
            changes: 0,
            changed_ns: now_ns,
        }
    }

    /// Returns a limit that continues with what was found. `None` if the words are no state.
    pub(super) fn restored(
        policy: AdaptiveConcurrency,
        words: &[u64],
        since: RestoreContext,
    ) -> Option<Self> {
        let target = RestoreTarget::new(policy, &numbers_of(&policy)).ok()?;
        let state = target.state(words, since).ok()?;
        Some(Self { state, ..Self::new(policy, since.now_ns) })
    }

    /// Returns the state as words, unless its limit is the first one.
    pub(super) fn found(&self, policy: AdaptiveConcurrency, now_ns: u64) -> Option<Vec<u64>> {
        // In a probe the limit says nothing of what was found.
        let (_, last) = self.state.changes();
        let is_probing = last.is_some_and(|it| it.reason == Reason::Probe && it.to < it.from);
        if !is_probing && self.limit(now_ns) == u64::from(policy.adaptation().bounds().first()) {
            return None;
        }
        let mut words = Vec::new();
        save_state(&self.policy, &self.state, now_ns, &mut words);
        Some(words)
    }

    /// Puts other numbers into force. Returns the reason of a change of the limit.
    pub(super) fn follow(&mut self, policy: AdaptiveConcurrency, now_ns: u64) -> Option<Reason> {
        if self.policy == policy {
            return None;
        }
        policy.rebase(&mut self.state, &self.policy, now_ns);
        self.policy = policy;
        self.changed(now_ns)
    }

    pub(super) fn status(&self, now_ns: u64) -> AdaptiveStatus {
        let (_, last) = self.state.changes();
        AdaptiveStatus {
            adaptation: self.policy.adaptation(),
            limit: self.limit(now_ns),
            in_flight: self.policy.in_flight(&self.state),
            base_ns: self.state.base_ns(),
            last: last.map(|change| (change, now_ns.saturating_sub(self.changed_ns))),
        }
    }

    fn limit(&self, now_ns: u64) -> u64 {
        self.policy.max_in_flight(&self.state, now_ns).unwrap_or(0)
    }

    /// Returns the number of permits that fit into a share of the limit.
    pub(super) fn room(&self, now_ns: u64, share: Share) -> u64 {
        share.of(self.limit(now_ns)).saturating_sub(self.policy.in_flight(&self.state))
    }

    /// Returns the wait until so many permits fit, if no holder is renewed and the limit stays.
    /// `None` if they fit now or never will.
    pub(super) fn wait_ns(&self, now_ns: u64, permits: u64, share: Share) -> Option<NonZeroU64> {
        let in_flight = self.policy.in_flight(&self.state).saturating_add(permits);
        let mut excess = in_flight.saturating_sub(share.of(self.limit(now_ns)));
        if excess == 0 {
            return None;
        }
        for (until_ns, holder) in &self.by_end {
            let permits = self.held.get(holder).map_or(0, |held| held.permits);
            excess = excess.saturating_sub(permits);
            if excess == 0 {
                return NonZeroU64::new(until_ns.saturating_sub(now_ns));
            }
        }
        None
    }

    /// Starts a holder. Returns the reason of a change of the limit.
    pub(super) fn begin(
        &mut self,
        holder: Holder,
        (permits, until_ns): (NonZeroU64, u64),
        fills_share: bool,
        now_ns: u64,
    ) -> Option<Reason> {
        self.policy.take(&mut self.state, Taken { from_ns: now_ns, start_ns: now_ns, permits });
        let in_flight = self.policy.in_flight(&self.state);
        let held = Held {
            start_ns: now_ns,
            until_ns,
            permits: permits.get(),
            in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
            fills_share,
            outcome: None,
            is_measured: true,
        };
        self.held.insert(holder, held);
        self.by_end.insert((until_ns, holder));
        self.changed(now_ns)
    }

    /// Makes a holder one of which the start is unknown.
    pub(super) fn leave_unmeasured(&mut self, holder: Holder) {
        if let Some(held) = self.held.get_mut(&holder) {
            held.is_measured = false;
        }
    }

    /// States the outcome of a holder.
    pub(super) fn expect(&mut self, holder: Holder, outcome: Outcome) {
        if let Some(held) = self.held.get_mut(&holder) {
            held.outcome = Some(outcome);
        }
    }

    /// Extends the time of a holder, and returns the end that it had.
    pub(super) fn renew(&mut self, holder: Holder, until_ns: u64) -> Option<u64> {
        let held = self.held.get_mut(&holder)?;
        let before_ns = std::mem::replace(&mut held.until_ns, until_ns);
        self.by_end.remove(&(before_ns, holder));
        self.by_end.insert((until_ns, holder));
        Some(before_ns)
    }

    /// Ends a holder, if it is known.
    pub(super) fn end(
        &mut self,
        holder: Holder,
        ending: Ending,
        now_ns: u64,
    ) -> Option<EndedHolder> {
        let held = self.held.remove(&holder)?;
        self.by_end.remove(&(held.until_ns, holder));
        let (by_default, end_ns) = match ending {
            Ending::Ended => (Outcome::Ignored, now_ns),
            Ending::Expired(at_ns) => (Outcome::Dropped, at_ns),
        };
        let outcome = held.outcome.unwrap_or(by_default);
        let outcome = if held.is_measured { outcome } else { Outcome::Ignored };
        let Held { start_ns, permits, in_flight, fills_share, .. } = held;
        let ended = Ended { start_ns, now_ns: end_ns, permits, in_flight, fills_share, outcome };
        self.policy.release_with_outcome(&mut self.state, ended);
        let (until_ns, latency_ns) = (held.until_ns, end_ns.saturating_sub(start_ns));
        Some(EndedHolder { until_ns, outcome, latency_ns, reason: self.changed(end_ns) })
    }

    /// Returns the ends of all holders.
    pub(super) fn ends(&self) -> impl Iterator<Item = (u64, Holder)> {
        self.by_end.iter().copied()
    }

    /// Returns `true` if nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns `true` if it is as one that was never used.
    pub(super) fn is_fresh(&self, now_ns: u64) -> bool {
        self.policy.fresh_at_ns(&self.state).is_some_and(|at_ns| at_ns <= now_ns)
    }

    /// Returns the reason of a change that is not tallied yet.
    fn changed(&mut self, now_ns: u64) -> Option<Reason> {
        let (changes, last) = self.state.changes();
        if changes == std::mem::replace(&mut self.changes, changes) {
            return None;
        }
        self.changed_ns = now_ns;
        last.map(|change| change.reason)
    }
}
