//! The instants of open-loop arrivals, at a constant rate or by a Poisson process.

use crate::scenario::Arrivals;
use rategate_core::random::Random;

/// The arrival instants of one `[[arrivals]]` table, rounded down to whole nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Instants {
    start_ns: u64,
    left: u64,
    permits: u64,
    period_ns: u64,
    random: Option<Random>,
    /// The time passed since the start, in `1 / (permits * 2^32)` ns.
    at: u128,
}

impl Instants {
    pub(crate) fn new(arrivals: &Arrivals, start_ns: u64) -> Self {
        let (permits, period_ns) = arrivals.rate;
        let random = arrivals.poisson_seed.map(Random::new);
        let mut instants =
            Self { start_ns, left: arrivals.count, permits, period_ns, random, at: 0 };
        if instants.random.is_some() {
            // A Poisson process has its first gap before its first arrival.
            instants.pass_gap();
        }
        instants
    }

    fn pass_gap(&mut self) {
        let gap = self.random.as_mut().map_or(1 << 32, Random::exponential);
        self.at = self.at.saturating_add(u128::from(self.period_ns).saturating_mul(gap.into()));
    }
}

impl Iterator for Instants {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let since_ns = (self.at >> 32).checked_div(self.permits.into()).unwrap_or(0);
        self.pass_gap();
        Some(self.start_ns.saturating_add(u64::try_from(since_ns).unwrap_or(u64::MAX)))
    }
}
