//! Persistence of an engine's counters in a file: restored at the start, saved at intervals and
//! at the end.

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

/// The settings of persistence: the file, and the behaviour when it is lost.
#[derive(Clone, Debug)]
pub struct KeeperSettings {
    /// The path of the file. Its directory must exist; the new file is created in it with the
    /// suffix `.new`.
    pub path: PathBuf,
    /// The part of the time between two processes that counts.
    pub downtime: Downtime,
    /// The behaviour of a start with a damaged file.
    pub on_corrupt: OnCorruptSnapshot,
}

/// The behaviour of a start with a snapshot that cannot be read completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnCorruptSnapshot {
    /// Start with each limit unused. The file is kept with the suffix `.bad`. `"fresh"`.
    Fresh,
    /// Do not start. `"refuse"`.
    #[default]
    Refuse,
}

/// The result of a start.
#[derive(Debug)]
pub enum Started {
    /// There was no file: the first start.
    First,
    /// Counters were restored.
    Restored(Restored),
    /// Counters were lost.
    Lost {
        /// The cause.
        why: StateError,
        /// The path of the damaged file, if it could be kept.
        kept: Option<PathBuf>,
    },
}

/// The counts of a keeper so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperStats {
    /// The number of successful saves.
    pub saved: u64,
    /// The number of failed saves. The previous file still exists then.
    pub failed: u64,
    /// The number of keys in the last file.
    pub keys: u64,
    /// The number of bytes in the last file.
    pub bytes: u64,
    /// The time of the last save, by the engine's clock.
    pub saved_at_ns: u64,
}

/// A keeper of an engine's counters in a file. The file must have no other keeper: see
/// [`start`](Self::start).
#[derive(Debug)]
pub struct Keeper {
    settings: KeeperSettings,
    counts: Counts,
    /// A lock file that is locked for the lifetime of the keeper.
    lock: OnceLock<File>,
    /// Locked during a save.
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

/// The maximum number of damaged files that are kept.
const MAX_BACKUPS: u32 = 10;

impl Keeper {
    /// Creates a keeper that has done nothing yet.
    #[must_use]
    pub fn new(settings: KeeperSettings) -> Self {
        let (counts, lock) = (Counts::default(), OnceLock::new());
        Self { settings, counts, lock, saving: Mutex::new(()) }
    }

    /// Restores the saved counters, or does what the settings say if they are lost. To be called
    /// when the rules have been loaded and before the first request.
    ///
    /// From then on the file belongs to this keeper: another one that starts with it is refused,
    /// in any process. For that, a file with the suffix `.lock` is locked; it remains when the
    /// process has ended.
    ///
    /// # Errors
    ///
    /// Returns [`StateError`] if the server should not start: because of another keeper, a
    /// missing directory, or [`OnCorruptSnapshot::Refuse`].
    pub fn start<C: Clock + Clone + 'static>(
        &self,
        engine: &Engine<C>,
    ) -> Result<Started, StateError> {
        let KeeperSettings { path, downtime, on_corrupt } = &self.settings;
        self.lock()?;
        let why = match engine.restore(path, *downtime) {
            Ok(None) => return Ok(Started::First),
            Ok(Some(restored)) => return Ok(Started::Restored(restored)),
            Err(why) => why,
        };
        match on_corrupt {
            OnCorruptSnapshot::Refuse => Err(why),
            OnCorruptSnapshot::Fresh => {
                let bad = self.free_name();
                let kept = fs::rename(path, &bad).is_ok().then_some(bad);
                Ok(Started::Lost { why, kept })
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
            // Where locks are not supported, another keeper cannot be detected.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
        }
        // Another thread may have set it first: with the same effect.
        let _ = self.lock.set(file);
        Ok(())
    }

    /// Saves all counters. At any moment the old file or the new one is complete.
    ///
    /// # Errors
    ///
    /// Returns [`StateError`], which is included in the statistics. The old file still exists. If
    /// only the directory could not be synced, the new one does, and a power cut may bring the
    /// old one back.
    pub fn save<C: Clock + Clone + 'static>(
        &self,
        engine: &Engine<C>,
    ) -> Result<Saved, StateError> {
        self.save_as(engine, false)
    }

    /// Saves all counters. `is_last` if no request comes after that.
    fn save_as<C: Clock + Clone + 'static>(
        &self,
        engine: &Engine<C>,
        is_last: bool,
    ) -> Result<Saved, StateError> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = self.replace(engine, is_last);
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

    fn replace<C: Clock + Clone + 'static>(
        &self,
        engine: &Engine<C>,
        is_last: bool,
    ) -> Result<Saved, StateError> {
        disk::replace(&disk::Os, &self.settings.path, |file, path| {
            let saved = engine.save_whole(&file, is_last).map_err(|error| match error {
                SnapshotError::Io(source) => failed("write", path)(source),
                source => StateError::Table { path: path.to_path_buf(), source },
            })?;
            Ok((file, saved))
        })
    }

    /// Returns a free name for a damaged file: with the suffix `.bad`, or `.bad` and a number.
    fn free_name(&self) -> PathBuf {
        let name = |number: u32| match number {
            0 => with_suffix(&self.settings.path, "bad"),
            _ => with_suffix(&self.settings.path, &format!("bad{number}")),
        };
        let last = MAX_BACKUPS.saturating_sub(1);
        let free = (0..last).map(name).find(|path| !path.exists());
        free.unwrap_or_else(|| {
            let last = name(last);
            let _ = fs::remove_file(&last);
            last
        })
    }

    /// Returns the counts of the keeper so far.
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

    /// Saves at once, at each interval, and when the [`Saver`] is stopped, on its own thread.
    /// `report` receives each result.
    ///
    /// # Errors
    ///
    /// Returns [`io::Error`] if the thread cannot be created.
    pub fn run<C: Clock + Clone + 'static>(
        self: &Arc<Self>,
        engine: &Engine<C>,
        every: Duration,
        report: impl Fn(&Result<Saved, StateError>) + Send + 'static,
    ) -> io::Result<Saver> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (keeper, engine, until) = (Arc::clone(self), engine.clone(), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("rategate-state".to_owned());
        let thread = thread.spawn(move || {
            // The first save finds problems before there is anything to lose.
            report(&keeper.save(&engine));
            loop {
                let (is_over, ended) = &*until;
                let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = ended.wait_timeout_while(is_over, every, |is_over| !*is_over);
                let is_over = *waited.unwrap_or_else(PoisonError::into_inner).0;
                report(&keeper.save_as(&engine, is_over));
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
    /// Saves a last time, and returns when that is done. No request may come after that.
    pub fn stop(self) {}

    /// Returns the counts of the keeper so far.
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
