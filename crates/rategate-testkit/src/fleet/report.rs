//! The report of a run: the counts, the oracles' findings, and the bounds of the theory.

use super::limit::Limit;
use super::plan::{Fallback, Mode, Plan};
use super::tally::{Counts, Share, Tally};

/// The report of a plan that was played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The counts of what happened.
    pub counts: Counts,
    /// The permits that nodes used, at the instants of use.
    pub used: Seen,
    /// The permits used, at the instants of the store's decisions, if it decides about each call.
    pub decided: Option<Seen>,
    /// The grants over time, by slices of the requested length.
    pub over_time: Vec<u64>,
    /// The changes of shares, if slices were requested.
    pub shares: Vec<Share>,
    /// A fingerprint of all events, in order.
    pub trace: u64,
    /// The number of events.
    pub events: u64,
}

/// The most that an oracle saw, and the most that the theory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The most seen: for a log, permits in any window; for a window, permits in one of the grid;
    /// for a bucket, permits over the rate in windows of any length.
    pub max: u64,
    /// The instant, in true time, that goes with it.
    pub at_ns: u64,
    /// The bound, if there is one.
    pub at_most: Option<u64>,
}

impl Seen {
    /// Returns `true` if the bound holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.at_most.is_none_or(|at_most| self.max <= at_most)
    }
}

impl Report {
    pub(super) fn of(plan: &Plan, tally: Tally, events: u64) -> Self {
        let seen = |(max, at_ns), at_most| Seen { max, at_ns, at_most };
        let bounds = Bounds::of(plan, &tally);
        Self {
            counts: tally.counts,
            used: seen(tally.used.max(), bounds.used),
            trace: tally.trace(),
            decided: tally.decided.map(|decided| seen(decided.max(), bounds.decided)),
            over_time: tally.over_time.granted,
            shares: tally.shares,
            events,
        }
    }

    /// Returns `true` if both bounds hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.used.holds() && self.decided.is_none_or(|decided| decided.holds())
    }
}

/// The bounds of the theory.
struct Bounds {
    used: Option<u64>,
    decided: Option<u64>,
}

impl Bounds {
    fn of(plan: &Plan, tally: &Tally) -> Self {
        let total = plan.limit.total();
        // Permits beyond the store's own: those of nodes on their own, and those a replica lost.
        let fallback = match plan.fallback {
            Fallback::Deny | Fallback::Local { reserved: true, .. } => Some(0),
            Fallback::Local { total, .. } => Some(total),
            Fallback::Admit => None,
        };
        let is_safe = plan.quarantine || !plan.has_failover();
        let forgotten = if is_safe { 0 } else { tally.counts.forgotten };
        let with = |base: u64| Some(base.saturating_add(fallback?).saturating_add(forgotten));
        match plan.mode {
            // Windows are shorter here, since replies take their time; a bucket earns more in
            // that time.
            Mode::Exact => {
                let late_ns = super::tally::max_true_ns(plan.budget_ns, plan.drift_ppm);
                let earned = plan.limit_judged().earned_in(late_ns);
                let is_grid = matches!(plan.limit, Limit::Window { .. });
                // A reply may come in the next window of the grid.
                let used =
                    if is_grid { total.saturating_mul(2) } else { total.saturating_add(earned) };
                Self { used: with(used), decided: with(total) }
            }
            Mode::Leased { length_ns, max_units, guard } => {
                let max_units = max_units.max(plan.traffic.heaviest);
                let over = if guard {
                    0
                } else {
                    plan.limit.outstanding(plan.nodes, max_units, length_ns)
                };
                Self { used: with(total.saturating_add(over)), decided: None }
            }
            Mode::Shared { .. } => {
                // The shares of former members may overlap with those of the replica.
                let overlap = if is_safe { 0 } else { total };
                Self { used: with(total.saturating_add(overlap)), decided: None }
            }
            Mode::Static => Self { used: Some(total), decided: None },
            // At worst, each node uses all that was free.
            Mode::Gossip { .. } => {
                let nodes = u64::from(plan.nodes);
                Self { used: with(total.saturating_mul(nodes)), decided: None }
            }
            Mode::CheckThenAct => Self { used: None, decided: None },
        }
    }
}
