//! Limits that a slower clock slows down.

use crate::backfill_pool::BackfillPool;
use crate::error::LimitError;
use crate::fixed_window::{Anchor, FixedWindow};
use crate::gcra::Gcra;
use crate::pacer::Pacer;
use crate::policy::Policy;
use crate::sliding_log::SlidingLog;
use crate::two_timeline::TwoTimeline;

/// A limit whose permits come with time, counted from any instant.
///
/// A limit of operations in flight is none: a server that is three times slower at first has a
/// third of the rate under it already. A calendar is none either, as its days must not move.
/// Limits that follow measurements find the rate themselves.
///
/// A custom policy may be one if it keeps two laws:
///
/// * Its ceiling bounds windows of time wherever they lie, so that it holds by every clock that is
///   never faster.
/// * If a [fresh](Policy::fresh) limit is [as fresh](Policy::is_as_fresh) at once, it grants at
///   once whatever it ever grants.
pub trait Timed: Policy {
    /// Checks that these numbers can be slowed down.
    ///
    /// # Errors
    ///
    /// [`LimitError::WindowOnClock`] for windows on the clock's grid.
    fn check_timed(&self) -> Result<(), LimitError> {
        Ok(())
    }
}

impl Timed for Gcra {}
impl Timed for SlidingLog {}
impl Timed for Pacer {}
impl Timed for TwoTimeline {}
impl Timed for BackfillPool {}

impl Timed for FixedWindow {
    fn check_timed(&self) -> Result<(), LimitError> {
        match self.anchor() {
            Anchor::FirstCall => Ok(()),
            // Its windows would no longer be those of the clock.
            Anchor::Epoch => Err(LimitError::WindowOnClock),
        }
    }
}
