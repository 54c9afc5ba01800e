//! The lead of each hold of a token bucket: how far the bucket could move back if it ended.
//!
//! A bucket's TAT is the latest of many terms, one for each grant so far: the instant of that
//! grant, moved on by all permits taken from then on. Permits that come back lower the terms of
//! their own grant and of all before it, and no later one:
//!
//! ```text
//!   terms    hold |
//!    x            |                the TAT is the highest term
//!    |   x        |                <- lowered by what comes back
//!    |   |        |  x             <- not lowered: the bucket cannot move back beyond it
//!    o---o--------o--o-----------> order of the grants
//!                 |<- a gap
//! ```
//!
//! Of the terms between two holds only the highest counts, and none that a later one exceeds: a
//! later one never falls behind it again. So the terms that are left decrease, and a *gap* at
//! each hold keeps the difference between the two beside it. What comes back shrinks one gap, and
//! when that has closed the one before it. No other gap changes.
//!
//! Proof that this is exact: with `S` permits before a grant at `s`, its term is
//! `s + T (total - S)`, and `TAT = max(s + T (total - S))` by induction over the grants. `d`
//! permits less in one grant lower `total` for all, and `S` for the later ones.

use crate::exact::{Exact, Pace};
use crate::ordered_map::OrderedMap;
use crate::policy::Bucket;

/// The leads of all holds of one bucket. A hold is named by its serial number.
#[derive(Clone, Debug, Default)]
pub(super) struct Leads {
    /// The gaps behind the highest term, by the newest hold before each.
    gaps: OrderedMap<u64, Gap>,
    /// The sum of all gaps.
    total: Exact,
    /// The number of holds behind the last term.
    open: u64,
    /// The newest hold.
    newest: u64,
    /// Of this hold and all before it nothing can come back: time has made up for them.
    made_up: u64,
}

/// In three words: there may be a million.
#[derive(Clone, Copy, Debug)]
struct Gap {
    ns: u64,
    /// The nanoseconds beyond 64 bits. A longer gap is taken for one of 96 bits, which is 10^12
    /// years.
    beyond: u32,
    /// The number of holds that have not ended.
    holds: u32,
    part: u64,
}

impl Gap {
    fn new(length: Exact, holds: u64) -> Self {
        let holds = u32::try_from(holds).unwrap_or(u32::MAX);
        let (ns, beyond) = match u32::try_from(length.ns >> u64::BITS) {
            Ok(beyond) => (u64::try_from(length.ns & u128::from(u64::MAX)).unwrap_or(0), beyond),
            Err(_) => (u64::MAX, u32::MAX),
        };
        Self { ns, beyond, holds, part: length.part }
    }

    fn length(self) -> Exact {
        let ns = (u128::from(self.beyond) << u64::BITS) | u128::from(self.ns);
        Exact { ns, part: self.part }
    }
}

impl Leads {
    /// Adds the grant that was taken last.
    pub(super) const fn add(&mut self, serial: u64) {
        self.open = self.open.saturating_add(1);
        self.newest = serial;
    }

    /// Returns the leads of holds of which nothing can come back, up to the hold `newest`.
    pub(super) fn made_up_to(newest: u64) -> Self {
        Self { newest, made_up: newest, ..Self::default() }
    }

    /// Follows a grant at `start`, before the bucket takes it.
    pub(super) fn follow(&mut self, Bucket { tat, pace }: Bucket, start: Exact) {
        let mut last = pace.sub(tat, self.total);
        let mut holds = self.open;
        while start >= last {
            let Some((_, gap)) = self.gaps.pop_last() else {
                *self = Self::made_up_to(self.newest);
                return;
            };
            last = pace.add(last, gap.length());
            self.total = pace.sub(self.total, gap.length());
            holds = holds.saturating_add(gap.holds.into());
        }
        if holds == 0 {
            return;
        }
        let mut length = pace.sub(last, start);
        if self.gaps.last_key_value().is_some_and(|(_, before)| before.holds == 0)
            && let Some((_, before)) = self.gaps.pop_last()
        {
            let before = before.length();
            self.total = pace.sub(self.total, before);
            length = pace.add(length, before);
        }
        let gap = Gap::new(length, holds);
        self.total = pace.add(self.total, gap.length());
        self.gaps.insert(self.newest, gap);
        self.open = 0;
    }

    /// Ends a hold of which `back` permits' time comes back. Returns the bucket after that, as if
    /// they had never been taken.
    pub(super) fn end(&mut self, bucket: Bucket, serial: u64, back: Exact) -> Bucket {
        if serial <= self.made_up {
            return bucket;
        }
        let Bucket { tat, pace } = bucket;
        let Some((newest, gap)) = self.gaps.at_or_after_mut(serial) else {
            self.open = self.open.saturating_sub(1);
            return Bucket { tat: pace.sub(tat, back), pace };
        };
        gap.holds = gap.holds.saturating_sub(1);
        let made_up = self.shrink(pace, newest, back);
        self.join_next(pace, newest);
        Bucket { tat: pace.sub(tat, pace.sub(back, made_up)), pace }
    }

    /// Follows permits of no certain grant that come back at `now` and move the bucket back by
    /// `back`, before they do.
    ///
    /// They count as fewer permits taken from then on. So all terms fall alike, and none below
    /// `now`, as after a grant of no permits.
    pub(super) fn follow_credit(&mut self, bucket: Bucket, now: Exact, back: Exact) {
        self.follow(bucket, bucket.pace.add(now, back));
    }

    /// Follows permits of an earlier grant `serial` that came back without a hold; zero for an
    /// unknown grant.
    ///
    /// The highest term between two holds may be that of a later grant, which does not fall. So
    /// the gap before the grant shrinks, or the first one. The leads are then small enough.
    pub(super) fn follow_return(&mut self, pace: Pace, serial: u64, back: Exact) {
        let mut left = back;
        while left > Exact::default()
            && let Some((&newest, _)) =
                self.gaps.before(serial).or_else(|| self.gaps.first_key_value())
        {
            left = self.shrink(pace, newest, left);
        }
    }

    /// Follows a change of the rate. A gap shrinks by less than one part of a nanosecond.
    pub(super) fn rescale(&mut self, old: Pace, new: Pace) {
        self.total = Exact::default();
        for gap in self.gaps.values_mut() {
            let length = new.sub(old.rescale(gap.length(), new), new.from_parts(1));
            *gap = Gap::new(length, gap.holds.into());
            self.total = new.add(self.total, gap.length());
        }
    }

    /// Shortens a gap, and those before it once it has closed. Returns what is left when all have.
    fn shrink(&mut self, pace: Pace, newest: u64, by: Exact) -> Exact {
        let mut left = by;
        let own = self.gaps.at_or_after_mut(newest).filter(|(key, _)| *key == newest);
        let Some((_, gap)) = own else { return left };
        if left < gap.length() {
            *gap = Gap::new(pace.sub(gap.length(), left), gap.holds.into());
            self.total = pace.sub(self.total, left);
            return Exact::default();
        }
        let Some(gap) = self.gaps.remove(&newest) else { return left };
        let (mut length, mut holds) = (gap.length(), u64::from(gap.holds));
        while left >= length {
            left = pace.sub(left, length);
            self.total = pace.sub(self.total, length);
            let Some((&before, _)) = self.gaps.before(newest) else {
                self.made_up = newest;
                return left;
            };
            let Some(before) = self.gaps.remove(&before) else { return left };
            holds = holds.saturating_add(before.holds.into());
            length = before.length();
        }
        self.total = pace.sub(self.total, left);
        self.gaps.insert(newest, Gap::new(pace.sub(length, left), holds));
        Exact::default()
    }

    /// Joins a gap without holds with the next one.
    fn join_next(&mut self, pace: Pace, newest: u64) {
        let Some(&empty) = self.gaps.get(&newest).filter(|gap| gap.holds == 0) else { return };
        let next = self.gaps.at_or_after_mut(newest.saturating_add(1));
        if let Some((_, next)) = next {
            let length = pace.add(next.length(), empty.length());
            let joined = Gap::new(length, next.holds.into());
            self.total = pace.sub(self.total, pace.sub(length, joined.length()));
            *next = joined;
            self.gaps.remove(&newest);
        }
    }
}
