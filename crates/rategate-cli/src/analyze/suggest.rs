//! The suggestion of a limit that would have denied almost none of the well-behaved callers.

use super::callers::Caller;
use super::settings::Share;

/// A suggested limit of `permits` in any window of the same period.
///
/// A sliding log of `N` never denies a caller whose fullest window has `N` or less, and denies
/// any other at least once. So the fullest windows alone show which callers would have been
/// denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suggestion {
    pub(super) permits: u64,
    /// The minimum number that satisfies the condition; equal to `permits` where the fullest
    /// windows are exact.
    pub(super) at_least: u64,
    /// The number of well-behaved callers: all but those set aside.
    pub(super) well_behaved: usize,
    pub(super) set_aside: usize,
    /// The maximum number of well-behaved callers that it may deny.
    pub(super) may_deny: usize,
}

/// Returns the minimum limit that denies fewer than the share `spare` of the well-behaved
/// callers.
///
/// These are all callers but the share `set_aside`, rounded up, with the fullest windows. Returns
/// `None` if no caller remains.
pub(super) fn suggest(
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
    let permits = if is_exact { at_least } else { max };
    Some(Suggestion {
        permits: permits.max(1),
        at_least: at_least.max(1),
        well_behaved,
        set_aside,
        may_deny,
    })
}

#[cfg(test)]
mod tests {
    use super::suggest;
    use crate::analyze::callers::Caller;
    use crate::analyze::hold::Hold;
    use crate::analyze::peak::Peak;
    use crate::analyze::settings::Share;

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
