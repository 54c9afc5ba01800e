//! A rate that grows steadily, and falls by an eighth at a refusal.

use super::measured::Measured;
use super::{End, RateBounds};

/// The parts of a millionth of a permit per second: a two hundredth for each nanosecond of a
/// second.
const PARTS: u128 = 200 * 1_000_000_000;

/// The rate of calls to a server that refuses what is too much: a two hundredth of the ceiling more
/// in each second in which at least half of it was used, and an eighth less at a refusal.
///
/// Calls that started before the last refusal are no reason for another cut: they went out at the
/// rate of before. It begins at the ceiling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Aimd {
    bounds: RateBounds,
    measured: Measured,
    /// The rate in [`PARTS`].
    parts: u128,
    ended_at_ns: u64,
    /// The instant of the last cut.
    cut_at_ns: Option<u64>,
}

impl Aimd {
    pub(super) fn new(bounds: RateBounds, now_ns: u64) -> Self {
        Self::beginning_with(bounds, bounds.ceiling, now_ns)
    }

    pub(super) fn beginning_with(bounds: RateBounds, rate: u64, now_ns: u64) -> Self {
        let parts = u128::from(rate).saturating_mul(PARTS);
        let measured = Measured::since(now_ns);
        Self { bounds, measured, parts, ended_at_ns: now_ns, cut_at_ns: None }
    }

    pub(super) const fn rebound(&mut self, bounds: RateBounds) {
        self.bounds = bounds;
    }

    pub(super) fn rate(&self) -> u64 {
        self.bounds.clamp(u64::try_from(self.parts / PARTS).unwrap_or(u64::MAX))
    }

    pub(super) fn end(&mut self, end: End) {
        let measured = self.measured.count(end.now_ns, end.permits);
        let passed_ns = end.now_ns.saturating_sub(self.ended_at_ns);
        self.ended_at_ns = self.ended_at_ns.max(end.now_ns);
        if end.is_refused {
            if self.cut_at_ns.is_none_or(|cut_at_ns| cut_at_ns <= end.start_ns) {
                self.parts = self.parts.saturating_mul(7) / 8;
                self.cut_at_ns = Some(end.now_ns);
            }
        } else if measured.saturating_mul(2) >= self.rate() {
            let more = u128::from(self.bounds.ceiling).saturating_mul(passed_ns.into());
            self.parts = self.parts.saturating_add(more);
        }
        let [floor, ceiling] = [self.bounds.floor, self.bounds.ceiling].map(u128::from);
        self.parts = self.parts.clamp(floor.saturating_mul(PARTS), ceiling.saturating_mul(PARTS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn ended(start_ns: u64, now_ns: u64, is_refused: bool) -> End {
        End { start_ns, now_ns, permits: 1, is_refused }
    }

    /// A refusal takes an eighth, those of calls that were out by then nothing, and a used rate
    /// grows by a two hundredth of the ceiling in a second.
    #[test]
    fn one_cut_for_the_calls_that_were_out() {
        let mut aimd = Aimd::new(RateBounds { floor: 1_000_000, ceiling: 80_000_000 }, 0);
        for call in 0..10 {
            aimd.end(ended(0, S + call, true));
            assert_eq!(aimd.rate(), 70_000_000);
        }
        aimd.end(ended(S, S + 20, true));
        assert_eq!(aimd.rate(), 61_250_000);
        // Ten a second are less than half: no reason to grow.
        for call in 0..20 {
            aimd.end(ended(S + 20, 2 * S + call * S / 10, false));
        }
        assert_eq!(aimd.rate(), 61_250_000);
        for call in 0..=400 {
            aimd.end(ended(S + 20, 4 * S + call * S / 40, false));
        }
        // The first half second shows nothing yet of the last nine and a half.
        let grown = aimd.rate() - 61_250_000;
        assert!((3_800_000..=4_000_000).contains(&grown), "{grown}");
    }
}
