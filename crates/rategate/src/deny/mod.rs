//! Deny lists: clients that are not admitted, and until when, consulted without a round trip.
//!
//! This is the relaxed way to keep a limit across machines: no decision delays the work. A tool
//! reads the logs later, such as `rategate analyze --gate`, and lists the clients that were
//! over the limit; each machine consults its copy of the list. Calls that pass before their
//! client is listed are over the limit. So this is for limits over minutes and clients that
//! take too much of a common resource, not for a strict ceiling.
//!
//! | task | item |
//! |---|---|
//! | to check whether a client is denied | [`DenyList::denied_for`] |
//! | to follow a list in a file | [`DenyFile`] |
//! | to use a list from any other source | [`DenyList::replace`] |
//! | to write such a file | [`write()`] |
//! | to name a client by its address | [`AddressGroups::name`] |
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
//! Ends are instants of the wall clock, because a file has no other. A machine whose clock is
//! ahead of the writer's by `d` admits a client too early by `d`, and one whose clock is behind
//! too late; both report a wait that is right by their own clock. Setting a clock moves all
//! ends with it.
//!
//! # Cost
//!
//! A check takes one hash and, as a rule, one cache line: some tens of nanoseconds. It takes no
//! lock and writes nothing, so readers wait neither for each other nor for a replacement. The
//! list is replaced as a whole: a reader sees the old one or the new one, never a mixture.

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
pub use self::text::{Entry, FileError, InvalidLine, MAX_NAME_BYTES, escaped};

/// The largest capacity of a list, in clients.
pub const MAX_LISTED: usize = 16_777_216;

/// A deny list in memory, for clients identified by a `K`, by default their names in bytes.
///
/// It is a handle: clones share the list. It has a fixed capacity, and takes 48 to 96 bytes of
/// memory for each entry in each of its two tables; unused memory is never touched.
///
/// Expired entries deny no client, and stay until the next [`replace`](Self::replace).
pub struct DenyList<K: Key + ?Sized = [u8]> {
    shared: Arc<Shared<K>>,
}

struct Shared<K: Key + ?Sized> {
    seeds: Seeds,
    table: Table<K::Id>,
    keys: PhantomData<fn(&K)>,
}

/// The result of a replacement: the clients listed, and the entries left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// The number of clients on the list.
    pub listed: usize,
    /// The number of entries that exceeded the capacity.
    pub left_out: usize,
}

impl<K: Key + ?Sized> DenyList<K> {
    /// Creates an empty list with a capacity of `max_entries` clients, from 1 to [`MAX_LISTED`].
    ///
    /// Other values count as the nearest of these. If the memory cannot be allocated, the capacity
    /// is 0.
    #[must_use]
    pub fn new(max_entries: usize) -> Self {
        let table = Table::new(max_entries.clamp(1, MAX_LISTED));
        let seeds = Seeds::random(Hashing::FloodSafe);
        Self { shared: Arc::new(Shared { seeds, table, keys: PhantomData }) }
    }

    /// Returns how long the client is still denied, by the wall clock; `None` admits it.
    #[must_use]
    #[inline]
    pub fn denied_for(&self, key: &K) -> Option<Duration> {
        self.denied_for_at(key, wall_ns())
    }

    /// Returns how long the client is denied from an instant on, in nanoseconds of Unix time.
    ///
    /// An entry denies before its end, and not at it.
    #[must_use]
    #[inline]
    pub fn denied_for_at(&self, key: &K, now_ns: u64) -> Option<Duration> {
        let until_ns = self.until_ns(key)?.get();
        let left_ns = until_ns.checked_sub(now_ns).filter(|left_ns| *left_ns > 0)?;
        Some(Duration::from_nanos(left_ns))
    }

    /// Returns the end of the client's entry, in nanoseconds of Unix time, even if it is past.
    #[must_use]
    #[inline]
    pub fn until_ns(&self, key: &K) -> Option<NonZeroU64> {
        NonZeroU64::new(self.shared.table.until_ns(key.id(&self.shared.seeds), &self.shared.seeds))
    }

    /// Returns the id by which the list identifies a client.
    #[must_use]
    #[inline]
    pub fn id(&self, key: &K) -> K::Id {
        key.id(&self.shared.seeds)
    }

    /// Replaces the whole list by these clients, each with the end of its denial.
    ///
    /// Ends are in nanoseconds of Unix time. Of several entries for one client the latest counts.
    /// Of more entries than the capacity, the first ones are taken.
    ///
    /// Readers go on meanwhile; a second replacement waits for the first.
    pub fn replace(&self, entries: impl IntoIterator<Item = (K::Id, u64)>) -> Replaced {
        self.shared.table.replace(entries, &self.shared.seeds)
    }

    /// Returns the number of clients on the list, including expired entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.table.len()
    }

    /// Returns `true` if the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the capacity of the list, in clients.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.table.max_entries()
    }

    /// Returns the number of replacements of the list.
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
