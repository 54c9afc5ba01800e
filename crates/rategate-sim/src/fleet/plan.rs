//! What is played: a limit, the nodes that keep it together, how they do so, and what happens to them.

use rategate_core::any_policy::AnyPolicy;

use super::faults::{Fault, What};
use super::limit::Limit;
use super::network::Network;
use super::traffic::{Shape, Traffic};

/// A fleet, and what it has to go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Everything that is left to chance follows from it.
    pub seed: u64,
    /// How many nodes.
    pub nodes: u32,
    /// The limit of all of them together.
    pub limit: Limit,
    /// How they keep it.
    pub mode: Mode,
    /// What a node does while the store is gone.
    pub fallback: Fallback,
    /// Whether a store that has taken another's place counts as gone until nothing matters any more that it may lack.
    pub quarantine: bool,
    /// How long a node waits for an answer, by its own clock.
    pub budget_ns: u64,
    /// By how much a node's timers are late at the most.
    pub late_ns: u64,
    /// The error of the nodes' clock rates: each is wrong by up to so many parts of a million, too fast or too
    /// slow.
    pub drift_ppm: u32,
    /// The calls.
    pub traffic: Traffic,
    /// The way to the store.
    pub network: Network,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// How long it all takes, in true time.
    pub lasting_ns: u64,
    /// What the nodes, or the store, do wrong. Tests show by it that the oracle sees such things.
    pub flaw: Option<Flaw>,
}

/// How nodes keep a limit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each call asks the store.
    Exact,
    /// Each node borrows permits, and hands them out by itself.
    Leased {
        /// For how long.
        length_ns: u64,
        /// How many at most.
        most_units: u64,
        /// Whether the store counts what it lent for so much longer.
        guard: bool,
    },
    /// Each node has a share of the limit as long as it shows signs of life.
    Shared {
        /// How often it does.
        beat_ns: u64,
    },
    /// Each node has the same share for ever. There is no store.
    Static,
    /// Each node counts by itself, hears now and then what all have used, and grants while that is below the limit.
    Gossip {
        /// How often.
        every_ns: u64,
    },
    /// Each call asks the store whether there is room, goes ahead, and tells it afterwards.
    CheckThenAct,
}

/// What a node does while the store is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Deny all.
    Deny,
    /// Admit all.
    Admit,
    /// Keep a limit by itself: its equal part of `total`.
    Local {
        /// What all nodes may use together without the store.
        total: u64,
        /// Whether the store hands out so much less, so that both together are the limit.
        reserved: bool,
    },
}

/// Something that is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nodes take their clocks to be true.
    IgnoresDrift,
    /// A lease counts from when its answer was heard, not from when it was asked for.
    CountsFromHearing,
    /// The store does not count for longer what it lent, though it should.
    DropsGuard,
    /// Whoever gains a share takes all of it to be unused.
    TakesAllAsFresh,
    /// A store that lacks a part is trusted at once.
    SkipsQuarantine,
    /// A node that comes back takes its own part to be unused.
    ForgetsAtRestart,
}

impl Plan {
    /// Ten seconds on a steady network with true clocks and nothing that goes wrong; twice as many calls as pass
    /// each second under a limit per second, spread evenly.
    #[must_use]
    pub fn new(nodes: u32, limit: Limit, mode: Mode) -> Self {
        let calls_per_s = limit.total().saturating_mul(2);
        Self {
            seed: 1,
            nodes,
            limit,
            mode,
            fallback: Fallback::Deny,
            quarantine: false,
            budget_ns: 20_000_000,
            late_ns: 0,
            drift_ppm: 0,
            traffic: Traffic { calls_per_s, from_ns: 0, heaviest: 1, shape: Shape::Even },
            network: Network::STEADY,
            faults: Vec::new(),
            lasting_ns: 10_000_000_000,
            flaw: None,
        }
    }

    /// Whether the plan is played with this flaw.
    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The error of their clocks that the nodes know of.
    pub(super) fn known_drift_ppm(&self) -> u32 {
        if self.has(Flaw::IgnoresDrift) { 0 } else { self.drift_ppm }
    }

    /// For how long a store has to be intact before it counts as there.
    pub(super) fn quarantine_ns(&self) -> u64 {
        if !self.quarantine || self.has(Flaw::SkipsQuarantine) {
            return 0;
        }
        let lent_for_ns = match self.mode {
            Mode::Leased { length_ns, .. } => length_ns,
            Mode::Shared { beat_ns } => beat_ns.saturating_mul(2),
            _ => 0,
        };
        self.limit.memory_ns().saturating_add(lent_for_ns)
    }

    /// The part of the fallback's total that a node has. The remainder goes to the first nodes, so that nothing is
    /// lost and nothing is handed out twice.
    pub(super) fn even_part(&self, total: u64, node: u32) -> u64 {
        let nodes = u64::from(self.nodes.max(1));
        let part = total.checked_div(nodes).unwrap_or(0);
        let left = total.checked_rem(nodes).unwrap_or(0);
        part.saturating_add(u64::from(u64::from(node) < left))
    }

    /// The limit that all grants together are compared with. Whoever goes on alone besides the store's full rate
    /// makes it a higher rate.
    pub(super) fn limit_judged(&self) -> Limit {
        match (self.limit, self.fallback) {
            (
                Limit::Bucket { burst, permits, period_ns },
                Fallback::Local { total, reserved: false },
            ) => Limit::Bucket {
                burst,
                permits: permits.saturating_mul(burst.saturating_add(total)),
                period_ns: period_ns.saturating_mul(burst),
            },
            (limit, _) => limit,
        }
    }

    /// What the store hands out.
    pub(super) fn limit_of_store(&self) -> Limit {
        let Fallback::Local { total: part, reserved: true } = self.fallback else {
            return self.limit;
        };
        match self.limit {
            Limit::Log { permits, period_ns } => {
                Limit::Log { permits: permits.saturating_sub(part), period_ns }
            }
            Limit::Window { permits, period_ns } => {
                Limit::Window { permits: permits.saturating_sub(part), period_ns }
            }
            // The same part of the rate: rate (burst - part) / burst.
            Limit::Bucket { burst, permits, period_ns } => {
                let burst_left = burst.saturating_sub(part);
                Limit::Bucket {
                    burst: burst_left,
                    permits: permits.saturating_mul(burst_left),
                    period_ns: period_ns.saturating_mul(burst),
                }
            }
        }
    }

    /// The limit that the store decides by. `None` if nothing can pass.
    pub(super) fn policy_of_store(&self) -> Option<AnyPolicy> {
        let limit = self.limit_of_store();
        match self.mode {
            Mode::Leased { length_ns, guard: true, .. } if !self.has(Flaw::DropsGuard) => {
                limit.guarded(length_ns)
            }
            _ => limit.policy(),
        }
    }

    /// The furthest that a replica is behind in it.
    pub(super) fn longest_loss_ns(&self) -> u64 {
        let losses = self.faults.iter().map(|fault| match fault.what {
            What::Failover { loses_ns } => loses_ns,
            _ => 0,
        });
        losses.max().unwrap_or(0)
    }

    /// What a letter takes at least when it is slow.
    pub(super) fn slowest_ns(&self) -> u64 {
        let ways = self.faults.iter().map(|fault| match fault.what {
            What::Slow { least_ns } => least_ns,
            _ => 0,
        });
        ways.fold(self.network.least_ns, u64::max)
    }

    /// The time within which all nodes begin.
    pub(super) fn starts_within_ns(&self) -> u64 {
        match self.mode {
            Mode::Shared { beat_ns } => beat_ns,
            Mode::Gossip { every_ns } => every_ns,
            _ => 1,
        }
    }

    /// Whether a replica takes the store's place somewhere in it.
    pub(super) fn has_failover(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.what, What::Failover { .. }))
    }
}
