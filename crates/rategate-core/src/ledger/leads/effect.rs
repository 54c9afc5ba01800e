//! The effects of grants and holds on the TAT of a bucket, one by one and in rows.

use crate::exact::Pace;

/// The effect of a row of grants on a TAT: `max(TAT + shift, floor)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) shift: u128,
    pub(super) floor: u128,
}

/// A hold, and the grants after it.
// Without the padding of 128-bit numbers.
#[repr(C, packed(8))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) serial: u64,
    pub(super) end_ns: u64,
    /// The number of permits held; zero once it has been committed.
    pub(super) permits: u64,
    pub(super) start: u128,
    /// The effect of what it used, if it was committed, and of the grants after it.
    pub(super) after: Effect,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// The effect of all leaves now.
    pub(super) now: Effect,
    /// The effect of all leaves once the holds have ended.
    pub(super) ended: Effect,
    /// The ends of the first and the last of the holds.
    pub(super) ends_ns: Option<(u64, u64)>,
}

impl Leaf {
    pub(super) const fn is_held(&self, now_ns: u64) -> bool {
        self.permits > 0 && self.end_ns > now_ns
    }

    pub(super) fn effect(&self, pace: Pace, now_ns: u64) -> Effect {
        if self.is_held(now_ns) { self.own(pace).then(self.after) } else { self.after }
    }

    pub(super) fn node(&self, pace: Pace, now_ns: u64) -> Node {
        let (now, end) = (self.effect(pace, now_ns), self.end_ns);
        let ends_ns = self.is_held(now_ns).then_some((end, end));
        Node { now, ended: self.after, ends_ns }
    }

    /// Returns the effect of the hold alone.
    pub(super) fn own(&self, pace: Pace) -> Effect {
        Effect::of(self.start, parts_of(pace, self.permits))
    }

    pub(super) fn use_all(&mut self, pace: Pace) {
        self.after = self.own(pace).then(self.after);
        self.permits = 0;
    }
}

impl Node {
    pub(super) const NONE: Self = Self { now: Effect::NONE, ended: Effect::NONE, ends_ns: None };

    pub(super) fn then(self, next: Self) -> Self {
        let ends_ns = match (self.ends_ns, next.ends_ns) {
            (Some((first, last)), Some((next_first, next_last))) => {
                Some((first.min(next_first), last.max(next_last)))
            }
            (one, other) => one.or(other),
        };
        Self { now: self.now.then(next.now), ended: self.ended.then(next.ended), ends_ns }
    }
}

impl Effect {
    pub(super) const NONE: Self = Self { shift: 0, floor: 0 };

    /// Returns the effect of a grant at `start`.
    pub(super) const fn of(start: u128, parts: u128) -> Self {
        Self { shift: parts, floor: start.saturating_add(parts) }
    }

    pub(super) fn apply(self, tat: u128) -> u128 {
        tat.saturating_add(self.shift).max(self.floor)
    }

    pub(super) fn then(self, next: Self) -> Self {
        Self { shift: self.shift.saturating_add(next.shift), floor: next.apply(self.floor) }
    }
}

/// Returns the time of permits in parts.
pub(super) fn parts_of(pace: Pace, permits: u64) -> u128 {
    u128::from(pace.period_ns().get()).wrapping_mul(permits.into())
}
