//! A deny list in memory that follows one in a store.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rategate::deny::{DenyList, Refreshed};
use rategate::keyed::Key;
use rategate::store::StoreError;

use super::RedisStore;
use crate::denied::{Fetched, Version};

/// The default interval between requests to the store.
const DEFAULT_EVERY: Duration = Duration::from_secs(1);

/// A deny list in memory that follows one in a store: that of
/// `rategate analyze --gate redis://…`, or any other that is
/// [published](RedisStore::extend_denied) in the same form.
///
/// It does nothing in the background: a thread, a timer or a task has to call
/// [`refresh`](Self::refresh). For a list that has not changed, a refresh is one request of a few
/// bytes.
///
/// An unavailable store changes nothing: the old list stays, and each entry ends when it was due
/// to. A store that has lost the list returns an empty one, so the copy is empty too until the
/// publisher adds the clients again.
///
/// Entries end by this machine's clock, and the remaining time is counted from when the request
/// was sent. So no client is denied for longer than the store says, and the denial is shorter by
/// at most the duration of the request.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::thread;
/// use std::time::Duration;
///
/// use rategate::deny::DenyList;
/// use rategate_redis::client::denied::DenyCopy;
/// use rategate_redis::client::{Config, RedisStore, Server};
///
/// let store = Arc::new(RedisStore::open(Config::server(Server::tcp("127.0.0.1", 6379)))?);
/// let list: DenyList = DenyList::new(65_536);
/// let copy = DenyCopy::new(store, "denied", list.clone());
/// thread::spawn(move || {
///     loop {
///         if let Err(fault) = copy.refresh() {
///             eprintln!("the deny list: {fault}");
///         }
///         thread::sleep(Duration::from_secs(1));
///     }
/// });
/// if let Some(wait) = list.denied_for(b"10.0.0.7") {
///     println!("come again in {wait:?}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DenyCopy<K: Key + ?Sized = [u8]> {
    store: Arc<RedisStore>,
    name: Box<[u8]>,
    list: DenyList<K>,
    id_of: IdOf<K>,
    every_ns: u64,
    /// The earliest time of the next request to the store.
    next_ns: AtomicU64,
    seen: Mutex<Seen>,
}

/// The function that maps a name to a key of the list, if the name is that of a key.
type IdOf<K> = Box<dyn Fn(&DenyList<K>, &[u8]) -> Option<<K as Key>::Id> + Send + Sync>;

/// The version of the copy, and the count of the requests for it.
struct Seen {
    version: Version,
    /// The number of requests begun, and the one that brought the current copy.
    attempts: u64,
    newest: u64,
}

/// A request to the store that has begun.
struct FetchAttempt {
    number: u64,
    /// Unix time when the request was sent.
    sent_ns: u64,
}

impl DenyCopy {
    /// Creates a copy that lets `list` follow the list called `name`. No request is sent yet.
    #[must_use]
    pub fn new(store: Arc<RedisStore>, name: impl AsRef<[u8]>, list: DenyList) -> Self {
        Self::with_names(store, name, list, |list, name| Some(list.id(name)))
    }
}

impl<K: Key + ?Sized> DenyCopy<K> {
    /// Creates a copy for a list of keys other than names; `id_of` maps a name to a key.
    #[must_use]
    pub fn with_names(
        store: Arc<RedisStore>,
        name: impl AsRef<[u8]>,
        list: DenyList<K>,
        id_of: impl Fn(&DenyList<K>, &[u8]) -> Option<K::Id> + Send + Sync + 'static,
    ) -> Self {
        Self {
            store,
            name: name.as_ref().into(),
            list,
            id_of: Box::new(id_of),
            every_ns: nanoseconds(DEFAULT_EVERY),
            next_ns: AtomicU64::new(0),
            seen: Mutex::new(Seen { version: Version::NONE, attempts: 0, newest: 0 }),
        }
    }

    /// Sets the minimum interval of [`refresh_if_due`](Self::refresh_if_due). The default is one
    /// second.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every_ns = nanoseconds(every);
        self
    }

    /// Returns the list in memory.
    #[must_use]
    pub const fn list(&self) -> &DenyList<K> {
        &self.list
    }

    /// Fetches the list from the store, and replaces the one in memory if it has changed.
    ///
    /// Blocks this thread until the store has replied, or for [as long as that may
    /// take](super::denied). In a task, use [`refresh_async`](Self::refresh_async).
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the list is unchanged then.
    pub fn refresh(&self) -> Result<Refreshed, StoreError> {
        let (attempt, known) = self.begin();
        let found = self.store.fetch_denied(&self.name, known).wait()?;
        Ok(self.end(&attempt, found))
    }

    /// Fetches the list like [`refresh`](Self::refresh), without blocking the thread.
    ///
    /// # Errors
    ///
    /// As for [`refresh`](Self::refresh).
    pub async fn refresh_async(&self) -> Result<Refreshed, StoreError> {
        let (attempt, known) = self.begin();
        let found = self.store.fetch_denied(&self.name, known).await?;
        Ok(self.end(&attempt, found))
    }

    /// Calls [`refresh`](Self::refresh) if [`every`](Self::every) has passed, on any clock that
    /// does not go back.
    ///
    /// When a refresh is due, one of the callers makes it. The others get `None`, and so do all
    /// callers before.
    pub fn refresh_if_due(&self, now_ns: u64) -> Option<Result<Refreshed, StoreError>> {
        self.is_due(now_ns).then(|| self.refresh())
    }

    /// Calls [`refresh_async`](Self::refresh_async) if it is due, like
    /// [`refresh_if_due`](Self::refresh_if_due).
    pub async fn refresh_if_due_async(&self, now_ns: u64) -> Option<Result<Refreshed, StoreError>> {
        if self.is_due(now_ns) { Some(self.refresh_async().await) } else { None }
    }

    fn is_due(&self, now_ns: u64) -> bool {
        let due_ns = self.next_ns.load(Ordering::Relaxed);
        let next_ns = now_ns.saturating_add(self.every_ns);
        let order = Ordering::Relaxed;
        now_ns >= due_ns && self.next_ns.compare_exchange(due_ns, next_ns, order, order).is_ok()
    }

    fn begin(&self) -> (FetchAttempt, Version) {
        let mut seen = self.seen();
        seen.attempts = seen.attempts.saturating_add(1);
        (FetchAttempt { number: seen.attempts, sent_ns: wall_ns() }, seen.version)
    }

    /// Applies a reply. Two requests at a time may end in any order; the result of the later
    /// request stays.
    fn end(&self, attempt: &FetchAttempt, found: Option<Fetched>) -> Refreshed {
        let mut seen = self.seen();
        let Some(found) = found.filter(|_| attempt.number > seen.newest) else {
            return Refreshed::Unchanged;
        };
        let mut unknown = 0_usize;
        let known = found.entries.iter().filter_map(|entry| {
            let id = (self.id_of)(&self.list, &entry.name);
            unknown = unknown.saturating_add(usize::from(id.is_none()));
            Some((id?, attempt.sent_ns.saturating_add(entry.left_ns)))
        });
        let entries = self.list.replace(known);
        seen.version = found.version;
        seen.newest = attempt.number;
        Refreshed::Replaced { entries, unknown }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Only `id_of` can panic while the lock is held, and then the version is still the old
        // one.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns Unix time now, the clock by which the list denies.
fn wall_ns() -> u64 {
    nanoseconds(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl<K: Key + ?Sized> fmt::Debug for DenyCopy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DenyCopy")
            .field("name", &rategate::deny::escaped(&self.name))
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Config, Server};
    use crate::denied::{Listed, Version};

    /// Replies may overtake each other: the later request has the newer list.
    #[test]
    fn an_older_fetch_changes_nothing() {
        let store = RedisStore::open(Config::server(Server::tcp("127.0.0.1", 1))).unwrap();
        let copy = DenyCopy::new(Arc::new(store), "noisy", DenyList::new(9));
        let found = |name: &[u8]| {
            let entries = vec![Listed { name: name.to_vec(), left_ns: 1_000_000_000 }];
            Some(Fetched { version: Version::NONE, entries })
        };
        let ((first, _), (second, _)) = (copy.begin(), copy.begin());
        assert!(matches!(copy.end(&second, found(b"new")), Refreshed::Replaced { .. }));
        assert_eq!(copy.end(&first, found(b"old")), Refreshed::Unchanged);
        assert!(copy.list().until_ns(b"new").is_some() && copy.list().until_ns(b"old").is_none());
        assert!(matches!(copy.end(&copy.begin().0, found(b"old")), Refreshed::Replaced { .. }));
    }
}
