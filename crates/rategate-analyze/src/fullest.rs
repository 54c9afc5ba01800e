//! The fullest window of each caller, between two bounds, in bounded memory; and the limit that
//! the fullest windows suggest.

use std::collections::VecDeque;

use serde::Serialize;

use crate::SECOND_NS;
use crate::callers::Caller;
use crate::settings::Share;

/// The number of cells of a window, unless the cells are seconds.
const CELLS: u64 = 60;

/// A grid of cells by which windows of one length are counted.
///
/// The fullest run of cells no longer than a window is a lower bound, since each such run is part
/// of a window. Any window lies within the cells it touches, so the fullest run of that many
/// cells is an upper bound. A window of up to a minute has cells of a second. Where instants are
/// whole seconds, the lower bound is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    cell_ns: u64,
    /// The number of cells that surely lie within a window.
    inner: u64,
    /// The maximum number of cells a window touches.
    outer: u64,
}

impl Grid {
    pub(crate) fn of(period_ns: u64) -> Self {
        let is_seconds =
            period_ns.is_multiple_of(SECOND_NS) && period_ns <= CELLS.saturating_mul(SECOND_NS);
        let cell_ns = if is_seconds { SECOND_NS } else { period_ns.div_ceil(CELLS) }.max(1);
        let inner = period_ns.checked_div(cell_ns).unwrap_or(1).max(1);
        Self { cell_ns, inner, outer: period_ns.div_ceil(cell_ns).saturating_add(1) }
    }

    pub(crate) fn cell(self, at_ns: u64) -> u64 {
        at_ns.checked_div(self.cell_ns).unwrap_or(at_ns)
    }

    /// Returns `true` if the lower bound is exact as long as instants are whole seconds.
    pub(crate) const fn is_exact_in_seconds(self) -> bool {
        self.cell_ns == SECOND_NS
    }
}

/// The windows of one caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peak {
    /// Those of the newest `outer` cells that are not empty, with their amounts.
    cells: VecDeque<(u64, u64)>,
    within: u64,
    /// The lower bound of the fullest window.
    pub(crate) min: u64,
    /// The upper bound of the fullest window.
    pub(crate) max: u64,
    second: u64,
    in_second: u64,
    /// The amount in the fullest second.
    pub(crate) max_in_second: u64,
}

impl Peak {
    /// Adds an amount at an instant that is no earlier than the one before.
    pub(crate) fn add(&mut self, grid: Grid, at_ns: u64, amount: u64) {
        let second = at_ns.checked_div(SECOND_NS).unwrap_or(0);
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        self.in_second = self.in_second.saturating_add(amount);
        self.max_in_second = self.max_in_second.max(self.in_second);

        let cell = grid.cell(at_ns);
        while let Some(&(first, count)) = self.cells.front()
            && first.saturating_add(grid.outer) <= cell
        {
            self.within = self.within.saturating_sub(count);
            self.cells.pop_front();
        }
        match self.cells.back_mut() {
            Some((last, count)) if *last == cell => *count = count.saturating_add(amount),
            _ => self.cells.push_back((cell, amount)),
        }
        self.within = self.within.saturating_add(amount);
        self.max = self.max.max(self.within);
        let too_old =
            self.cells.iter().take_while(|(first, _)| first.saturating_add(grid.inner) <= cell);
        let too_old = too_old.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        self.min = self.min.max(self.within.saturating_sub(too_old));
    }

    /// Returns the amount expected within the next `lead_ns`, from the recent past.
    ///
    /// It is the amount of the newest stretch of that length, plus the increase over the stretch
    /// before. A stretch has one more cell than needed, because the newest cell has only begun.
    pub(crate) fn expected(&self, grid: Grid, at_ns: u64, lead_ns: u64) -> u64 {
        let stretch = lead_ns.div_ceil(grid.cell_ns.max(1)).saturating_add(1);
        let newest = grid.cell(at_ns);
        let (mut recent, mut before) = (0_u64, 0_u64);
        for &(cell, count) in self.cells.iter().rev() {
            let age = newest.saturating_sub(cell);
            if age < stretch {
                recent = recent.saturating_add(count);
            } else if age < stretch.saturating_mul(2) {
                before = before.saturating_add(count);
            } else {
                break;
            }
        }
        recent.saturating_add(recent.saturating_sub(before))
    }
}

/// A suggested limit of `permits` in any window of the same period.
///
/// A sliding log of `N` never denies a caller whose fullest window has `N` or less, and denies
/// any other at least once. So the fullest windows alone show which callers would have been
/// denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Suggestion {
    /// The number of permits in any window.
    pub permits: u64,
    /// The minimum number that satisfies the condition; equal to `permits` where the fullest
    /// windows are exact.
    pub at_least: u64,
    /// The number of well-behaved callers: all but those set aside.
    pub well_behaved: usize,
    /// The number of callers that are not: those with the fullest windows.
    pub set_aside: usize,
    /// The maximum number of well-behaved callers that it may deny.
    pub may_deny: usize,
    /// The number of callers that it would deny at least once, those set aside included.
    pub denies_callers: usize,
}

/// Returns the minimum limit that denies fewer than the share `spare` of the well-behaved
/// callers.
///
/// These are all callers but the share `set_aside`, rounded up, with the fullest windows. Returns
/// `None` if no caller remains.
pub(crate) fn suggest(
    callers: &[Caller],
    is_exact: bool,
    set_aside: Share,
    spare: Share,
) -> Option<Suggestion> {
    let set_aside = set_aside.of_rounded_up(callers.len()).min(callers.len());
    let well_behaved = callers.len().saturating_sub(set_aside);
    // Fewer than the share, so the last caller of an exact share is not denied.
    let may_deny = spare.of_rounded_up(well_behaved).saturating_sub(1);
    let rank = well_behaved.checked_sub(1)?.checked_sub(may_deny)?;
    let nth =
        |mut peaks: Vec<u64>| (rank < peaks.len()).then(|| *peaks.select_nth_unstable(rank).1);
    let at_least = nth(callers.iter().map(|caller| caller.peak.min).collect())?;
    let max = nth(callers.iter().map(|caller| caller.peak.max).collect())?;
    let permits = if is_exact { at_least } else { max }.max(1);
    let denies_callers = callers.iter().filter(|caller| caller.peak.min > permits).count();
    let at_least = at_least.max(1);
    Some(Suggestion { permits, at_least, well_behaved, set_aside, may_deny, denies_callers })
}

#[cfg(test)]
mod tests {
    use super::{Grid, Peak, suggest};
    use crate::SECOND_NS;
    use crate::callers::Caller;
    use crate::list_effect::Hold;
    use crate::settings::Share;

    /// The bounds hold for any instants, and the lower one is exact for whole seconds of a short
    /// window.
    #[test]
    fn the_fullest_window_lies_between_the_bounds() {
        let mut random = fastrand::Rng::with_seed(7);
        for period_ns in [
            1,
            7,
            100,
            SECOND_NS / 10,
            SECOND_NS,
            7 * SECOND_NS,
            60 * SECOND_NS,
            61 * SECOND_NS,
            3_600 * SECOND_NS,
        ] {
            for step_ns in [1, period_ns / 9 + 1, SECOND_NS, 3 * SECOND_NS] {
                let mut instants: Vec<u64> =
                    (0..300).map(|_| random.u64(..200) * step_ns).collect();
                instants.sort_unstable();
                let grid = Grid::of(period_ns);
                let mut peak = Peak::default();
                for at_ns in &instants {
                    peak.add(grid, *at_ns, 1);
                }
                let within = |from: u64| {
                    instants.iter().filter(|at| (from..from + period_ns).contains(*at)).count()
                };
                let truth = u64::try_from(instants.iter().map(|from| within(*from)).max().unwrap())
                    .unwrap();
                assert!(
                    peak.min <= truth && truth <= peak.max,
                    "{period_ns} {step_ns} {peak:?} {truth}"
                );
                if grid.is_exact_in_seconds() && step_ns % SECOND_NS == 0 {
                    assert_eq!(peak.min, truth, "{period_ns} {step_ns}");
                }
                assert!(peak.cells.len() <= 62);
            }
        }
    }

    fn callers(peaks: impl IntoIterator<Item = u64>) -> Vec<Caller> {
        let peak = |min: u64| {
            let mut peak = Peak::default();
            (peak.min, peak.max) = (min, min.saturating_add(1));
            peak
        };
        let caller = |min| Caller {
            name: Box::default(),
            calls: 1,
            denied: 0,
            peak: peak(min),
            hold: Hold::default(),
        };
        peaks.into_iter().map(caller).collect()
    }

    /// One of a hundred is set aside; of the others fewer than the share may be denied.
    #[test]
    fn fewer_than_the_share_are_denied() {
        let callers = callers((1..=1_000).rev());
        for (set_aside, spare, permits, may_deny) in [
            (10_000, 1_000, 990, 0),
            (10_000, 2_000, 989, 1),
            (10_000, 0, 990, 0),
            (0, 1_000, 1_000, 0),
            (0, 2_000, 999, 1),
            (0, 1_000_000, 1, 999),
            (1_000, 10_000, 990, 9),
        ] {
            let found = suggest(&callers, true, Share(set_aside), Share(spare)).unwrap();
            assert_eq!((found.permits, found.may_deny), (permits, may_deny), "{set_aside} {spare}");
            let well_behaved = 1_000 - usize::try_from(set_aside).unwrap() / 1_000;
            assert_eq!(found.well_behaved, well_behaved);
            let safe = suggest(&callers, false, Share(set_aside), Share(spare)).unwrap();
            assert_eq!((safe.permits, safe.at_least), (permits + 1, permits));
        }
    }

    #[test]
    fn without_callers_there_is_no_suggestion() {
        assert_eq!(suggest(&[], true, Share(10_000), Share(1_000)), None);
        assert_eq!(suggest(&callers([7]), true, Share(10_000), Share(1_000)), None);
        assert_eq!(suggest(&callers([7]), true, Share(0), Share(1_000)).unwrap().permits, 7);
    }
}
