//! Limiters as bytes: a snapshot of the library, in memory in place of a file.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use rategate::snapshot::{Downtime, SavedAt, Snapshot, SnapshotError};
use rategate::{Clock as _, MonotonicClock};

use crate::clock::Clock;
use crate::policies::Policies;

/// An error of restoring a limiter: the policies that were given, and what was found.
#[derive(Debug)]
pub struct RestoreError {
    policies: Policies,
    found: SnapshotError,
}

impl RestoreError {
    pub(crate) fn new(policies: &Policies, found: SnapshotError) -> Self {
        Self { policies: policies.clone(), found }
    }

    /// Returns the reason.
    #[must_use]
    pub const fn found(&self) -> &SnapshotError {
        &self.found
    }
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` cannot continue from these bytes: {}", self.policies, self.found)
    }
}

impl Error for RestoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.found)
    }
}

pub(crate) fn written(snapshot: &Snapshot) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = Vec::new();
    snapshot.write_to(&mut bytes)?;
    Ok(bytes)
}

/// Reads a snapshot that all of these bytes are.
pub(crate) fn read(saved: &[u8]) -> Result<Snapshot, SnapshotError> {
    let mut rest = saved;
    let snapshot = Snapshot::read_from(&mut rest)?;
    if rest.is_empty() {
        return Ok(snapshot);
    }
    let at_byte = u64::try_from(saved.len().saturating_sub(rest.len())).unwrap_or(u64::MAX);
    Err(SnapshotError::Malformed { at_byte })
}

/// Returns the clock of a restored limiter, and the time that has passed for it.
pub(crate) fn going_on(
    clock: Clock,
    saved_at: &SavedAt,
    max_downtime: Option<Duration>,
) -> (Clock, Downtime) {
    match clock {
        Clock::Real(_) => {
            let by_wall = max_downtime.map_or(Downtime::Wall, Downtime::AtMost);
            let since = saved_at.going_on(by_wall);
            let clock = MonotonicClock::starting_at(Duration::from_nanos(since.now_ns));
            // The wall clock is read once, so that it is not set between the clock and the state.
            let passed = Duration::from_nanos(since.elapsed_ns);
            (Clock::Real(clock), Downtime::Exactly(passed))
        }
        Clock::Manual(clock) => {
            let passed_ns = clock.now_ns().saturating_sub(saved_at.clock_ns());
            let passed = Duration::from_nanos(passed_ns);
            let passed = max_downtime.map_or(passed, |max| passed.min(max));
            (Clock::Manual(clock), Downtime::Exactly(passed))
        }
    }
}
