//! Holds of any policy behind one type.

use std::fmt;
use std::time::Duration;

use rategate::charge::{Committed, Hold};
use rategate::error::Closed;

use crate::clock::Clock;

/// An estimate of what an operation uses. Dropped, it is cancelled.
pub trait Held: Send + fmt::Debug {
    /// Returns the number of permits held.
    fn permits(&self) -> u64;

    /// Returns the instant at which the hold ends by itself, on the limiter's clock.
    fn ends_at(&self) -> Duration;

    /// Ends the hold: the operation has used `actual` permits.
    ///
    /// # Errors
    ///
    /// As of [`Hold::commit`].
    fn commit(self: Box<Self>, actual: u64) -> Result<Committed, Closed>;

    /// Ends the hold: nothing was used. Returns `true` if that came before it ended by itself.
    fn cancel(self: Box<Self>) -> bool;

    /// Ends the hold, all of which counts as used.
    fn keep(self: Box<Self>);
}

impl<P> Held for Hold<P, Clock>
where
    P: rategate::policy::LimiterPolicy<Limit: Send>,
{
    fn permits(&self) -> u64 {
        self.permits()
    }

    fn ends_at(&self) -> Duration {
        self.ends_at()
    }

    fn commit(self: Box<Self>, actual: u64) -> Result<Committed, Closed> {
        (*self).commit(actual)
    }

    fn cancel(self: Box<Self>) -> bool {
        // A commit of nothing is a cancel, and says if it was late.
        matches!((*self).commit(0), Ok(Committed::InTime(_)))
    }

    fn keep(self: Box<Self>) {
        (*self).keep();
    }
}
