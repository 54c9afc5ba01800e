//! The counts and fingerprints taken while a fleet is played.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::oracle::Oracle;
use super::plan::{Mode, Plan};

/// The counts, the oracles, and a fingerprint of all events.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) counts: Counts,
    /// The grants of nodes, at the instants of use.
    pub(super) used: Oracle,
    /// The grants by the instants of the store's decisions, if it decides about each call.
    pub(super) decided: Option<Decided>,
    /// The grants over time, if requested.
    pub(super) over_time: OverTime,
    /// The changes of shares, if grants over time are requested.
    pub(super) shares: Vec<Share>,
    trace: u64,
}

/// The counts of what happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The calls to nodes that were up.
    pub calls: u64,
    /// The calls to nodes that were down.
    pub unserved: u64,
    /// The calls that were granted.
    pub granted: u64,
    /// The calls granted without the store because it was unavailable; part of `granted`.
    pub granted_by_fallback: u64,
    /// The calls that were denied.
    pub denied: u64,
    /// The calls denied because the store was unavailable; part of `denied`.
    pub denied_by_fallback: u64,
    /// The calls that had to wait for a reply of the store.
    pub waited: u64,
    /// The sum of their waits.
    pub waited_ns: u64,
    /// The requests to the store, each a round trip.
    pub requests: u64,
    /// The requests without a reply in time.
    pub lost: u64,
    /// The permits that calls received.
    pub permits: u64,
    /// The permits that the store handed out.
    pub lent: u64,
    /// The permits that were returned unused.
    pub returned: u64,
    /// The permits that the store handed out without its replica's knowledge.
    pub forgotten: u64,
}

/// A change of a node's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The instant of the change, in true time.
    pub at_ns: u64,
    /// The node.
    pub node: u32,
    /// The share from that instant on.
    pub permits: u64,
}

/// The party that decided: the store, or the node alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Store,
    Fallback,
}

/// The permits used, put in the order of the store's decisions.
#[derive(Debug)]
pub(super) struct Decided {
    oracle: Oracle,
    /// The instants and permits that an earlier decision may still precede.
    latest: BinaryHeap<Reverse<(u64, u64)>>,
    /// The maximum age of a decision whose permits are yet to be used.
    late_ns: u64,
}

/// Sums by slices of time.
#[derive(Clone, Debug, Default)]
pub(super) struct OverTime {
    slice_ns: u64,
    pub(super) granted: Vec<u64>,
}

impl Tally {
    pub(super) fn new(plan: &Plan, slice_ns: u64) -> Self {
        // A node receives a grant within its budget, so effects are at most that far from the
        // decision.
        let late_ns = max_true_ns(plan.budget_ns, plan.drift_ppm);
        let is_exact = plan.mode == Mode::Exact;
        let oracle = plan.limit_judged().oracle(0);
        let decided = is_exact.then(|| Decided { oracle, latest: BinaryHeap::new(), late_ns });
        Self {
            counts: Counts::default(),
            used: plan.limit_judged().oracle(if is_exact { late_ns } else { 0 }),
            decided,
            over_time: OverTime { slice_ns, granted: Vec::new() },
            shares: Vec::new(),
            trace: 0xCBF2_9CE4_8422_2325,
        }
    }

    /// Records a grant that the store decided at `decided_ns`, or the node just now.
    pub(super) fn grant(&mut self, at_ns: u64, decided_ns: u64, permits: u64, by: By) {
        self.counts.granted = self.counts.granted.saturating_add(1);
        self.counts.permits = self.counts.permits.saturating_add(permits);
        if by == By::Fallback {
            self.counts.granted_by_fallback = self.counts.granted_by_fallback.saturating_add(1);
        }
        if let Some(decided) = &mut self.decided {
            decided.push(at_ns, decided_ns, permits);
        }
        self.used.push(at_ns, permits);
        self.over_time.push(at_ns, permits);
        self.note(at_ns, 1, permits);
    }

    /// Records a denial.
    pub(super) fn deny(&mut self, at_ns: u64, by: By) {
        self.counts.denied = self.counts.denied.saturating_add(1);
        if by == By::Fallback {
            self.counts.denied_by_fallback = self.counts.denied_by_fallback.saturating_add(1);
        }
        self.note(at_ns, 2, 0);
    }

    /// Records permits that the store handed out.
    pub(super) fn lend(&mut self, at_ns: u64, permits: u64) {
        self.counts.lent = self.counts.lent.saturating_add(permits);
        self.note(at_ns, 3, permits);
    }

    /// Records a change of a node's share.
    pub(super) fn share(&mut self, at_ns: u64, node: u32, permits: u64) {
        self.note(at_ns, 6, permits);
        if self.over_time.slice_ns > 0 {
            self.shares.push(Share { at_ns, node, permits });
        }
    }

    /// Records the wait of a call that came at `from_ns` and was decided at `to_ns`.
    pub(super) fn wait(&mut self, from_ns: u64, to_ns: u64) {
        let waited_ns = to_ns.saturating_sub(from_ns);
        self.counts.waited = self.counts.waited.saturating_add(u64::from(waited_ns > 0));
        self.counts.waited_ns = self.counts.waited_ns.saturating_add(waited_ns);
    }

    /// Adds an event to the fingerprint.
    pub(super) fn note(&mut self, at_ns: u64, what: u64, number: u64) {
        for word in [at_ns, what, number] {
            // FNV-1a, a word at a time.
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
        }
    }

    pub(super) const fn trace(&self) -> u64 {
        self.trace
    }
}

impl Decided {
    fn push(&mut self, now_ns: u64, decided_ns: u64, permits: u64) {
        self.latest.push(Reverse((decided_ns, permits)));
        self.settle(now_ns.saturating_sub(self.late_ns));
    }

    /// Passes the decisions before that instant on to the oracle.
    fn settle(&mut self, before_ns: u64) {
        while let Some(&Reverse((decided_ns, permits))) = self.latest.peek() {
            if decided_ns >= before_ns {
                return;
            }
            self.oracle.push(decided_ns, permits);
            self.latest.pop();
        }
    }

    /// Returns the most of all decisions; none may follow.
    pub(super) fn max(mut self) -> (u64, u64) {
        self.settle(u64::MAX);
        self.oracle.max()
    }
}

impl OverTime {
    fn push(&mut self, at_ns: u64, permits: u64) {
        let Some(slice) = at_ns.checked_div(self.slice_ns) else { return };
        let Ok(slice) = usize::try_from(slice) else { return };
        if self.granted.len() <= slice {
            self.granted.resize(slice.saturating_add(1), 0);
        }
        if let Some(sum) = self.granted.get_mut(slice) {
            *sum = sum.saturating_add(permits);
        }
    }
}

/// Returns the longest true time that a clock wrong by up to `drift_ppm` shows as `by_clock_ns`.
pub(super) fn max_true_ns(by_clock_ns: u64, drift_ppm: u32) -> u64 {
    let pace = 1_000_000_u64.saturating_sub(drift_ppm.into()).max(1);
    let product = u128::from(by_clock_ns).saturating_mul(1_000_000);
    u64::try_from(product.div_ceil(pace.into())).unwrap_or(u64::MAX).saturating_add(1)
}
