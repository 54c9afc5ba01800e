//! The limit itself, for each caller, on the log's own clock: the library's table of keys.

use rategate::{
    AnyPolicy, HashedId, Hashing, Keyed, KeyedError, ManualClock, Overflow, Room, Seeds,
    TryAllError, try_all,
};

/// What states may take besides their slots: so much for each key, and at least the table's default.
const BYTES_PER_KEY: usize = 1_024;

/// What the limit says to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    Denied,
    /// More than ever passes at once.
    TooLarge,
}

/// The limits of all callers.
#[derive(Debug)]
pub(super) struct Judge {
    clock: ManualClock,
    tables: Vec<Keyed<HashedId, AnyPolicy, ManualClock>>,
}

impl Judge {
    /// Remembers at most `most_keys` callers who are not at rest. Beyond them newcomers pass without a limit,
    /// and are [counted](Self::overflows).
    pub(super) fn new(policies: &[AnyPolicy], most_keys: usize) -> Self {
        let clock = ManualClock::new();
        let room = Room::for_keys(most_keys).or_else(Overflow::Admit);
        let most_bytes = most_keys.saturating_mul(BYTES_PER_KEY).max(room.most_bytes);
        let room = Room { most_bytes, ..room };
        let table = |policy: &AnyPolicy| {
            Keyed::with_hashing(*policy, room, Hashing::FloodSafe, clock.clone())
        };
        Self { tables: policies.iter().map(table).collect(), clock }
    }

    /// What the names of callers are hashed with.
    pub(super) fn seeds(&self) -> Seeds {
        self.tables
            .first()
            .map_or_else(|| Seeds::random(Hashing::FloodSafe), |table| table.seeds().clone())
    }

    /// Moves the clock.
    pub(super) fn set(&self, now_ns: u64) {
        self.clock.set(now_ns);
    }

    /// Asks every limit for `permits`: all of them, or none.
    pub(super) fn ask(&self, id: HashedId, permits: u64) -> Verdict {
        let answer = match self.tables.as_slice() {
            [table] => table.try_acquire(&id, permits).map(|decision| decision.is_granted()),
            tables => {
                let asks: Vec<_> = tables.iter().map(|table| table.ask(&id, permits)).collect();
                let together = try_all(&asks).map(|together| together.is_granted());
                together.map_err(|TryAllError { error, .. }| error)
            }
        };
        match answer {
            Ok(false) => Verdict::Denied,
            Err(KeyedError::ExceedsCapacity(_)) => Verdict::TooLarge,
            // Newcomers to a full table are admitted, and nobody closes what nobody holds.
            Ok(true) | Err(_) => Verdict::Allowed,
        }
    }

    /// How many permits of the first limit are left.
    pub(super) fn left(&self, id: HashedId) -> u64 {
        self.tables.first().and_then(|table| table.remaining(&id).ok()).unwrap_or(u64::MAX)
    }

    /// How many calls have found no room, and passed without being asked.
    pub(super) fn overflows(&self) -> u64 {
        self.tables.iter().map(Keyed::overflows).fold(0, u64::saturating_add)
    }
}
