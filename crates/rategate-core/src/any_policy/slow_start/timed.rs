//! Limits that a slower clock slows down.

use crate::any_policy::AnyPolicy;
use crate::backfill_pool::BackfillPool;
use crate::error::LimitError;
use crate::fixed_window::FixedWindow;
use crate::gcra::Gcra;
use crate::sliding_log::SlidingLog;
use crate::two_timeline::TwoTimeline;

/// A limit whose permits come with time, counted from any instant. Two laws hold for each:
///
/// * Its ceiling bounds windows of time wherever they lie, so that it holds by every clock that is
///   never faster.
/// * If a fresh limit is as fresh at once, it grants at once whatever it ever grants.
///
/// A limit of operations in flight is none: a server that is three times slower at first has a
/// third of the rate under it already. Windows of the clock or of a calendar are none either, as
/// they must not move. Limits that follow measurements find the rate themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub(super) enum Timed {
    Gcra(Gcra),
    SlidingLog(SlidingLog),
    FixedWindow(FixedWindow),
    TwoTimeline(TwoTimeline),
    BackfillPool(BackfillPool),
}

impl Timed {
    pub(super) fn new(policy: AnyPolicy) -> Result<Self, LimitError> {
        Ok(match policy {
            AnyPolicy::Gcra(policy) => Self::Gcra(policy),
            AnyPolicy::SlidingLog(policy) => Self::SlidingLog(policy),
            AnyPolicy::FixedWindow(policy) if policy.starts_at_grant() => Self::FixedWindow(policy),
            AnyPolicy::FixedWindow(policy) if policy.calendar().is_none() => {
                return Err(LimitError::WindowOnClock);
            }
            AnyPolicy::TwoTimeline(policy) => Self::TwoTimeline(policy),
            AnyPolicy::BackfillPool(policy) => Self::BackfillPool(policy),
            _ => return Err(LimitError::NotTimed),
        })
    }

    pub(super) const fn any(self) -> AnyPolicy {
        match self {
            Self::Gcra(policy) => AnyPolicy::Gcra(policy),
            Self::SlidingLog(policy) => AnyPolicy::SlidingLog(policy),
            Self::FixedWindow(policy) => AnyPolicy::FixedWindow(policy),
            Self::TwoTimeline(policy) => AnyPolicy::TwoTimeline(policy),
            Self::BackfillPool(policy) => AnyPolicy::BackfillPool(policy),
        }
    }
}
