//! Who keeps an engine's counters in a file: restored at the start, saved now and then and at the end.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rategate::Clock;
use rategate::snapshot::{Downtime, SnapshotError};

use super::disk::{self, Disk as _, failed, with_suffix};
use super::error::StateError;
use super::{Restored, Saved};
use crate::engine::Engine;

/// Where counters are kept, and what to do if they are lost.
#[derive(Clone, Debug)]
pub struct KeeperSettings {
    /// The file. Its directory must be there; the new file is made beside it, under the same name and `.new`.
    pub path: PathBuf,
    /// How much of the time between two processes counts.
    pub downtime: Downtime,
    /// What a start does with a file that is not what was written.
    pub when_unreadable: WhenUnreadable,
}

/// What a start does with a file of counters that is not what was written, or cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnreadable {
    /// All begins anew. The file is kept under the same name and `.bad`.
    Fresh,
    /// Every key counts as spent, for as long as its limit remembers. The file is kept in the same way.
    #[default]
    Spent,
    /// The server does not start.
    Refuse,
}

/// How a start went.
#[derive(Debug)]
pub enum Started {
    /// There was no file: the first start.
    First,
    /// Counters go on.
    Restored(Restored),
    /// They do not.
    Lost {
        /// Why not.
        why: StateError,
        /// Where the file is now, if it could be kept.
        kept: Option<PathBuf>,
        /// Whether all keys count as spent.
        is_spent: bool,
    },
}

/// What a keeper has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperStats {
    /// How often counters were saved.
    pub saved: u64,
    /// How often that failed. The file of before is still there then.
    pub failed: u64,
    /// How many keys the last file has.
    pub keys: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// When it was written, by the engine's clock.
    pub saved_at_ns: u64,
}

/// Keeps an engine's counters in a file. Nobody else may keep any there: see [`start`](Self::start).
#[derive(Debug)]
pub struct Keeper {
    settings: KeeperSettings,
    counts: Counts,
    /// Locked for as long as this lives.
    lock: OnceLock<File>,
    /// One at a time.
    saving: Mutex<()>,
}

#[derive(Debug, Default)]
struct Counts {
    saved: AtomicU64,
    failed: AtomicU64,
    keys: AtomicU64,
    bytes: AtomicU64,
    saved_at_ns: AtomicU64,
}

/// The most files that are kept of those that were not what was written.
const MOST_BAD: u32 = 10;

impl Keeper {
    /// A keeper that has done nothing yet.
    #[must_use]
    pub fn new(settings: KeeperSettings) -> Self {
        let (counts, lock) = (Counts::default(), OnceLock::new());
        Self { settings, counts, lock, saving: Mutex::new(()) }
    }

    /// Restores what was saved, when the rules have been loaded and before the first call; or does what is to be done then.
    ///
    /// From then on the file is this keeper's: another that starts with it is refused, in whichever process. For that a file beside
    /// it, under the same name and `.lock`, is locked; it stays when this has ended.
    ///
    /// # Errors
    ///
    /// [`StateError`] if the server is not to start: because of another keeper, or a directory that is not there, by
    /// [`WhenUnreadable::Refuse`], or because counters that are lost are to be spent, and that cannot be kept.
    pub fn start<C: Clock + Clone + 'static>(
        &self,
        engine: &Engine<C>,
    ) -> Result<Started, StateError> {
        let KeeperSettings { path, downtime, when_unreadable } = &self.settings;
        self.lock()?;
        let why = match engine.restore(path, *downtime) {
            Ok(None) => return Ok(Started::First),
            Ok(Some(restored)) => return Ok(Started::Restored(restored)),
            Err(why) => why,
        };
        match when_unreadable {
            WhenUnreadable::Refuse => Err(why),
            WhenUnreadable::Fresh => {
                let bad = self.free_name();
                let kept = fs::rename(path, &bad).is_ok().then_some(bad);
                Ok(Started::Lost { why, kept, is_spent: false })
            }
            WhenUnreadable::Spent => {
                engine.spend(u64::MAX);
                // There is a file all the time: without any, the next start would be the first.
                let bad = self.free_name();
                let kept = fs::hard_link(path, &bad).or_else(|_| fs::copy(path, &bad).map(drop));
                let kept = kept.is_ok().then_some(bad);
                self.save(engine)?;
                Ok(Started::Lost { why, kept, is_spent: true })
            }
        }
    }

    fn lock(&self) -> Result<(), StateError> {
        if self.lock.get().is_some() {
            return Ok(());
        }
        let path = with_suffix(&self.settings.path, "lock");
        let file = disk::Os.create(&path).map_err(failed("create", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StateError::InUse { path: self.settings.path.clone() });
            }
            // Where there are no locks, nobody can tell.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
        }
        // Somebody else was faster: the same.
        let _ = self.lock.set(file);
        Ok(())
    }

    /// Saves all counters: there is the old file or the new one, whatever happens meanwhile.
    ///
    /// # Errors
    ///
    /// [`StateError`], which has been counted. The old file is still there; or, if only the directory could not be synced, the new
    /// one, and a power cut may bring the old one back.
    pub fn save<C: Clock + Clone + 'static>(
        &self,
        engine: &Engine<C>,
    ) -> Result<Saved, StateError> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = self.replace(engine);
        let counts = &self.counts;
        match &saved {
            Ok(Saved { keys, bytes }) => {
                counts.saved.fetch_add(1, Ordering::Relaxed);
                counts.keys.store(*keys, Ordering::Relaxed);
                counts.bytes.store(*bytes, Ordering::Relaxed);
                counts.saved_at_ns.store(engine.clock().now_ns(), Ordering::Relaxed);
            }
            Err(_) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        saved
    }

    fn replace<C: Clock + Clone + 'static>(&self, engine: &Engine<C>) -> Result<Saved, StateError> {
        disk::replace(&disk::Os, &self.settings.path, |file, path| {
            engine.save_whole(file).map_err(|error| match error {
                SnapshotError::Io(source) => failed("write", path)(source),
                source => StateError::Table { path: path.to_path_buf(), source },
            })
        })
    }

    /// A name for a file that is no good: `.bad`, or with a number if there is one already.
    fn free_name(&self) -> PathBuf {
        let name = |number: u32| match number {
            0 => with_suffix(&self.settings.path, "bad"),
            _ => with_suffix(&self.settings.path, &format!("bad{number}")),
        };
        let last = MOST_BAD.saturating_sub(1);
        let free = (0..last).map(name).find(|path| !path.exists());
        free.unwrap_or_else(|| {
            let last = name(last);
            let _ = fs::remove_file(&last);
            last
        })
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> KeeperStats {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { saved, failed, keys, bytes, saved_at_ns } = &self.counts;
        KeeperStats {
            saved: count(saved),
            failed: count(failed),
            keys: count(keys),
            bytes: count(bytes),
            saved_at_ns: count(saved_at_ns),
        }
    }

    /// Saves at once, every so often, and when the [`Saver`] is stopped, on a thread of its own. `tell` hears of each attempt.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if there is no thread to be had.
    pub fn run<C: Clock + Clone + 'static>(
        self: &Arc<Self>,
        engine: &Engine<C>,
        every: Duration,
        tell: impl Fn(&Result<Saved, StateError>) + Send + 'static,
    ) -> io::Result<Saver> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (keeper, engine, until) = (Arc::clone(self), engine.clone(), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("rategate-state".to_owned());
        let thread = thread.spawn(move || {
            // What stands in the way is known before there is anything to lose.
            tell(&keeper.save(&engine));
            loop {
                let (is_over, ended) = &*until;
                let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = ended.wait_timeout_while(is_over, every, |is_over| !*is_over);
                let is_over = *waited.unwrap_or_else(PoisonError::into_inner).0;
                tell(&keeper.save(&engine));
                if is_over {
                    return;
                }
            }
        })?;
        Ok(Saver { keeper: Arc::clone(self), stop, thread: Some(thread) })
    }
}

/// A thread that saves. When it is stopped or dropped, it saves once more and ends.
#[derive(Debug)]
pub struct Saver {
    keeper: Arc<Keeper>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    /// Saves a last time, and returns when that is done.
    pub fn stop(self) {}

    /// What has been done so far.
    #[must_use]
    pub fn stats(&self) -> KeeperStats {
        self.keeper.stats()
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        let (is_over, ended) = &*self.stop;
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        ended.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
