//! Allowed and denied calls over time, in a bounded number of bars.

use serde::Serialize;

use crate::SECOND_NS;

/// The maximum number of bars.
const MAX_BARS: usize = 480;

/// Allowed and denied calls over time, in bars that double in width whenever there would be too
/// many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Timeline {
    /// The second of Unix time at which the first bar begins.
    pub from_s: u64,
    /// The width of a bar in seconds.
    pub width_s: u64,
    /// The pairs `(allowed, denied)`, from the oldest bar on.
    #[serde(rename = "allowed_denied")]
    pub bars: Vec<(u64, u64)>,
}

impl Timeline {
    pub(crate) const fn new() -> Self {
        Self { from_s: 0, width_s: 1, bars: Vec::new() }
    }

    /// Counts a call; instants must not go back.
    pub(crate) fn add(&mut self, at_ns: u64, is_denied: bool) {
        let second = at_ns.checked_div(SECOND_NS).unwrap_or(0);
        if self.bars.is_empty() {
            self.from_s = second;
        }
        let mut bar_index = self.bar_index(second);
        while bar_index >= MAX_BARS {
            self.widen();
            bar_index = self.bar_index(second);
        }
        if self.bars.len() <= bar_index {
            self.bars.resize(bar_index.saturating_add(1), (0, 0));
        }
        if let Some((allowed, denied)) = self.bars.get_mut(bar_index) {
            let count = if is_denied { denied } else { allowed };
            *count = count.saturating_add(1);
        }
    }

    fn bar_index(&self, second: u64) -> usize {
        let bar_index = second.saturating_sub(self.from_s).checked_div(self.width_s).unwrap_or(0);
        usize::try_from(bar_index).unwrap_or(usize::MAX)
    }

    fn widen(&mut self) {
        self.width_s = self.width_s.saturating_mul(2);
        let sum = |pair: &[(u64, u64)]| {
            pair.iter().fold((0_u64, 0_u64), |sum, bar| {
                (sum.0.saturating_add(bar.0), sum.1.saturating_add(bar.1))
            })
        };
        self.bars = self.bars.chunks(2).map(sum).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BARS, Timeline};
    use crate::SECOND_NS;

    /// Each bar has the calls of its own seconds, however often bars have widened.
    #[test]
    fn nothing_is_lost_as_bars_widen() {
        for last in [0, 479, 480, 5_000, 100_000] {
            let mut timeline = Timeline::new();
            let seconds: Vec<u64> = (0..=last).step_by(7).chain([last]).collect();
            for second in &seconds {
                timeline.add((1_000_000 + second) * SECOND_NS, second % 2 == 0);
            }
            assert!(timeline.bars.len() <= MAX_BARS && timeline.from_s == 1_000_000);
            for (bar, from) in
                timeline.bars.iter().zip((0..).step_by(usize::try_from(timeline.width_s).unwrap()))
            {
                let within = seconds
                    .iter()
                    .filter(|second| (from..from + timeline.width_s).contains(*second));
                let (denied, allowed): (Vec<u64>, Vec<u64>) =
                    within.partition(|second| *second % 2 == 0);
                assert_eq!(
                    *bar,
                    [allowed, denied].map(|calls| u64::try_from(calls.len()).unwrap()).into(),
                    "{last} {from}"
                );
            }
            assert!(u64::try_from(timeline.bars.len()).unwrap() * timeline.width_s > last);
        }
        let mut timeline = Timeline::new();
        timeline.add(0, false);
        timeline.add(u64::MAX, false);
        assert_eq!(timeline.bars.iter().map(|bar| bar.0).sum::<u64>(), 2);
    }
}
