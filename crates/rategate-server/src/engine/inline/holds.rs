//! Permits of inline limits that reservations hold.

use std::time::Duration;

use rategate::charge::Hold;
use rategate::error::KeyedError;
use rategate::keyed::{JointDecision, try_hold_all};
use rategate::{Clock, Status};
use rategate_core::span::whole_ns;

use super::{InlineLimit, Numbers};

impl<N: InlineLimit, C: Clock + Clone> Numbers<N, C> {
    /// Holds permits of a key of the table for a time, where as many more as are spared would pass,
    /// or returns how long until they do.
    pub(in crate::engine) fn try_hold(
        &self,
        key: &[u8],
        (permits, spared): (u64, u64),
        ttl: Duration,
    ) -> Result<Result<Hold<C>, Option<Duration>>, KeyedError>
    where
        C: 'static,
    {
        let estimate = self.table.estimate(key, permits).sparing(spared);
        match try_hold_all(&[estimate], ttl).map_err(|error| error.error)? {
            JointDecision::Granted(mut held) => held.pop().map(Ok).ok_or(KeyedError::Closed),
            JointDecision::Denied { retry_after, .. } => Ok(Err(retry_after)),
        }
    }

    /// Records the end of a hold, which left this status.
    pub(in crate::engine) fn note_end(&self, clock: &C, status: &Status) {
        self.note(clock.now_ns(), status.fresh_in.map_or(u64::MAX, whole_ns));
    }
}
