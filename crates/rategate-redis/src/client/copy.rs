//! A list in memory that follows one in a store.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rategate::Key;
use rategate::deny::{DenyList, Refreshed};
use rategate::store::Fault;

use super::RedisStore;
use crate::denied::{Fetched, Version};

/// How often the store is asked, if nothing else is said.
const DEFAULT_EVERY: Duration = Duration::from_secs(1);

/// A list that follows one in a store: that of `rategate analyze --gate redis://…`, or any that is
/// [published](RedisStore::extend_denied) like it.
///
/// It does nothing in the background: somebody has to [`refresh`](Self::refresh) it, from a thread, a timer or a task.
/// A look at a list that has not changed is one question of a few bytes.
///
/// A store that is gone changes nothing: the old list stays, and its entries end by themselves, each when it was
/// told to. A store that has lost the list has an empty one, and so has the copy, until whoever publishes puts the callers
/// back.
///
/// Entries end by this machine's clock: what the store says is left is counted from when it was asked. So nobody is
/// denied for longer than the store says, and for less by no more than the question took.
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
///             eprintln!("the list of who is denied: {fault}");
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
    /// When the store may be asked again.
    next_ns: AtomicU64,
    seen: Mutex<Seen>,
}

/// By what a list knows the caller of a name, if it is the name of one.
type IdOf<K> = Box<dyn Fn(&DenyList<K>, &[u8]) -> Option<<K as Key>::Id> + Send + Sync>;

/// Which list the copy is of.
struct Seen {
    version: Version,
    /// How many looks have begun, and which of them brought the copy.
    looks: u64,
    newest: u64,
}

/// A question to the store that has begun.
struct Look {
    number: u64,
    /// Unix time as it was sent.
    sent_ns: u64,
}

impl DenyCopy {
    /// Lets a list follow the one of this name in the store. Nothing is asked yet.
    #[must_use]
    pub fn new(store: Arc<RedisStore>, name: impl AsRef<[u8]>, list: DenyList) -> Self {
        Self::with_names(store, name, list, |list, name| Some(list.id(name)))
    }
}

impl<K: Key + ?Sized> DenyCopy<K> {
    /// The same for a list of other keys than names: `id_of` says whom a name means.
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
            seen: Mutex::new(Seen { version: Version::NONE, looks: 0, newest: 0 }),
        }
    }

    /// How often [`refresh_if_due`](Self::refresh_if_due) asks at most: each second, if nothing else is said.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every_ns = nanoseconds(every);
        self
    }

    /// The list.
    #[must_use]
    pub const fn list(&self) -> &DenyList<K> {
        &self.list
    }

    /// Asks the store, and replaces the list if there is another. Blocks this thread until the store has answered, or
    /// for [as long as that may take](super::denied): in a task, use [`refresh_async`](Self::refresh_async).
    ///
    /// # Errors
    ///
    /// [`Fault`]; the list is the old one then.
    pub fn refresh(&self) -> Result<Refreshed, Fault> {
        let (look, known) = self.begin();
        let found = self.store.fetch_denied(&self.name, known).wait()?;
        Ok(self.end(&look, found))
    }

    /// The same for a task.
    ///
    /// # Errors
    ///
    /// As for [`refresh`](Self::refresh).
    pub async fn refresh_async(&self) -> Result<Refreshed, Fault> {
        let (look, known) = self.begin();
        let found = self.store.fetch_denied(&self.name, known).await?;
        Ok(self.end(&look, found))
    }

    /// [`refresh`](Self::refresh), but no more often than [`every`](Self::every), on any clock that does not go back: of
    /// all who ask when it is due one looks, and the others are answered `None`, as is everybody before.
    pub fn refresh_if_due(&self, now_ns: u64) -> Option<Result<Refreshed, Fault>> {
        self.is_due(now_ns).then(|| self.refresh())
    }

    /// The same for a task.
    pub async fn refresh_if_due_async(&self, now_ns: u64) -> Option<Result<Refreshed, Fault>> {
        if self.is_due(now_ns) { Some(self.refresh_async().await) } else { None }
    }

    fn is_due(&self, now_ns: u64) -> bool {
        let due_ns = self.next_ns.load(Ordering::Relaxed);
        let next_ns = now_ns.saturating_add(self.every_ns);
        let order = Ordering::Relaxed;
        now_ns >= due_ns && self.next_ns.compare_exchange(due_ns, next_ns, order, order).is_ok()
    }

    fn begin(&self) -> (Look, Version) {
        let mut seen = self.seen();
        seen.looks = seen.looks.saturating_add(1);
        (Look { number: seen.looks, sent_ns: wall_ns() }, seen.version)
    }

    /// Two looks at a time may end in any order; what the later one has found stays.
    fn end(&self, look: &Look, found: Option<Fetched>) -> Refreshed {
        let mut seen = self.seen();
        let Some(found) = found.filter(|_| look.number > seen.newest) else {
            return Refreshed::Unchanged;
        };
        let mut unknown = 0_usize;
        let known = found.entries.iter().filter_map(|entry| {
            let id = (self.id_of)(&self.list, &entry.name);
            unknown = unknown.saturating_add(usize::from(id.is_none()));
            Some((id?, look.sent_ns.saturating_add(entry.left_ns)))
        });
        let entries = self.list.replace(known);
        seen.version = found.version;
        seen.newest = look.number;
        Refreshed::Replaced { entries, unknown }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Only `id_of` can panic while it is held, and then the version is still the old one.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unix time now; the list denies by the same clock.
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

    /// Answers that overtake each other: what was asked for later is the newer list.
    #[test]
    fn an_older_look_changes_nothing() {
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
