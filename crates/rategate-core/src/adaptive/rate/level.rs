//! The level of a bucket whose rate changes.

/// The parts of a permit: a rate of a millionth per second makes up for one in each nanosecond.
pub(super) const PERMIT: u128 = 1_000_000_000_000_000;
const SIGNED_PERMIT: i128 = 1_000_000_000_000_000;

/// The permits in use at an instant, in exact parts.
///
/// They go back to none at the rate, which may change at any time: what is in use is permits, not
/// their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    at_ns: u64,
    /// In parts. Negative by less than a nanosecond's worth after a promise, whose instant was
    /// rounded up.
    parts: i128,
}

impl Level {
    pub(super) const fn at(now_ns: u64) -> Self {
        Self { at_ns: now_ns, parts: 0 }
    }

    pub(super) fn from_parts(at_ns: u64, parts: u128) -> Self {
        Self { at_ns, parts: i128::try_from(parts).unwrap_or(i128::MAX) }
    }

    /// Returns the instant, and the parts in use.
    pub(super) fn to_parts(self) -> (u64, u128) {
        (self.at_ns, u128::try_from(self.parts).unwrap_or(0))
    }

    /// Returns the level at a later instant; at an earlier one, itself.
    pub(super) fn at_ns(self, now_ns: u64, rate: u64) -> Self {
        let fallen = self.fallen(now_ns, rate);
        if now_ns < self.at_ns { self } else { Self { parts: fallen.max(0), at_ns: now_ns } }
    }

    /// Returns the level at the start of a promise: what falls below none in the last nanosecond is
    /// what the instant was rounded up by.
    pub(super) fn at_promise(self, start_ns: u64, rate: u64) -> Self {
        let fallen = self.fallen(start_ns, rate);
        let is_rounded = fallen.saturating_add(rate.into()) > 0;
        Self { parts: if is_rounded { fallen } else { 0 }, at_ns: self.at_ns.max(start_ns) }
    }

    fn fallen(self, now_ns: u64, rate: u64) -> i128 {
        let passed_ns = i128::from(now_ns.saturating_sub(self.at_ns));
        self.parts.saturating_sub(passed_ns.saturating_mul(rate.into()))
    }

    /// Returns the first instant at which at most `permits` are in use.
    pub(super) fn falls_to(self, permits: u64, rate: u64) -> u128 {
        let above = self.parts.saturating_sub(parts(permits));
        let at_ns = u128::from(self.at_ns);
        // The rate is at least 1.
        let rate = u128::from(rate);
        let ns = above.unsigned_abs().checked_div(rate).unwrap_or(u128::MAX);
        if above <= 0 {
            return at_ns.saturating_sub(ns);
        }
        at_ns.saturating_add(above.unsigned_abs().div_ceil(rate.max(1)))
    }

    pub(super) fn add(&mut self, permits: u64) {
        self.parts = self.parts.saturating_add(parts(permits));
    }

    pub(super) fn sub(&mut self, permits: u64) {
        self.parts = self.parts.saturating_sub(parts(permits)).max(0);
    }

    /// Returns the number of permits in use beyond so many, including one in part.
    pub(super) fn above(self, permits: u64) -> u64 {
        let above = self.parts.saturating_sub(parts(permits)).max(0).unsigned_abs();
        u64::try_from(above.div_ceil(PERMIT)).unwrap_or(u64::MAX)
    }

    /// Returns how many whole permits are missing to so many.
    pub(super) fn room_to(self, permits: u64) -> u64 {
        self.room_within(permits, 0, 0)
    }

    /// Returns how many whole permits are missing to so many, and those of a time.
    pub(super) fn room_within(self, permits: u64, debt_ns: u64, rate: u64) -> u64 {
        let debt = i128::from(debt_ns).saturating_mul(rate.into());
        let most = parts(permits).saturating_add(debt);
        let room = most.saturating_sub(self.parts).max(0).unsigned_abs();
        u64::try_from(room / PERMIT).unwrap_or(u64::MAX)
    }
}

fn parts(permits: u64) -> i128 {
    SIGNED_PERMIT.saturating_mul(permits.into())
}
