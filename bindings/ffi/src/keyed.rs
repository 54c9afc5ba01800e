//! A limit for each key, behind one type.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use rategate::error::KeyedError;
use rategate::keyed::Capacity;
use rategate::{AnyPolicy, Decision};

use crate::clock::Clock;
use crate::limiter::Limiter;

/// The table that a [`Keyed`] keeps its limits in.
pub type Table = rategate::Keyed<str, AnyPolicy, Clock>;

/// A limit for each key, under one policy, in bounded memory.
#[derive(Clone, Debug)]
pub struct Keyed {
    table: Table,
    /// The count of the [limiters](Self::limiter) of all keys: two handles of one key keep one
    /// order. A caller may go on behind one of another key, until the loop drains its hub.
    untaken: Arc<AtomicUsize>,
}

impl Keyed {
    /// Creates a table.
    #[must_use]
    pub fn new(policy: AnyPolicy, capacity: Capacity, clock: Clock) -> Self {
        Self { table: Table::with_clock(policy, capacity, clock), untaken: Arc::default() }
    }

    /// Takes `permits` of a key at once, or not at all.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::try_acquire`].
    #[inline]
    pub fn try_acquire(&self, key: &str, permits: u64) -> Result<Decision, KeyedError> {
        self.table.try_acquire(key, permits)
    }

    /// Returns the limiter of a key, which waits and has every other verb.
    ///
    /// # Errors
    ///
    /// As of [`rategate::Keyed::limiter`].
    pub fn limiter(&self, key: &str) -> Result<Limiter, KeyedError> {
        Ok(Limiter::of_key(self.table.limiter(key)?, Arc::clone(&self.untaken)))
    }

    /// Returns the table, for its verbs that take a key.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }
}
