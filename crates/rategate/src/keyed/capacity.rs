//! The capacity of a table, and the treatment of keys beyond it.

/// The default capacity of a table, in keys.
pub const DEFAULT_KEYS: usize = 65_536;

/// The largest capacity of a table, in keys.
pub const MAX_KEYS: usize = 1 << 30;

/// The default limit on the bytes of states beyond the table's own.
pub const DEFAULT_BYTES: usize = 64 << 20;

/// The capacity of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The most keys, from 1 to [`MAX_KEYS`]; a value outside counts as the nearest bound.
    ///
    /// Memory for their slots is allocated at once, and touched as keys come.
    pub max_keys: usize,
    /// The most bytes that states take on the heap, besides the slots.
    ///
    /// They are logs that have grown, the states of schedules, warm-ups, slow starts and adaptive
    /// rates, of some 90 to 300 bytes, and the [limiters](super::Keyed::limiter) of keys in use.
    /// The last call before the bound may exceed it by what one key can grow by.
    pub max_bytes: usize,
    /// The treatment of new keys when the table is full.
    pub overflow: Overflow,
}

impl Capacity {
    /// Creates a capacity of `max_keys` keys. New keys in a full table share a limit.
    #[must_use]
    pub fn for_keys(max_keys: usize) -> Self {
        Self { max_keys, ..Self::default() }
    }

    /// Returns this capacity with another treatment of new keys in a full table.
    #[must_use]
    pub const fn or_else(self, overflow: Overflow) -> Self {
        Self { overflow, ..self }
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Self { max_keys: DEFAULT_KEYS, max_bytes: DEFAULT_BYTES, overflow: Overflow::default() }
    }
}

/// The treatment of a new key when the table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overflow {
    /// All new keys of a tier share one limit of its policy.
    ///
    /// A key that is admitted later may have used some of that before.
    #[default]
    Share,
    /// New keys are refused: [`KeyedError::TableFull`](super::KeyedError::TableFull).
    Refuse,
    /// New keys pass without any limit.
    Admit,
}
