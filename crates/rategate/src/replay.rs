//! Limits asked about calls of the past: on a clock that shows when each of them came.
//!
//! What a limit would have done to traffic is what it does to it on another clock, so there is nothing to estimate: a
//! log's lines, or arrivals that a service has recorded, are put to the very tables that decide live.
//!
//! ```
//! use rategate::replay::{Replay, Said};
//! use rategate::{AnyPolicy, NumberId, SlidingLog};
//!
//! let limit = AnyPolicy::from(SlidingLog::new(2, 1_000_000_000)?);
//! let replay: Replay<u64> = Replay::new(&[limit], 1_000);
//! let denied = [0, 100, 200, 1_100].map(|at_ms: u64| {
//!     replay.set(at_ms * 1_000_000);
//!     replay.ask(&7, 1) == Said::Denied
//! });
//! assert_eq!(denied, [false, false, true, false]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{
    AnyPolicy, Hashing, Key, Keyed, KeyedError, ManualClock, Overflow, Room, Seeds, TryAllError,
    try_all,
};

/// What states may take besides their slots: so much for each key, and at least the table's default.
const BYTES_PER_KEY: usize = 1_024;

/// What the limits say to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It passes.
    Allowed,
    /// It is over a limit.
    Denied,
    /// More than ever passes at once.
    TooLarge,
}

/// Limits for each key, all of which a call has to pass, and the clock that they share.
#[derive(Debug)]
pub struct Replay<K: Key> {
    clock: ManualClock,
    tables: Vec<Keyed<K, AnyPolicy, ManualClock>>,
}

impl<K: Key> Replay<K> {
    /// Remembers at most `most_keys` keys that are not at rest. Beyond them newcomers pass without a limit, and are
    /// [counted](Self::overflows).
    #[must_use]
    pub fn new(policies: &[AnyPolicy], most_keys: usize) -> Self {
        let clock = ManualClock::new();
        let room = Room::for_keys(most_keys).or_else(Overflow::Admit);
        let most_bytes = most_keys.saturating_mul(BYTES_PER_KEY).max(room.most_bytes);
        let room = Room { most_bytes, ..room };
        let table = |policy: &AnyPolicy| {
            Keyed::with_hashing(*policy, room, Hashing::FloodSafe, clock.clone())
        };
        Self { tables: policies.iter().map(table).collect(), clock }
    }

    /// What keys are hashed with.
    #[must_use]
    pub fn seeds(&self) -> Seeds {
        self.tables
            .first()
            .map_or_else(|| Seeds::random(Hashing::FloodSafe), |table| table.seeds().clone())
    }

    /// Moves the clock.
    pub fn set(&self, now_ns: u64) {
        self.clock.set(now_ns);
    }

    /// Asks every limit for `permits`: all of them, or none.
    pub fn ask(&self, key: &K, permits: u64) -> Said {
        let answer = match self.tables.as_slice() {
            [table] => table.try_acquire(key, permits).map(|decision| decision.is_granted()),
            tables => {
                let asks: Vec<_> = tables.iter().map(|table| table.ask(key, permits)).collect();
                let together = try_all(&asks).map(|together| together.is_granted());
                together.map_err(|TryAllError { error, .. }| error)
            }
        };
        match answer {
            Ok(false) => Said::Denied,
            Err(KeyedError::ExceedsCapacity(_)) => Said::TooLarge,
            // Newcomers to a full table are admitted, and nobody closes what nobody holds.
            Ok(true) | Err(_) => Said::Allowed,
        }
    }

    /// How many permits of the first limit are left.
    #[must_use]
    pub fn left(&self, key: &K) -> u64 {
        self.tables.first().and_then(|table| table.remaining(key).ok()).unwrap_or(u64::MAX)
    }

    /// How many calls have found no room, and passed without being asked.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.tables.iter().map(Keyed::overflows).fold(0, u64::saturating_add)
    }
}
