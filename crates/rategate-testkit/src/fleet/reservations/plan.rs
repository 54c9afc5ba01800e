//! The plan of a run with reservations, drawn from a seed.

use rategate_core::random::Random;

use crate::fleet::network::{Network, below};

const MS: u64 = 1_000_000;

/// A fleet, its callers, and the faults that they face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationPlan {
    /// The seed from which everything random follows.
    pub seed: u64,
    /// The number of nodes.
    pub nodes: u32,
    /// The permits of a window.
    pub permits: u64,
    /// The length of a window.
    pub period_ns: u64,
    /// The borrowing of nodes: the length of a lease, its permits, and whether there is a guard.
    pub leases: Option<(u64, u64, bool)>,
    /// The number of callers.
    pub callers: u32,
    /// The time within which they come.
    pub lasting_ns: u64,
    /// The largest estimate.
    pub max_estimate: u64,
    /// The longest time of a reservation.
    pub max_ttl_ns: u64,
    /// The time that a node waits for a reply, by its own clock.
    pub budget_ns: u64,
    /// The maximum rate error of the nodes' clocks, in parts per million, too fast or too slow.
    pub drift_ppm: u32,
    /// The network to the store.
    pub network: Network,
    /// The number of reservations and commits that arrive twice, in a million.
    pub doubled_ppm: u32,
    /// The number of crashes.
    pub crashes: u32,
    /// The state that a replica lacks when it takes over, if it does: all of so many nanoseconds.
    pub failover_loses_ns: Option<u64>,
    /// A deliberate error, by which tests show that the laws find it.
    pub flaw: Option<ReservationFlaw>,
}

/// A deliberate error of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationFlaw {
    /// An excess comes back with each commit, also with one that is repeated.
    CommitsTwice,
    /// A permit is charged with each commit that is repeated.
    ChargesTwice,
}

impl ReservationPlan {
    /// Draws a plan. In each second one the window is as long as the run, so that nothing that is
    /// counted twice is forgotten.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9E6C_63D0_876A_3F6B) ^ 0x5EED);
        let mut some = |least: u64, most: u64| {
            let span = most.saturating_sub(least).saturating_add(1);
            least.saturating_add(below(&mut random, span))
        };
        let lasting_ns = some(100, 700).saturating_mul(MS);
        let is_long = some(0, 1) == 0;
        let period_ns = if is_long { 3_600_000 } else { some(80, 300) }.saturating_mul(MS);
        let is_leased = some(0, 1) == 0;
        let leases = (some(40, 200).saturating_mul(MS), some(4, 24), some(0, 1) == 0);
        let extra_ns = if some(0, 2) == 0 { 0 } else { some(0, 6).saturating_mul(MS) };
        let ppm = |one_in: u64| u32::try_from(1_000_000_u64.checked_div(one_in).unwrap_or(0));
        let rate = |one_in: u64| ppm(one_in).unwrap_or(0);
        let lost = if some(0, 1) == 0 { 0 } else { rate(some(4, 40)) };
        Self {
            seed,
            nodes: u32::try_from(some(1, 4)).unwrap_or(1),
            permits: if is_long { some(60, 200) } else { some(20, 80) },
            period_ns,
            leases: is_leased.then_some(leases),
            callers: u32::try_from(some(20, 50)).unwrap_or(20),
            lasting_ns,
            max_estimate: some(1, 10),
            max_ttl_ns: some(20, 200).saturating_mul(MS),
            budget_ns: 20_u64.saturating_mul(MS),
            drift_ppm: u32::try_from(some(0, 3).saturating_mul(7_000)).unwrap_or(0),
            network: Network { min_ns: some(100_000, 2_000_000), extra_ns, lost_ppm: lost },
            doubled_ppm: if some(0, 1) == 0 { 0 } else { rate(some(3, 20)) },
            crashes: u32::try_from(some(0, 4).saturating_sub(1)).unwrap_or(0),
            failover_loses_ns: (some(0, 4) == 0).then(|| some(0, 40).saturating_mul(MS)),
            flaw: None,
        }
    }

    /// Returns the most that may be used within the estimates in a window.
    pub(super) fn bound(&self) -> u64 {
        let borrowed = match self.leases {
            Some((_, max_units, false)) => max_units.saturating_mul(self.nodes.into()),
            _ => 0,
        };
        self.permits.saturating_add(borrowed)
    }

    /// Returns the longest time for which a caller goes on with a reservation that a store holds
    /// whose grants do not count yet.
    pub(super) const fn patience_ns(&self) -> u64 {
        self.budget_ns.saturating_mul(8)
    }
}
