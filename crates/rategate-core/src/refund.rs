//! Refunds: permits that come back after their start, because they turned out to have had no
//! effect.
//!
//! A limit may grant refunded permits again only while it stays at least as full as if they had
//! never been taken. For a log that is simple: their instants leave it. A bucket knows no
//! instants, and what it has earned since may have made up for the permits already:
//!
//! ```text
//!   bucket of 3     taken: 1          full again      back: 1?
//!   level    3 ---> 2 .............. 3 ------------- 3      no: without the grant it would have
//!   without  3 ---- 3 -------------- 3 ------------- 3          been full, and earned nothing
//!                   |<-- earned, and lost without -->|
//! ```
//!
//! So a ticket records *until when the limit could not have been at rest without the grant*.
//! Until then taking the permits has moved the schedule by their time and nothing else, and
//! moving it back is exact. Of an older grant, only so much can come back as the time since has
//! not made up for.
//!
//! Two things spoil that instant, and are counted. Other permits that have come back since make
//! it earlier, by their time. After a change of the numbers it says nothing.

use crate::exact::{Exact, Pace};

/// A count of what has come back to a limit, and of how often its numbers have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RefundEpoch(u64);

/// The count of one change of the numbers: more permits than could come back within one grant's
/// time.
const CHANGE: u64 = 1 << 32;

impl RefundEpoch {
    /// An unknown count, of which nothing can be concluded.
    pub const UNKNOWN: Self = Self(0);
    /// The count of a limit to which nothing has come back.
    pub const NONE: Self = Self(1);

    /// Restores the count from its [bits](Self::bits).
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the count as bits, for callers that store it in a word.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn and_returned(self, permits: u64) -> Self {
        let permits = if permits < CHANGE { permits } else { CHANGE };
        Self(self.0.wrapping_add(permits))
    }

    pub(crate) const fn and_changed(self) -> Self {
        Self(self.0.wrapping_add(CHANGE))
    }

    /// Returns how many permits have come back since `then`, or `None` if the numbers have
    /// changed since, or may have.
    pub(crate) fn returned_since(self, then: Self) -> Option<u64> {
        let since = self.0.wrapping_sub(then.0);
        (then != Self::UNKNOWN && since < CHANGE).then_some(since)
    }
}

/// A request to take back permits of a grant, as a policy receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// The instant of the refund, not before the start.
    pub now_ns: u64,
    /// The instant at which the grant started.
    pub start_ns: u64,
    /// The number of permits granted.
    pub granted: u64,
    /// The number of permits to come back, at most `granted`.
    pub permits: u64,
    /// The instant before which, without the grant, the limit could not have been at rest, had
    /// nothing come back.
    pub busy_until_ns: u64,
    /// The number of other permits that have come back since it was booked. `None` if the numbers
    /// have changed since, or may have.
    pub returned: Option<u64>,
}

impl Refund {
    /// Returns a refund of permits without which the limit is known not to have been at rest since.
    #[must_use]
    pub const fn proven(now_ns: u64, permits: u64) -> Self {
        let (start_ns, busy_until_ns) = (now_ns, u64::MAX);
        Self { now_ns, start_ns, granted: permits, permits, busy_until_ns, returned: Some(0) }
    }

    /// Returns how many permits come back to a limit whose whole state is one instant that each
    /// permit moves on by its time: a bucket's TAT, or the end of what a schedule lets its
    /// callers catch up on.
    ///
    /// `at` is that instant now. `behind` is that instant right after the grant, or anything
    /// sooner, had nothing come back since.
    ///
    /// Proof, with `T` one permit's time, and the limit without the permits `D` behind the limit
    /// with them. Right after the grant `D` is their time. A later grant at `s` moves both on
    /// from where they are, or from `s` if they lie before it. So `D` shrinks only where the one
    /// without them lies before `s`; what is left then is the other's distance from `s`, which is
    /// at least `behind - s`. Hence `D >= min(permits T, behind - now)`.
    ///
    /// If the instant still equals `behind`, nothing has been taken since, and both stand where
    /// they stood, however long ago.
    pub(crate) fn permits_behind(&self, pace: Pace, at: Exact, behind: Exact) -> u64 {
        let Some(returned) = self.returned else { return 0 };
        let returned = pace.time_of(returned);
        if behind < returned {
            return 0;
        }
        let behind = pace.sub(behind, returned);
        // `behind` may be known to the nanosecond only, so less than that must make no permit.
        let separates_permits = pace.time_of(1) >= Exact::at(1);
        let is_newest = at >= behind && pace.sub(at, behind) < Exact::at(1);
        if separates_permits && is_newest {
            return self.permits;
        }
        let left = pace.permits_in(pace.sub(behind, Exact::at(self.now_ns.into())));
        u64::try_from(left).unwrap_or(u64::MAX).min(self.permits)
    }
}
