//! Permits that come back after their start, because they turned out to have had no effect.
//!
//! A limit may give out again what came back only as far as it is then at least as full as if those
//! permits had never been taken. For a log that is easily said: their instants leave it. A bucket
//! knows no instants, and what it has earned since may have made up for the permits already:
//!
//! ```text
//!   bucket of 3     taken: 1          full again      back: 1?
//!   level    3 ---> 2 .............. 3 ------------- 3      no: without the taking it would have
//!   without  3 ---- 3 -------------- 3 ------------- 3          been full, and earned nothing
//!                   |<-- earned, and lost without -->|
//! ```
//!
//! So a grant is told *until when the limit could not have been at rest without it*. Until then
//! taking the permits has moved the schedule by their time and nothing else, and moving it back is
//! exact. Of what is older, only so much can come back as the time since has not made up for. Two
//! things spoil that instant, and are counted: permits of others that have come back since, by so
//! much it was sooner; and a change of the numbers, after which it says nothing.

use crate::exact::{Exact, Pace};

/// What had come back to a limit by some moment, and how often its numbers had changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Past(u64);

/// A change of the numbers counts as more permits than could come back within one grant's time.
const CHANGE: u64 = 1 << 32;

impl Past {
    /// Nobody has looked.
    pub const UNKNOWN: Self = Self(0);
    /// Nothing so far.
    pub const NONE: Self = Self(1);

    /// From the bits that it was kept as.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// For whoever keeps it in a word.
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

    /// The same for limits that are made afresh after the numbers have changed `changes` times: what
    /// grants of before say holds for none of them.
    #[must_use]
    pub const fn after_changes(changes: u32) -> Self {
        // Less than a change short of the end, so this cannot wrap to where it was.
        #[expect(clippy::as_conversions, reason = "widening, in a constant")]
        Self(Self::NONE.0.wrapping_add((changes as u64).wrapping_mul(CHANGE)))
    }

    /// Since `then`. `None` if the numbers have changed meanwhile, or may have.
    pub(crate) fn returned_since(self, then: Self) -> Option<u64> {
        let since = self.0.wrapping_sub(then.0);
        (then != Self::UNKNOWN && since < CHANGE).then_some(since)
    }

    /// Whether since `then` the numbers have changed once, and nothing has come back.
    pub(crate) const fn is_one_change_since(self, then: Self) -> bool {
        self.0.wrapping_sub(then.0) == CHANGE
    }
}

/// How a grant left its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rest {
    /// Without the grant, the limit could not have been at rest before this instant, had nothing
    /// come back.
    BusyUntil(u64),
    /// So much was left to take behind it, in parts of a permit: what a twin can say without a
    /// division.
    Spare {
        /// How many parts.
        parts: u64,
        /// How many make a permit.
        parts_per_permit: u64,
    },
}

/// Permits of a grant that are to come back, as a policy is told of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// The instant of asking, not before the start.
    pub now_ns: u64,
    /// When the grant started.
    pub start_ns: u64,
    /// How many permits it was of.
    pub granted: u64,
    /// How many of them are to come back: not more than that.
    pub permits: u64,
    /// How it left the limit.
    pub rest: Rest,
    /// How many permits of others have come back since it was booked. `None` if the numbers have
    /// changed meanwhile, or may have.
    pub returned: Option<u64>,
}

impl Refund {
    /// Permits of which it is known that the limit could not have been at rest since without them.
    #[must_use]
    pub const fn proven(now_ns: u64, permits: u64) -> Self {
        let rest = Rest::BusyUntil(u64::MAX);
        Self { now_ns, start_ns: now_ns, granted: permits, permits, rest, returned: Some(0) }
    }

    /// How many come back to a limit whose whole state is one instant that each permit moves on by
    /// its time: a bucket's TAT, or the end of what a schedule lets its callers catch up on.
    ///
    /// `at` is that instant now, `behind` what it was behind the grant, or anything sooner, had
    /// nothing come back since. Proof, with `T` one permit's time, and the limit without the permits
    /// `D` behind the limit with them: right behind the grant `D` is their time. A later grant
    /// at `s` moves both on from where they are, or from `s` if they lie before it; so `D` shrinks
    /// only where the one without them lies before `s`, and what is left then is the other's distance
    /// from `s`, which is at least `behind - s`. Hence `D >= min(permits T, behind - now)`.
    ///
    /// And if the instant is still that behind the grant, nothing has been taken since: both
    /// stand where they stood, however long ago.
    pub(crate) fn permits_behind(&self, pace: Pace, at: Exact, behind: Exact) -> u64 {
        let Some(returned) = self.returned else { return 0 };
        let returned = pace.time_of(returned);
        if behind < returned {
            return 0;
        }
        let behind = pace.sub(behind, returned);
        // `behind` may be known to the nanosecond only, so less than that must make no permit.
        let tells_permits = pace.time_of(1) >= Exact::at(1);
        let is_newest = at >= behind && pace.sub(at, behind) < Exact::at(1);
        if tells_permits && is_newest {
            return self.permits;
        }
        let left = pace.permits_in(pace.sub(behind, Exact::at(self.now_ns.into())));
        u64::try_from(left).unwrap_or(u64::MAX).min(self.permits)
    }
}
