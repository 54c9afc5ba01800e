//! Who is not welcome, and until when: a list that somebody else keeps, consulted without asking anybody.
//!
//! The relaxed way to hold a limit over many machines: the work is not delayed by a decision. Somebody reads the logs
//! later, `rategate analyze --gate` for one, and lists who was over the limit; each machine consults its copy of the
//! list. What passes until a caller is listed is over the limit, so this is for limits over minutes and
//! callers who take too much of what all share, not for a ceiling that has to hold.
//!
//! | I want | it is |
//! |---|---|
//! | to ask whether a caller may come | [`DenyList::denied_for`] |
//! | a list from a file that changes | [`DenyFile`] |
//! | a list from a store that changes | `DenyCopy` of `rategate-redis` |
//! | a list from anywhere else | [`DenyList::replace`] |
//! | to write such a file | [`write()`] |
//! | the name of a caller by its address | [`AddressGroups::name`] |
//!
//! # Smallest example
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate::deny::DenyList;
//!
//! let list: DenyList = DenyList::new(10_000);
//! let now_ns = 1_790_000_000_000_000_000;
//! list.replace([(list.id(b"10.0.0.7"), now_ns + 5_000_000_000)]);
//!
//! assert_eq!(list.denied_for_at(b"10.0.0.7", now_ns), Some(Duration::from_secs(5)));
//! assert_eq!(list.denied_for_at(b"10.0.0.7", now_ns + 5_000_000_000), None);
//! assert_eq!(list.denied_for_at(b"10.0.0.8", now_ns), None);
//! ```
//!
//! # Time
//!
//! Ends are instants of the wall clock, because a file has no other. A machine whose clock is ahead of the writer's by
//! `d` lets a caller in by `d` too early, one whose clock is behind by `d` too late; both tell the caller a wait that is
//! right by their own clock. A clock that is set moves all ends with it. Where the writer tells how long is left instead, as
//! a store does, the ends are instants of the reader's own clock and no other clock matters.
//!
//! # Cost
//!
//! A question takes one hash and, as a rule, one line of memory: some tens of nanoseconds. It takes no lock and
//! writes nothing, so readers do not wait for each other, nor for a list that is being replaced. The list is replaced
//! as a whole: a reader sees the old one or the new one, never a part of each.

mod address;
mod file;
mod table;
mod text;

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::wall_ns;
use crate::keyed::{Hashing, Key, Seeds};

use self::table::Table;

pub use self::address::AddressGroups;
pub use self::file::{DenyFile, Refreshed, read, write};
pub use self::text::{Entry, FileError, MAX_NAME_BYTES, Wrong, escaped};

/// The most callers a list can have.
pub const MAX_LISTED: usize = 16_777_216;

/// A deny list in memory, for callers that are told apart by a `K`: by their names, if nothing else is said.
///
/// A handle: clones share the list. It has a bound, and 48 to 96 bytes of memory for each entry; what is never used
/// is never touched.
///
/// Entries whose time is over deny nobody, and stay until the next [`replace`](Self::replace).
pub struct DenyList<K: Key + ?Sized = [u8]> {
    shared: Arc<Shared<K>>,
}

struct Shared<K: Key + ?Sized> {
    seeds: Seeds,
    table: Table<K::Id>,
    keys: PhantomData<fn(&K)>,
}

/// What became of the entries of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// How many callers are on the list.
    pub listed: usize,
    /// How many entries found no place.
    pub left_out: usize,
}

impl<K: Key + ?Sized> DenyList<K> {
    /// An empty list with room for `most` callers, from 1 to [`MAX_LISTED`]; other numbers count as the nearest
    /// of these. Where so much memory is not to be had, there is room for none.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let table = Table::new(most.clamp(1, MAX_LISTED));
        let seeds = Seeds::random(Hashing::FloodSafe);
        Self { shared: Arc::new(Shared { seeds, table, keys: PhantomData }) }
    }

    /// How long the caller is denied yet, by the machine's wall clock; `None` lets it in.
    #[must_use]
    #[inline]
    pub fn denied_for(&self, key: &K) -> Option<Duration> {
        self.denied_for_at(key, wall_ns())
    }

    /// The same at an instant, in nanoseconds of Unix time. Exact: an entry denies until its end, and not at it.
    #[must_use]
    #[inline]
    pub fn denied_for_at(&self, key: &K, now_ns: u64) -> Option<Duration> {
        let until_ns = self.until_ns(key)?.get();
        let left_ns = until_ns.checked_sub(now_ns).filter(|left_ns| *left_ns > 0)?;
        Some(Duration::from_nanos(left_ns))
    }

    /// When the caller's entry ends, in nanoseconds of Unix time, whether that is over or not.
    #[must_use]
    #[inline]
    pub fn until_ns(&self, key: &K) -> Option<NonZeroU64> {
        NonZeroU64::new(self.shared.table.until_ns(key.id(&self.shared.seeds), &self.shared.seeds))
    }

    /// What the list knows a caller by.
    #[must_use]
    #[inline]
    pub fn id(&self, key: &K) -> K::Id {
        key.id(&self.shared.seeds)
    }

    /// Puts another list in the place of this one: callers, and in nanoseconds of Unix time when each is
    /// welcome again. Of several entries for one caller the latest counts. Of more than there is room for, the first ones
    /// are taken.
    ///
    /// Readers go on meanwhile; a second replacement waits for the first.
    pub fn replace(&self, entries: impl IntoIterator<Item = (K::Id, u64)>) -> Replaced {
        self.shared.table.replace(entries, &self.shared.seeds)
    }

    /// How many callers are on the list, those included whose time is over.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.table.len()
    }

    /// Whether nobody is on the list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// For how many callers there is room.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.table.most()
    }

    /// How often the list has been replaced.
    #[must_use]
    pub fn replacements(&self) -> u64 {
        self.shared.table.replacements()
    }
}

impl<K: Key + ?Sized> Clone for DenyList<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Key + ?Sized> fmt::Debug for DenyList<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyList")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("replacements", &self.replacements())
            .finish_non_exhaustive()
    }
}
