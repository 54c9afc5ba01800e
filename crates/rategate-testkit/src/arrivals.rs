//! The instants of open-loop arrivals: at a constant rate, by a Poisson process, or by a load.

use rategate_core::random::Random;
use rategate_core::shape::DueInstants;

use crate::scenario::{Arrivals, Times};

/// The arrival instants of one `[[arrivals]]` table.
#[derive(Clone, Debug)]
pub(crate) struct Instants {
    start_ns: u64,
    left: u64,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Gaps(Gaps),
    Load(Box<DueInstants>),
}

/// Gaps that are equal or random, added up, and rounded down to whole nanoseconds.
#[derive(Clone, Debug)]
struct Gaps {
    permits: u64,
    period_ns: u64,
    random: Option<Random>,
    /// The time passed since the start, in `1 / (permits * 2^32)` ns.
    at: u128,
}

impl Instants {
    pub(crate) fn new(arrivals: &Arrivals, start_ns: u64) -> Self {
        let source = match &arrivals.times {
            Times::Rate { rate, poisson_seed } => Source::Gaps(Gaps::new(*rate, *poisson_seed)),
            Times::Load(operations) => Source::Load(Box::new(operations.clone().into_iter())),
        };
        Self { start_ns, left: arrivals.count, source }
    }
}

impl Gaps {
    fn new((permits, period_ns): (u64, u64), poisson_seed: Option<u64>) -> Self {
        let random = poisson_seed.map(Random::new);
        let mut gaps = Self { permits, period_ns, random, at: 0 };
        if gaps.random.is_some() {
            // A Poisson process has its first gap before its first arrival.
            gaps.pass();
        }
        gaps
    }

    fn pass(&mut self) {
        let gap = self.random.as_mut().map_or(1 << 32, Random::exponential);
        self.at = self.at.saturating_add(u128::from(self.period_ns).saturating_mul(gap.into()));
    }

    fn next_ns(&mut self) -> u64 {
        let since_ns = (self.at >> 32).checked_div(self.permits.into()).unwrap_or(0);
        self.pass();
        u64::try_from(since_ns).unwrap_or(u64::MAX)
    }
}

impl Iterator for Instants {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let since_ns = match &mut self.source {
            Source::Gaps(gaps) => gaps.next_ns(),
            Source::Load(instants) => instants.next()?,
        };
        Some(self.start_ns.saturating_add(since_ns))
    }
}
