//! The figures of a quarter of an hour, second by second.

use std::collections::VecDeque;

use serde::Serialize;

use super::tally::{Kind, Sum};

/// The number of seconds that are kept.
pub(super) const SECONDS: usize = 900;

/// The figures of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Second {
    /// The requested permits, whatever the outcome.
    #[serde(rename = "requested_permits")]
    pub(super) requested: u64,
    /// The permits that were granted.
    #[serde(rename = "granted_permits")]
    pub(super) granted: u64,
    /// The permits of items that were denied.
    #[serde(rename = "denied_permits")]
    pub(super) denied: u64,
    /// The permits of items that left less than a tenth of the limit.
    #[serde(rename = "near_permits")]
    pub(super) near: u64,
    /// The items that passed: granted, or admitted while the store was unavailable.
    #[serde(rename = "passed")]
    pub(super) passed_calls: u64,
    /// The items that were denied.
    #[serde(rename = "denied")]
    pub(super) denied_calls: u64,
    /// The items that would have been denied if the rule were enforced for them.
    #[serde(rename = "shadow_denied")]
    pub(super) shadow_calls: u64,
    /// The granted items that left less than a tenth of the limit.
    #[serde(rename = "near")]
    pub(super) near_calls: u64,
}

/// The newest seconds of a rule. Counters are read when a second ends, so an item at that very
/// moment may count in the next second. No item is lost or counted twice.
#[derive(Debug, Default)]
pub(super) struct Series {
    seconds: VecDeque<Second>,
    /// The Unix second after the newest.
    end_s: u64,
    before: Sum,
}

impl Series {
    /// Records the items until the end of the second before `now_s`. A late call distributes them
    /// evenly over the seconds that were missed; a repeated call within a second changes nothing.
    pub(super) fn tick(&mut self, now_s: u64, sum: &Sum) {
        if self.end_s == 0 {
            (self.end_s, self.before) = (now_s, *sum);
            return;
        }
        let missed = now_s.saturating_sub(self.end_s);
        if missed == 0 {
            return;
        }
        let new = Second::of(&sum.since(&self.before));
        let retained = usize::try_from(missed).unwrap_or(usize::MAX).min(SECONDS);
        for left in (1..=missed).rev().take(retained) {
            if self.seconds.len() >= SECONDS {
                self.seconds.pop_front();
            }
            self.seconds.push_back(new.share(missed, missed.saturating_sub(left)));
        }
        (self.end_s, self.before) = (now_s, *sum);
    }

    /// Returns the newest `max` seconds, the oldest first, with its Unix second.
    pub(super) fn newest_of(&self, max: usize) -> (u64, impl Iterator<Item = &Second>) {
        let left_out = self.seconds.len().saturating_sub(max);
        let count = self.seconds.len().saturating_sub(left_out);
        let count = u64::try_from(count).unwrap_or(0);
        (self.end_s.saturating_sub(count), self.seconds.iter().skip(left_out))
    }

    /// Returns the Unix second after the newest.
    pub(super) const fn end_s(&self) -> u64 {
        self.end_s
    }

    /// Returns the newest complete second.
    pub(super) fn newest(&self) -> Second {
        self.seconds.back().copied().unwrap_or_default()
    }

    /// Returns the sum of the newest `seconds` seconds.
    pub(super) fn newest_sum(&self, seconds: usize) -> Second {
        self.seconds.iter().rev().take(seconds).fold(Second::default(), Second::and)
    }
}

impl Second {
    fn of(sum: &Sum) -> Self {
        let both =
            |of: fn(&Sum, Kind) -> u64, [a, b]: [Kind; 2]| of(sum, a).saturating_add(of(sum, b));
        let passed = [Kind::Granted, Kind::UnreachableAdmitted];
        let refused = [Kind::Denied, Kind::UnreachableDenied];
        let (granted, denied) = (both(Sum::permits, passed), both(Sum::permits, refused));
        Self {
            requested: granted
                .saturating_add(denied)
                .saturating_add(sum.permits(Kind::ShadowDenied)),
            granted,
            denied,
            near: sum.permits(Kind::Near),
            passed_calls: both(Sum::items, passed),
            denied_calls: both(Sum::items, refused),
            shadow_calls: sum.items(Kind::ShadowDenied),
            near_calls: sum.items(Kind::Near),
        }
    }

    /// Returns the number of items of all outcomes.
    pub(super) const fn calls(&self) -> u64 {
        self.passed_calls.saturating_add(self.denied_calls).saturating_add(self.shadow_calls)
    }

    fn and(self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Returns the share of one of `of` seconds. The shares add up to the whole.
    fn share(self, of: u64, nth: u64) -> Self {
        self.with(&self, |value, _| {
            let whole = value.checked_div(of).unwrap_or(0);
            whole.saturating_add(u64::from(nth < value.checked_rem(of).unwrap_or(0)))
        })
    }

    fn with(&self, other: &Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requested: each(self.requested, other.requested),
            granted: each(self.granted, other.granted),
            denied: each(self.denied, other.denied),
            near: each(self.near, other.near),
            passed_calls: each(self.passed_calls, other.passed_calls),
            denied_calls: each(self.denied_calls, other.denied_calls),
            shadow_calls: each(self.shadow_calls, other.shadow_calls),
            near_calls: each(self.near_calls, other.near_calls),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally::Tally;
    use super::*;

    #[test]
    fn a_quarter_of_an_hour_is_kept_and_no_more() {
        let (mut series, tally) = (Series::default(), Tally::new());
        for second in 1..=2_000 {
            tally.add(Kind::Granted, second);
            series.tick(second, &tally.sum());
        }
        let (from_s, newest) = series.newest_of(usize::MAX);
        let requested: Vec<u64> = newest.map(|second| second.requested).collect();
        // Items until the end of a second are recorded with the next one.
        assert_eq!((from_s, requested.len()), (1_100, SECONDS));
        assert_eq!((requested[0], requested[SECONDS - 1]), (1_101, 2_000));
        // A long gap does not extend what is kept.
        series.tick(1_000_000, &tally.sum());
        assert_eq!(series.newest_of(usize::MAX).1.count(), SECONDS);
        assert_eq!(series.newest_sum(SECONDS), Second::default());
    }

    /// Each outcome has its permits: those over a limit that is not enforced are neither granted
    /// nor denied.
    #[test]
    fn permits_are_counted_by_outcome() {
        let (mut series, tally) = (Series::default(), Tally::new());
        series.tick(100, &tally.sum());
        for (kind, permits) in [
            (Kind::Granted, 11),
            (Kind::Near, 10),
            (Kind::Denied, 100),
            (Kind::ShadowDenied, 1_000),
            (Kind::UnreachableDenied, 10_000),
        ] {
            tally.add(kind, permits);
        }
        series.tick(101, &tally.sum());
        let Second { requested, granted, denied, near, .. } = series.newest();
        assert_eq!((requested, granted, denied, near), (11_111, 11, 10_100, 10));
        let twice = series.newest().and(&series.newest());
        assert_eq!((twice.denied, twice.near), (20_200, 20));
    }

    #[test]
    fn a_late_tick_spreads_what_has_accumulated() {
        let (mut series, tally) = (Series::default(), Tally::new());
        series.tick(100, &tally.sum());
        for _ in 0..10 {
            tally.add(Kind::Denied, 2);
        }
        series.tick(103, &tally.sum());
        let rows: Vec<_> = series
            .newest_of(SECONDS)
            .1
            .map(|second| (second.requested, second.granted, second.denied_calls))
            .collect();
        assert_eq!(rows, [(7, 0, 4), (7, 0, 3), (6, 0, 3)]);
    }
}
