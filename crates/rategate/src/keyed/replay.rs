//! Replay of recorded calls against limits, on a clock that shows when each call came.
//!
//! A limit decides about past traffic as it would have live, only on another clock, so nothing is
//! estimated: the lines of a log, or arrivals that a service has recorded, go through the same
//! tables.
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate::keyed::{Replay, ReplayOutcome};
//! use rategate::keyed::NumberId;
//! use rategate::{AnyPolicy, SlidingLog};
//!
//! let limit = AnyPolicy::from(SlidingLog::new(2, Duration::from_secs(1)));
//! let replay: Replay<u64> = Replay::new(&[limit], 1_000);
//! let denied = [0, 100, 200, 1_100].map(|at_ms: u64| {
//!     replay.set(Duration::from_millis(at_ms));
//!     replay.attempt(&7, 1) == ReplayOutcome::Denied
//! });
//! assert_eq!(denied, [false, false, true, false]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

use crate::error::{KeyedError, TryAllError};
use crate::keyed::{Capacity, Hashing, Key, Overflow, Seeds, try_all};
use crate::{AnyPolicy, Keyed, ManualClock};

/// The bytes of states besides their slots, for each key. All keys together have at least the
/// table's default.
const BYTES_PER_KEY: usize = 1_024;

/// The decision about a replayed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// The call passes.
    Allowed,
    /// The call is over a limit.
    Denied,
    /// The call needs more permits than ever pass at once.
    TooLarge,
}

/// Limits for each key, all of which a call has to pass, and the clock that they share.
#[derive(Debug)]
pub struct Replay<K: Key> {
    clock: ManualClock,
    tables: Vec<Keyed<K, ManualClock>>,
}

impl<K: Key> Replay<K> {
    /// Creates a replay that tracks at most `max_keys` keys whose limits have not recovered.
    ///
    /// Further keys pass without a limit, and are [counted](Self::overflows).
    #[must_use]
    pub fn new(policies: &[AnyPolicy], max_keys: usize) -> Self {
        let clock = ManualClock::new();
        let capacity = Capacity::for_keys(max_keys).or_else(Overflow::Admit);
        let max_bytes = max_keys.saturating_mul(BYTES_PER_KEY).max(capacity.max_bytes);
        let capacity = Capacity { max_bytes, ..capacity };
        let table = |policy: &AnyPolicy| {
            Keyed::with_hashing(*policy, capacity, Hashing::FloodSafe, clock.clone())
        };
        Self { tables: policies.iter().map(table).collect(), clock }
    }

    /// Returns the seeds that keys are hashed with.
    #[must_use]
    pub fn seeds(&self) -> Seeds {
        self.tables
            .first()
            .map_or_else(|| Seeds::random(Hashing::FloodSafe), |table| table.seeds().clone())
    }

    /// Sets the clock to the time of the next call, since any origin.
    pub fn set(&self, at: Duration) {
        self.clock.set(at);
    }

    /// Decides about `permits` of every limit: takes all of them, or none.
    pub fn attempt(&self, key: &K, permits: u64) -> ReplayOutcome {
        let answer = match self.tables.as_slice() {
            [table] => table.try_acquire(key, permits).map(|decision| decision.is_granted()),
            tables => {
                let attempts: Vec<_> =
                    tables.iter().map(|table| table.attempt(key, permits)).collect();
                let together = try_all(&attempts).map(|together| together.is_granted());
                together.map_err(|TryAllError { error, .. }| error)
            }
        };
        match answer {
            Ok(false) => ReplayOutcome::Denied,
            Err(KeyedError::ExceedsCapacity(_)) => ReplayOutcome::TooLarge,
            // New keys of a full table are admitted, and no caller here closes a limiter.
            Ok(true) | Err(_) => ReplayOutcome::Allowed,
        }
    }

    /// Returns the number of permits that are left of the first limit.
    #[must_use]
    pub fn left(&self, key: &K) -> u64 {
        self.tables.first().and_then(|table| table.remaining(key).ok()).unwrap_or(u64::MAX)
    }

    /// Returns the number of calls that found the tables full and passed undecided.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.tables.iter().map(Keyed::overflows).fold(0, u64::saturating_add)
    }
}
