//! How much a table may hold, and what becomes of others.

/// How many keys a table has room for if not said otherwise.
pub const DEFAULT_KEYS: usize = 65_536;

/// The most keys that a table has room for.
pub const MAX_KEYS: usize = 1 << 30;

/// How many bytes states may take besides the table's own if not said otherwise.
pub const DEFAULT_BYTES: usize = 64 << 20;

/// How much a table may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The most keys, from 1 to [`MAX_KEYS`]; what is beyond counts as these. Memory for their slots is asked for
    /// at once, and touched as keys come.
    pub most_keys: usize,
    /// The most bytes that states take on the heap, besides the slots: logs that have grown, and the
    /// [limiters](super::Keyed::limiter) of keys that somebody waits for. The last call before the bound
    /// may go over it by what one key can grow by.
    pub most_bytes: usize,
    /// What becomes of a newcomer when there is no room.
    pub overflow: Overflow,
}

impl Room {
    /// Room for so many keys. Newcomers to a full table share a limit.
    #[must_use]
    pub fn for_keys(most_keys: usize) -> Self {
        Self { most_keys, ..Self::default() }
    }

    /// The same with another fate for newcomers to a full table.
    #[must_use]
    pub const fn or_else(self, overflow: Overflow) -> Self {
        Self { overflow, ..self }
    }
}

impl Default for Room {
    fn default() -> Self {
        Self { most_keys: DEFAULT_KEYS, most_bytes: DEFAULT_BYTES, overflow: Overflow::default() }
    }
}

/// What becomes of a newcomer when no key near its place can be forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// All newcomers of a tier together share one limit of its policy. A newcomer who is given a place
    /// later may have used some of that before.
    #[default]
    Share,
    /// Newcomers are refused: [`KeyedError::TableFull`](super::KeyedError::TableFull).
    Refuse,
    /// Newcomers pass without any limit.
    Admit,
}
