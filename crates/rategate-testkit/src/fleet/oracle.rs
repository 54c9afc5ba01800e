//! The oracle of a fleet: the most that all nodes together used in any window, in true time.
//!
//! It works in one pass. Grants come in the order of their instants, so it remembers only the
//! last window of them, and for a bucket one number.

use std::collections::VecDeque;

/// An oracle, one for each kind of limit.
#[derive(Clone, Debug)]
pub(super) enum Oracle {
    /// The fullest window of one length, at any phase.
    Any(FullestWindow),
    /// The fullest window of the grid.
    Grid(FullestCell),
    /// The most over the rate, in windows of all lengths at once.
    Rate(MaxOverRate),
}

impl Oracle {
    /// Records permits used at `at_ns`, no sooner than those before.
    pub(super) fn push(&mut self, at_ns: u64, permits: u64) {
        match self {
            Self::Any(fullest) => fullest.push(at_ns, permits),
            Self::Grid(fullest) => fullest.push(at_ns, permits),
            Self::Rate(max) => max.push(at_ns, permits),
        }
    }

    /// Returns the most so far, rounded up, and the instant that goes with it.
    pub(super) fn max(&self) -> (u64, u64) {
        match self {
            Self::Any(fullest) => fullest.max,
            Self::Grid(fullest) => fullest.max,
            Self::Rate(max) => (max.permits(), max.max_at_ns),
        }
    }
}

/// The most permits in any half-open window of one length.
#[derive(Clone, Debug)]
pub(super) struct FullestWindow {
    window_ns: u64,
    /// The instants and permits within a window before the newest.
    inside: VecDeque<(u64, u64)>,
    sum: u64,
    max: (u64, u64),
}

impl FullestWindow {
    pub(super) fn new(window_ns: u64) -> Self {
        Self { window_ns, inside: VecDeque::new(), sum: 0, max: (0, 0) }
    }

    /// Returns the most so far, and the instant at which that window begins.
    pub(super) const fn max(&self) -> (u64, u64) {
        self.max
    }

    /// Records a grant. It suffices to check windows that end with a grant: moving any other back
    /// to its last grant loses nothing.
    pub(super) fn push(&mut self, at_ns: u64, permits: u64) {
        while let Some(&(oldest_ns, expired)) = self.inside.front() {
            if at_ns.saturating_sub(oldest_ns) < self.window_ns {
                break;
            }
            self.sum = self.sum.saturating_sub(expired);
            self.inside.pop_front();
        }
        match self.inside.back_mut() {
            Some(newest) if newest.0 == at_ns => newest.1 = newest.1.saturating_add(permits),
            _ => self.inside.push_back((at_ns, permits)),
        }
        self.sum = self.sum.saturating_add(permits);
        if self.sum > self.max.0 {
            self.max = (self.sum, self.inside.front().map_or(at_ns, |&(from_ns, _)| from_ns));
        }
    }
}

/// The most permits in any window of the grid that begins at 0.
#[derive(Clone, Debug)]
pub(super) struct FullestCell {
    window_ns: u64,
    cell: u64,
    sum: u64,
    max: (u64, u64),
}

impl FullestCell {
    pub(super) const fn new(window_ns: u64) -> Self {
        Self { window_ns, cell: 0, sum: 0, max: (0, 0) }
    }

    fn push(&mut self, at_ns: u64, permits: u64) {
        let cell = at_ns.checked_div(self.window_ns).unwrap_or(0);
        self.sum = if cell == self.cell { self.sum.saturating_add(permits) } else { permits };
        self.cell = cell;
        if self.sum > self.max.0 {
            self.max = (self.sum, cell.saturating_mul(self.window_ns));
        }
    }
}

/// The most by which the grants of any window were over what the rate earns in it.
///
/// The state is a bucket without a bottom: it drains at the rate, and each grant is poured into
/// it. Its level is the most over the rate in all windows that end now. So one number stands for
/// all lengths, without rounding.
#[derive(Clone, Debug)]
pub(super) struct MaxOverRate {
    permits: u64,
    period_ns: u64,
    /// The level in parts of a permit, of which `period_ns` make one.
    level: u128,
    at_ns: u64,
    max: u128,
    max_at_ns: u64,
}

impl MaxOverRate {
    /// Returns the oracle for a rate of `permits` each `period_ns`.
    pub(super) const fn new(permits: u64, period_ns: u64) -> Self {
        Self { permits, period_ns, level: 0, at_ns: 0, max: 0, max_at_ns: 0 }
    }

    fn push(&mut self, at_ns: u64, permits: u64) {
        let passed_ns = u128::from(at_ns.saturating_sub(self.at_ns));
        let drained = self.level.saturating_sub(passed_ns.saturating_mul(self.permits.into()));
        self.level =
            drained.saturating_add(u128::from(permits).saturating_mul(self.period_ns.into()));
        self.at_ns = at_ns;
        if self.level > self.max {
            (self.max, self.max_at_ns) = (self.level, at_ns);
        }
    }

    /// Returns the most, rounded up to a permit.
    fn permits(&self) -> u64 {
        let permits = self.max.div_ceil(u128::from(self.period_ns.max(1)));
        u64::try_from(permits).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{FullestCell, FullestWindow, MaxOverRate};
    use fastrand::Rng;

    use crate::oracle::Grants;

    fn grants(random: &mut Rng) -> Vec<(u64, u64)> {
        let count = random.u64(..200);
        let mut at_ns = 0_u64;
        let mut grants = Vec::new();
        for _ in 0..count {
            at_ns = at_ns.saturating_add(random.u64(..5).saturating_mul(random.u64(..7)));
            grants.push((at_ns, random.u64(..3).saturating_add(1)));
        }
        grants
    }

    #[test]
    fn one_pass_finds_what_looking_at_every_window_finds() {
        let mut random = Rng::with_seed(3);
        for _ in 0..500 {
            let (grants, window_ns) = (grants(&mut random), random.u64(1..=40));
            let (mut any, mut grid) = (FullestWindow::new(window_ns), FullestCell::new(window_ns));
            for &(at_ns, permits) in &grants {
                any.push(at_ns, permits);
                grid.push(at_ns, permits);
            }
            assert_eq!(any.max.0, Grants(grants.clone()).fullest_window(window_ns).0);
            let sum = |cell: u64| -> u64 {
                grants.iter().filter(|grant| grant.0 / window_ns == cell).map(|grant| grant.1).sum()
            };
            let cells = grants.iter().map(|grant| grant.0 / window_ns);
            assert_eq!(grid.max.0, cells.map(sum).max().unwrap_or(0));
        }
    }

    #[test]
    fn one_level_stands_for_windows_of_all_lengths() {
        let mut random = Rng::with_seed(4);
        for _ in 0..300 {
            let (grants, permits) = (grants(&mut random), random.u64(1..=4));
            let period_ns = random.u64(1..=9);
            let mut one_pass = MaxOverRate::new(permits, period_ns);
            for &(at_ns, granted) in &grants {
                one_pass.push(at_ns, granted);
            }
            let mut max = 0;
            for (first, &(from_ns, _)) in grants.iter().enumerate() {
                let mut sum = 0;
                for &(to_ns, granted) in &grants[first..] {
                    sum += granted;
                    let over =
                        i128::from(sum * period_ns) - i128::from((to_ns - from_ns) * permits);
                    max = max.max(over);
                }
            }
            assert_eq!(i128::try_from(one_pass.max).unwrap(), max);
        }
    }
}
