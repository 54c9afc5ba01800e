//! The effect that a deny list would have had on the calls of a log, besides the limit's
//! decisions; and the delay of the list behind the log, in which calls over the limit pass.

use serde::Serialize;

use crate::SECOND_NS;
use crate::settings::Share;

/// A caller's entry on the list, as its readers see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The instant from which the readers know the entry; `u64::MAX` until it is published.
    from_ns: u64,
    until_ns: u64,
    /// The amount over the limit that passed since the caller was listed.
    over: u64,
    /// The number of calls denied by the list that the limit allowed.
    pub(crate) within: u64,
    /// The caller was listed at least once.
    pub(crate) is_listed: bool,
}

/// A call with the limit's decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) at_ns: u64,
    pub(crate) amount: u64,
    pub(crate) is_denied: bool,
    /// The caller is expected to be over the limit soon.
    pub(crate) is_warned: bool,
}

/// The outcomes of calls, counted in calls. `overshoot` is counted in what the limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Effects {
    /// The calls within the limit that passed.
    pub passed_within: u64,
    /// The calls over the limit that passed.
    pub passed_over: u64,
    /// The calls within the limit that the list denied.
    pub denied_within: u64,
    /// The calls over the limit that the list denied.
    pub denied_over: u64,
    /// The number of times a caller was added to the list.
    pub closings: u64,
    /// The number of these that came before the caller was over the limit.
    pub closings_early: u64,
    /// The maximum amount of one caller over the limit that passed before it was listed.
    pub overshoot: u64,
}

impl Hold {
    /// Returns `true` if the list denies a call at `at_ns`.
    pub(crate) const fn denies(&self, at_ns: u64) -> bool {
        self.from_ns <= at_ns && at_ns < self.until_ns
    }

    /// Lists the caller for `hold_ns`. The readers know it `delay_ns` later, or once it is
    /// [published](Self::published). Returns `true` if it was not on the list before.
    fn list(&mut self, at_ns: u64, hold_ns: u64, delay_ns: Option<u64>) -> bool {
        let is_new = at_ns >= self.until_ns;
        self.until_ns = self.until_ns.max(at_ns.saturating_add(hold_ns));
        if is_new {
            self.from_ns = delay_ns.map_or(u64::MAX, |delay_ns| at_ns.saturating_add(delay_ns));
            self.over = 0;
            self.is_listed = true;
        }
        is_new
    }

    /// Records that the readers know the entry now.
    pub(crate) fn published(&mut self, now_ns: u64) {
        self.from_ns = self.from_ns.min(now_ns);
    }
}

impl Effects {
    /// Counts a call, and lists its caller if needed. Returns `true` if the caller was added to
    /// the list.
    ///
    /// The limit decides about all calls of the log, including those that the list would have
    /// denied: a denied caller that continues stays over the limit.
    pub(crate) fn count(
        &mut self,
        hold: &mut Hold,
        call: Decided,
        hold_ns: u64,
        delay_ns: Option<u64>,
    ) -> bool {
        let Decided { at_ns, amount, is_denied, is_warned } = call;
        let is_held = hold.denies(at_ns);
        let is_new = (is_denied || is_warned) && hold.list(at_ns, hold_ns, delay_ns);
        let count = match (is_held, is_denied) {
            (false, false) => &mut self.passed_within,
            (false, true) => &mut self.passed_over,
            (true, false) => &mut self.denied_within,
            (true, true) => &mut self.denied_over,
        };
        *count = count.saturating_add(1);
        if is_held && !is_denied {
            hold.within = hold.within.saturating_add(1);
        }
        if is_denied && !is_held {
            hold.over = hold.over.saturating_add(amount);
            self.overshoot = self.overshoot.max(hold.over);
        }
        self.closings = self.closings.saturating_add(is_new.into());
        self.closings_early = self.closings_early.saturating_add((is_new && !is_denied).into());
        is_new
    }

    /// Returns how many calls would have passed, and how many would have been denied.
    pub(crate) const fn sums(&self) -> [u64; 2] {
        [
            self.passed_within.saturating_add(self.passed_over),
            self.denied_within.saturating_add(self.denied_over),
        ]
    }
}

/// Callers that a list denied without need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NeedlessDenials {
    /// The number of callers listed that were never over the limit.
    pub callers_never_over: usize,
    /// The number of well-behaved callers: all but those set aside.
    pub well_behaved: usize,
    /// The number of well-behaved callers that were listed.
    pub well_behaved_listed: usize,
    /// The number of their calls that the list denied and the limit allowed.
    pub well_behaved_denied_within: u64,
}

impl NeedlessDenials {
    /// Evaluates all callers: the fullest window, the denials by the limit, and the effect of the
    /// list.
    pub(crate) fn among<'a>(
        callers: impl Iterator<Item = (u64, u64, &'a Hold)>,
        set_aside: Share,
    ) -> Self {
        let mut callers: Vec<_> = callers.collect();
        let never_over = callers.iter().filter(|(_, denied, hold)| *denied == 0 && hold.is_listed);
        let never_over = never_over.count();
        let excluded = set_aside.of_rounded_up(callers.len()).min(callers.len());
        callers.sort_by_key(|(fullest, ..)| std::cmp::Reverse(*fullest));
        let behaved = callers.get(excluded..).unwrap_or_default();
        Self {
            callers_never_over: never_over,
            well_behaved: behaved.len(),
            well_behaved_listed: behaved.iter().filter(|(.., hold)| hold.is_listed).count(),
            well_behaved_denied_within: behaved
                .iter()
                .fold(0, |sum, (.., hold)| sum.saturating_add(hold.within)),
        }
    }
}

/// The delays of a followed log: the wall clock's time minus the log's.
///
/// A log of whole seconds shows up to a second more than the true delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) lines: u64,
    pub(crate) worst_ns: u64,
    sum_ns: u64,
    /// The time of the oldest denial that is not on the published list yet.
    unpublished_ns: Option<u64>,
    pub(crate) worst_published_ns: u64,
}

impl Lag {
    /// Records that a line was decided.
    pub(crate) fn decided(&mut self, at_ns: u64, wall_ns: u64) {
        let delay_ns = wall_ns.saturating_sub(at_ns);
        self.lines = self.lines.saturating_add(1);
        self.worst_ns = self.worst_ns.max(delay_ns);
        self.sum_ns = self.sum_ns.saturating_add(delay_ns);
    }

    /// Records that a line was denied.
    pub(crate) fn denied(&mut self, at_ns: u64) {
        self.unpublished_ns = Some(self.unpublished_ns.map_or(at_ns, |oldest| oldest.min(at_ns)));
    }

    /// Records that the list was published.
    pub(crate) fn published(&mut self, wall_ns: u64) {
        if let Some(oldest_ns) = self.unpublished_ns.take() {
            self.worst_published_ns =
                self.worst_published_ns.max(wall_ns.saturating_sub(oldest_ns));
        }
    }

    /// Returns how long a denial takes until it is listed: the maximum seen, and at least the
    /// interval of publication.
    pub(crate) fn lead_ns(&self, poll_ns: u64) -> u64 {
        self.worst_ns.max(self.worst_published_ns).max(poll_ns)
    }

    pub(crate) fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.lines).unwrap_or(0)
    }

    pub(crate) fn overshoot(&self, max_in_second: u64) -> u64 {
        overshoot(max_in_second, self.worst_ns.max(self.worst_published_ns))
    }
}

/// Returns the maximum amount one caller can have passed over the limit before it was listed.
///
/// `max_in_second` is the amount in the fullest second of any caller. The bound is
/// `lambda_peak * D` and one second more, because `D` touches that many seconds; see
/// `docs/theory.md`, section 5.10.
pub(crate) fn overshoot(max_in_second: u64, delay_ns: u64) -> u64 {
    max_in_second.saturating_mul(delay_ns.div_ceil(SECOND_NS).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::{Decided, Effects, Hold, Lag, NeedlessDenials};
    use crate::SECOND_NS;
    use crate::settings::Share;

    fn call(at_ns: u64, is_denied: bool, is_warned: bool) -> Decided {
        Decided { at_ns, amount: 10, is_denied, is_warned }
    }

    /// S3.20: calls over the limit pass until the list has the caller, and not after.
    #[test]
    fn a_listed_caller_is_denied_once_the_list_is_known() {
        let (mut hold, mut effects) = (Hold::default(), Effects::default());
        for at_ns in 100..200 {
            let is_new = effects.count(&mut hold, call(at_ns, at_ns < 150, false), 30, Some(7));
            assert_eq!(is_new, at_ns == 100, "{at_ns}");
        }
        // The last denial is at 149, so the hold ends at 179; no call was held before 107.
        assert_eq!((effects.passed_over, effects.denied_over), (7, 43));
        assert_eq!((effects.denied_within, effects.passed_within), (29, 21));
        assert_eq!((effects.overshoot, effects.closings, effects.closings_early), (70, 1, 0));
        assert_eq!((hold.within, effects.sums()), (29, [28, 72]));
        // Over the limit again later, by less: the maximum stays.
        for at_ns in 300..303 {
            effects.count(&mut hold, call(at_ns, true, false), 30, Some(7));
        }
        assert_eq!((effects.overshoot, effects.closings), (70, 2));
    }

    /// An unpublished list denies no caller; a warning lists a caller before it is over the
    /// limit.
    #[test]
    fn a_list_holds_from_its_publication() {
        let (mut hold, mut effects) = (Hold::default(), Effects::default());
        assert!(effects.count(&mut hold, call(5, false, true), 100, None));
        assert!(!effects.count(&mut hold, call(6, true, true), 100, None));
        hold.published(8);
        hold.published(20);
        assert!(!effects.count(&mut hold, call(7, true, false), 100, None));
        assert!(!effects.count(&mut hold, call(8, false, false), 100, None));
        assert_eq!((effects.closings, effects.closings_early, effects.overshoot), (1, 1, 20));
        assert_eq!((effects.passed_over, effects.denied_within), (2, 1));
    }

    #[test]
    fn the_innocent_are_those_who_were_never_over_or_are_not_set_aside() {
        let listed = |within| Hold { is_listed: true, within, ..Hold::default() };
        let free = Hold::default();
        let (a, b, c) = (listed(3), listed(4), listed(5));
        let callers = [(90, 7, &a), (20, 0, &b), (30, 1, &c), (10, 0, &free)];
        let found = NeedlessDenials::among(callers.into_iter(), Share(250_000));
        let expected = NeedlessDenials {
            callers_never_over: 1,
            well_behaved: 3,
            well_behaved_listed: 2,
            well_behaved_denied_within: 9,
        };
        assert_eq!(found, expected);
    }

    /// S3.20: decisions from a log come late, and the amount that may pass meanwhile is bounded.
    #[test]
    fn what_passes_before_the_gate_closes_is_bounded() {
        let mut lag = Lag::default();
        lag.decided(10 * SECOND_NS, 11 * SECOND_NS);
        lag.decided(10 * SECOND_NS, 14 * SECOND_NS);
        lag.denied(12 * SECOND_NS);
        lag.denied(10 * SECOND_NS);
        lag.published(15 * SECOND_NS + 1);
        lag.published(99 * SECOND_NS);
        assert_eq!((lag.worst_ns, lag.mean_ns()), (4 * SECOND_NS, 2_500_000_000));
        assert_eq!(lag.worst_published_ns, 5 * SECOND_NS + 1);
        assert_eq!(lag.overshoot(30), 30 * 7);
        // A clock behind the log's finds no delay.
        lag.decided(10 * SECOND_NS, 9 * SECOND_NS);
        assert_eq!((lag.lines, lag.worst_ns), (3, 4 * SECOND_NS));
    }
}
