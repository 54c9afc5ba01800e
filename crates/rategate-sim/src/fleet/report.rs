//! What came of it: the counts, what the oracles saw, and what the theory allows.

use super::limit::Limit;
use super::plan::{Fallback, Mode, Plan};
use super::tally::{Counts, Share, Tally};

/// What came of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How often what happened.
    pub counts: Counts,
    /// What nodes used, at the instants at which they did.
    pub used: Seen,
    /// The same at the instants of the store's decisions, where it decides about each call.
    pub decided: Option<Seen>,
    /// Grants over time, by slices of the length asked for.
    pub over_time: Vec<u64>,
    /// What shares became, if slices were asked for.
    pub shares: Vec<Share>,
    /// A fingerprint of all that happened, in order.
    pub trace: u64,
    /// How many events that were.
    pub events: u64,
}

/// The most that an oracle saw, and the most that the theory allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Of a log, permits in any window; of a window, permits in one of the grid; of a bucket, permits over the rate in
    /// windows of any length.
    pub most: u64,
    /// The instant, in true time, that goes with it.
    pub at_ns: u64,
    /// The bound. `None` where there is none.
    pub at_most: Option<u64>,
}

impl Seen {
    /// Whether the bound holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.at_most.is_none_or(|at_most| self.most <= at_most)
    }
}

impl Report {
    pub(super) fn of(plan: &Plan, tally: Tally, events: u64) -> Self {
        let seen = |(most, at_ns), at_most| Seen { most, at_ns, at_most };
        let bounds = Bounds::of(plan, &tally);
        Self {
            counts: tally.counts,
            used: seen(tally.used.most(), bounds.used),
            trace: tally.trace(),
            decided: tally.decided.map(|decided| seen(decided.most(), bounds.decided)),
            over_time: tally.over_time.granted,
            shares: tally.shares,
            events,
        }
    }

    /// Whether both bounds hold.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.used.holds() && self.decided.is_none_or(|decided| decided.holds())
    }
}

/// What the theory allows.
struct Bounds {
    used: Option<u64>,
    decided: Option<u64>,
}

impl Bounds {
    fn of(plan: &Plan, tally: &Tally) -> Self {
        let total = plan.limit.total();
        // What comes besides the store's own: alone, and what a replica forgot.
        let alone = match plan.fallback {
            Fallback::Deny | Fallback::Local { reserved: true, .. } => Some(0),
            Fallback::Local { total, .. } => Some(total),
            Fallback::Admit => None,
        };
        let is_safe = plan.quarantine || !plan.has_failover();
        let forgotten = if is_safe { 0 } else { tally.counts.forgotten };
        let with = |base: u64| Some(base.saturating_add(alone?).saturating_add(forgotten));
        match plan.mode {
            // In shorter windows, for replies take their time; a bucket earns more in it.
            Mode::Exact => {
                let late_ns = super::tally::longest_true_ns(plan.budget_ns, plan.drift_ppm);
                let earned = plan.limit_judged().earned_in(late_ns);
                let is_grid = matches!(plan.limit, Limit::Window { .. });
                // A reply may come in the next window of the grid.
                let used =
                    if is_grid { total.saturating_mul(2) } else { total.saturating_add(earned) };
                Self { used: with(used), decided: with(total) }
            }
            Mode::Leased { length_ns, most_units, guard } => {
                let most_units = most_units.max(plan.traffic.heaviest);
                let over = if guard {
                    0
                } else {
                    plan.limit.outstanding(plan.nodes, most_units, length_ns)
                };
                Self { used: with(total.saturating_add(over)), decided: None }
            }
            Mode::Shared { .. } => {
                // Old members' shares and the replica's may overlap.
                let overlap = if is_safe { 0 } else { total };
                Self { used: with(total.saturating_add(overlap)), decided: None }
            }
            Mode::Static => Self { used: Some(total), decided: None },
            // Each node at worst the whole of what was free.
            Mode::Gossip { .. } => {
                let nodes = u64::from(plan.nodes);
                Self { used: with(total.saturating_mul(nodes)), decided: None }
            }
            Mode::CheckThenAct => Self { used: None, decided: None },
        }
    }
}
