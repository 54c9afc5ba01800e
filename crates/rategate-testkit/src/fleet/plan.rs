//! The plan of a run: a limit, its nodes, the calls that come to them, and the faults that they
//! face.

use std::ops::Range;
use std::time::Duration;

use rategate::SlidingLog;
use rategate::distributed::{Leases, OnUnavailable};
use rategate::store::Rule;
use rategate_core::node::Lent as _;
use rategate_core::random::Random;

use super::network::{Network, below};

const MS: u64 = 1_000_000;

/// A fleet, its callers, and the faults that they face. Instants are since the begin of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed from which everything random follows.
    pub seed: u64,
    /// The number of nodes.
    pub nodes: u32,
    /// The limit of all nodes together: a log, a fixed window or a bucket.
    pub limit: Rule,
    /// The borrowing of nodes, if they borrow permits.
    pub leases: Option<Leases>,
    /// The decision of a node while the store is unavailable.
    pub on_unavailable: OnUnavailable,
    /// `true` if a store that took over counts as unavailable until nothing that it may lack
    /// still matters.
    pub quarantine: bool,
    /// The time that a node waits for a reply, by its own clock.
    pub budget_ns: u64,
    /// The maximum lateness of a node's timers.
    pub late_ns: u64,
    /// The maximum rate error of the nodes' clocks, in parts per million, too fast or too slow.
    pub drift_ppm: u32,
    /// The network to the store.
    pub network: Network,
    /// The number of reservations and commits that arrive twice, in a million.
    pub doubled_ppm: u32,
    /// The calls without a reservation.
    pub calls: Vec<Call>,
    /// The faults at known instants.
    pub faults: Vec<Fault>,
    /// The number of callers that reserve.
    pub callers: u32,
    /// The time within which they come.
    pub lasting_ns: u64,
    /// The largest estimate.
    pub max_estimate: u64,
    /// The longest time of a reservation.
    pub max_ttl_ns: u64,
    /// A deliberate error, by which tests show that the laws find it.
    pub flaw: Option<Flaw>,
}

/// A call for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The instant.
    pub at_ns: u64,
    /// The node that it comes to.
    pub node: u32,
    /// The permits that it asks for.
    pub permits: u64,
}

/// A fault, from an instant on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The instant.
    pub at_ns: u64,
    /// The time until it is over.
    pub lasting_ns: u64,
    /// The kind of it.
    pub kind: FaultKind,
}

/// A kind of fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// These nodes are down, and begin anew when it is over.
    Crash(Range<u32>),
    /// Messages to and from these nodes get lost.
    Cut(Range<u32>),
    /// Each message takes at least so long.
    Slow {
        /// The delay, one way.
        min_ns: u64,
    },
    /// The store fails. When it is over, a replica takes over that lacks the newest state.
    Failover {
        /// The age of what it knows when the store fails.
        loses_ns: u64,
        /// The time by which its clock is behind.
        behind_ns: u64,
    },
}

/// A deliberate error of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// An excess comes back with each commit, also with one that is repeated.
    CommitsTwice,
    /// A permit is charged with each commit that is repeated.
    ChargesTwice,
}

impl Plan {
    /// Returns a plan without calls and faults, on a steady network and with exact clocks.
    #[must_use]
    pub fn new(nodes: u32, limit: impl Into<Rule>) -> Self {
        Self {
            seed: 1,
            nodes,
            limit: limit.into(),
            leases: None,
            on_unavailable: OnUnavailable::Deny,
            quarantine: false,
            budget_ns: 20 * MS,
            late_ns: 0,
            drift_ppm: 0,
            network: Network { min_ns: MS / 2, extra_ns: 0, lost_ppm: 0 },
            doubled_ppm: 0,
            calls: Vec::new(),
            faults: Vec::new(),
            callers: 0,
            lasting_ns: 0,
            max_estimate: 0,
            max_ttl_ns: 0,
            flaw: None,
        }
    }

    /// Draws a plan with reservations. In each second one the window is as long as the run, so
    /// that nothing that is counted twice is forgotten.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9E6C_63D0_876A_3F6B) ^ 0x5EED);
        let mut some = |least: u64, most: u64| least + below(&mut random, most - least + 1);
        let lasting_ns = some(100, 700) * MS;
        let is_long = some(0, 1) == 0;
        let period = Duration::from_millis(if is_long { 3_600_000 } else { some(80, 300) });
        let is_leased = some(0, 1) == 0;
        let ttl = Duration::from_millis(some(40, 200));
        let (max_permits, guard) = (some(4, 24), some(0, 1) == 0);
        let extra_ns = if some(0, 2) == 0 { 0 } else { some(0, 6) * MS };
        let rate = |one_in: u64| u32::try_from(1_000_000 / one_in).unwrap();
        let lost_ppm = if some(0, 1) == 0 { 0 } else { rate(some(4, 40)) };
        let nodes = u32::try_from(some(1, 4)).unwrap();
        let permits = if is_long { some(60, 200) } else { some(20, 80) };
        let callers = u32::try_from(some(20, 50)).unwrap();
        let (max_estimate, max_ttl_ns) = (some(1, 10), some(20, 200) * MS);
        let drift_ppm = u32::try_from(some(0, 3) * 7_000).unwrap();
        let network = Network { min_ns: some(100_000, 2_000_000), extra_ns, lost_ppm };
        let doubled_ppm = if some(0, 1) == 0 { 0 } else { rate(some(3, 20)) };
        let mut faults = Vec::new();
        for _ in 1..some(1, 4) {
            let node = u32::try_from(some(0, u64::from(nodes) - 1)).unwrap();
            let (at_ns, lasting_ns) = (some(0, lasting_ns), some(0, 60 * MS));
            faults.push(Fault { at_ns, lasting_ns, kind: FaultKind::Crash(node..node + 1) });
        }
        let fails_over = some(0, 4) == 0;
        if fails_over {
            let (loses_ns, behind_ns) = (some(0, 40) * MS, some(0, 50 * MS));
            let kind = FaultKind::Failover { loses_ns, behind_ns };
            faults.push(Fault { at_ns: some(0, lasting_ns >> 1), lasting_ns: 0, kind });
        }
        Self {
            seed,
            leases: is_leased.then_some(Leases { ttl, max_permits, guard, drift_ppm }),
            quarantine: fails_over,
            drift_ppm,
            network,
            doubled_ppm,
            faults,
            callers,
            lasting_ns,
            max_estimate,
            max_ttl_ns,
            ..Self::new(nodes, SlidingLog::new(permits, period))
        }
    }

    /// Returns `true` if a replica takes over.
    pub(super) fn fails_over(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Failover { .. }))
    }

    /// Returns the most that may be used, if there is a bound.
    pub(super) fn bound(&self, forgotten: u64) -> Option<u64> {
        let borrowed = match self.leases {
            Some(leases) if !leases.guard => {
                let heaviest = self.calls.iter().map(|call| call.permits).max().unwrap_or(0);
                let (units, ttl_ns) = (leases.max_permits.max(heaviest), crate::ns(leases.ttl));
                match self.limit {
                    Rule::Log(log) => log.outstanding(self.nodes.into(), units, ttl_ns),
                    Rule::Bucket(bucket) => bucket.outstanding(self.nodes.into(), units, ttl_ns),
                    // Leases end with the window.
                    _ => 0,
                }
            }
            _ => 0,
        };
        let alone = match self.on_unavailable {
            OnUnavailable::Deny => 0,
            OnUnavailable::Local { .. } => self.limit.capacity(),
            _ => return None,
        };
        let forgotten = if self.quarantine { 0 } else { forgotten };
        Some(self.limit.capacity() + borrowed + alone + forgotten)
    }

    /// Returns the longest time for which a caller goes on with a reservation that a store holds
    /// whose grants do not count yet.
    pub(super) const fn patience_ns(&self) -> u64 {
        self.budget_ns * 8
    }
}

/// Returns calls at random instants for up to `heaviest` permits, so many each second on average.
/// The nodes get equal parts of them, or parts by Zipf's law if they are skewed.
#[must_use]
pub fn calls(
    (seed, nodes): (u64, u32),
    each_second: u64,
    within: Range<u64>,
    heaviest: u64,
    is_skewed: bool,
) -> Vec<Call> {
    let mut random = Random::new(seed.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ 3);
    let mut total = 0;
    let weights = (1..=u64::from(nodes)).map(|place| {
        total += if is_skewed { (1 << 40) / place } else { 1 << 40 };
        total
    });
    let weights: Vec<u64> = weights.collect();
    let mut at_ns = within.start;
    let mut next = || {
        let gap = 1_000_000_000 * u128::from(random.exponential()) / u128::from(each_second);
        at_ns += u64::try_from(gap >> 32).unwrap();
        let point = below(&mut random, total);
        let node = u32::try_from(weights.partition_point(|&sum| sum <= point)).unwrap();
        Some(Call { at_ns, node, permits: 1 + below(&mut random, heaviest) })
    };
    std::iter::from_fn(&mut next).take_while(|call| call.at_ns < within.end).collect()
}
