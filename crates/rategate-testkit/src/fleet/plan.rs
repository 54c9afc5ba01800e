//! The plan of a run: a limit, its nodes, the mode in which they keep it, and the events they
//! face.

use rategate_core::any_policy::AnyPolicy;

use super::faults::{Fault, FaultKind};
use super::limit::Limit;
use super::network::Network;
use super::traffic::{Shape, Traffic};

/// A fleet, and the traffic and faults that it faces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed from which everything random follows.
    pub seed: u64,
    /// The number of nodes.
    pub nodes: u32,
    /// The limit of all nodes together.
    pub limit: Limit,
    /// The mode in which the nodes keep the limit.
    pub mode: Mode,
    /// The decision of a node while the store is unavailable.
    pub fallback: Fallback,
    /// `true` if a store that took over counts as unavailable until nothing that it may lack
    /// still matters.
    pub quarantine: bool,
    /// The time that a node waits for a reply, by its own clock.
    pub budget_ns: u64,
    /// The maximum lateness of a node's timers.
    pub late_ns: u64,
    /// The maximum rate error of the nodes' clocks, in parts per million, too fast or too slow.
    pub drift_ppm: u32,
    /// The calls.
    pub traffic: Traffic,
    /// The network to the store.
    pub network: Network,
    /// The faults.
    pub faults: Vec<Fault>,
    /// The length of the run, in true time.
    pub lasting_ns: u64,
    /// A deliberate error of the nodes or the store, by which tests show that the oracle finds
    /// it.
    pub flaw: Option<Flaw>,
}

/// The mode in which nodes keep a limit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A request to the store for each call.
    Exact,
    /// Leases: each node borrows permits, and grants them by itself.
    Leased {
        /// The length of a lease.
        length_ns: u64,
        /// The maximum number of permits in a lease.
        max_units: u64,
        /// `true` if the store counts the permits that it lent for one lease length longer.
        guard: bool,
    },
    /// Partitions: each node has a share of the limit for as long as it sends heartbeats.
    Shared {
        /// The time between heartbeats.
        heartbeat_ns: u64,
    },
    /// Fixed partitions: each node has an equal share for ever, without a store.
    Static,
    /// Gossip: each node counts by itself, learns at intervals what all nodes have used, and
    /// grants while that is below the limit.
    Gossip {
        /// The time between exchanges.
        every_ns: u64,
    },
    /// A check for free permits at the store, and a report to it after the grant.
    CheckThenAct,
}

/// The decision of a node while the store is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Deny all calls.
    Deny,
    /// Admit all calls.
    Admit,
    /// Keep an equal share of `total` locally.
    Local {
        /// The permits that all nodes may use together without the store.
        total: u64,
        /// `true` if the store's limit is lower by that total, so that both together are the
        /// limit.
        reserved: bool,
    },
}

/// A deliberate error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nodes that take their clocks to be exact.
    IgnoresDrift,
    /// A lease that counts from its reply instead of from its request.
    CountsFromReply,
    /// A store that does not extend the count of permits lent, though it should.
    DropsGuard,
    /// Nodes that take all of a gained share to be unused.
    TakesAllAsFresh,
    /// A replica that is trusted at once, although it lacks recent state.
    SkipsQuarantine,
    /// A restarted node that takes its own share to be unused.
    ForgetsAtRestart,
}

impl Plan {
    /// Returns a plan of ten seconds on a steady network, with exact clocks and no faults. Each
    /// second, twice as many calls come as pass under a limit per second, spread evenly.
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

    /// Returns `true` if the plan has this flaw.
    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// Returns the clock error that the nodes know of.
    pub(super) fn known_drift_ppm(&self) -> u32 {
        if self.has(Flaw::IgnoresDrift) { 0 } else { self.drift_ppm }
    }

    /// Returns the time for which a store has to be intact before it counts as available.
    pub(super) fn quarantine_ns(&self) -> u64 {
        if !self.quarantine || self.has(Flaw::SkipsQuarantine) {
            return 0;
        }
        let lent_for_ns = match self.mode {
            Mode::Leased { length_ns, .. } => length_ns,
            Mode::Shared { heartbeat_ns } => heartbeat_ns.saturating_mul(2),
            _ => 0,
        };
        self.limit.memory_ns().saturating_add(lent_for_ns)
    }

    /// Returns a node's share of the fallback's total. The remainder goes to the first nodes, so
    /// that no permit is lost and none is granted twice.
    pub(super) fn even_share(&self, total: u64, node: u32) -> u64 {
        let nodes = u64::from(self.nodes.max(1));
        let share = total.checked_div(nodes).unwrap_or(0);
        let left = total.checked_rem(nodes).unwrap_or(0);
        share.saturating_add(u64::from(u64::from(node) < left))
    }

    /// Returns the limit that all grants together are compared with. Nodes that go on alone,
    /// besides the store's full rate, raise the rate.
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

    /// Returns the limit that the store keeps.
    pub(super) fn limit_of_store(&self) -> Limit {
        let Fallback::Local { total: share, reserved: true } = self.fallback else {
            return self.limit;
        };
        match self.limit {
            Limit::Log { permits, period_ns } => {
                Limit::Log { permits: permits.saturating_sub(share), period_ns }
            }
            Limit::Window { permits, period_ns } => {
                Limit::Window { permits: permits.saturating_sub(share), period_ns }
            }
            // The rate shrinks in proportion: rate (burst - part) / burst.
            Limit::Bucket { burst, permits, period_ns } => {
                let burst_left = burst.saturating_sub(share);
                Limit::Bucket {
                    burst: burst_left,
                    permits: permits.saturating_mul(burst_left),
                    period_ns: period_ns.saturating_mul(burst),
                }
            }
        }
    }

    /// Returns the policy by which the store decides, or `None` if nothing can pass.
    pub(super) fn policy_of_store(&self) -> Option<AnyPolicy> {
        let limit = self.limit_of_store();
        match self.mode {
            Mode::Leased { length_ns, guard: true, .. } if !self.has(Flaw::DropsGuard) => {
                limit.guarded(length_ns)
            }
            _ => limit.policy(),
        }
    }

    /// Returns the maximum lag of a replica in this plan.
    pub(super) fn max_loss_ns(&self) -> u64 {
        let losses = self.faults.iter().map(|fault| match fault.kind {
            FaultKind::Failover { loses_ns } => loses_ns,
            _ => 0,
        });
        losses.max().unwrap_or(0)
    }

    /// Returns the minimum delay of a message in the slowest phase of this plan.
    pub(super) fn slowest_ns(&self) -> u64 {
        let delays = self.faults.iter().map(|fault| match fault.kind {
            FaultKind::Slow { min_ns } => min_ns,
            _ => 0,
        });
        delays.fold(self.network.min_ns, u64::max)
    }

    /// Returns the time within which all nodes begin.
    pub(super) fn starts_within_ns(&self) -> u64 {
        match self.mode {
            Mode::Shared { heartbeat_ns } => heartbeat_ns,
            Mode::Gossip { every_ns } => every_ns,
            _ => 1,
        }
    }

    /// Returns `true` if a replica takes over at some instant of this plan.
    pub(super) fn has_failover(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Failover { .. }))
    }
}
