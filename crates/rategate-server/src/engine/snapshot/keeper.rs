//! Persistence of an engine's counters in a file: restored at the start, saved at intervals and
//! at the end.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rategate::Clock;
use rategate::snapshot::{Downtime, SnapshotError};
use tempfile::Builder;

use super::error::StateError;
use super::{Restored, Saved};
use crate::engine::Engine;

/// The settings of persistence.
#[derive(Clone, Debug)]
pub struct KeeperSettings {
    /// The path of the file. Its directory must exist; the new file is created in it with the
    /// suffix `.new`.
    pub path: PathBuf,
    /// The part of the time between two processes that counts.
    pub downtime: Downtime,
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
    stats: Mutex<KeeperStats>,
    /// A lock file that is locked for the lifetime of the keeper.
    lock: OnceLock<File>,
    /// Locked during a save.
    saving: Mutex<()>,
}

impl Keeper {
    /// Creates a keeper that has done nothing yet.
    #[must_use]
    pub fn new(settings: KeeperSettings) -> Self {
        Self { settings, stats: Mutex::default(), lock: OnceLock::new(), saving: Mutex::new(()) }
    }

    /// Restores the saved counters. Returns `None` at the first start, when there is no file. To be
    /// called when the rules have been loaded and before the first request.
    ///
    /// From then on the file belongs to this keeper: another one that starts with it is refused,
    /// in any process. For that, a file with the suffix `.lock` is locked; it remains when the
    /// process has ended.
    ///
    /// # Errors
    ///
    /// Returns [`StateError`] if the server should not start: because of another keeper, a
    /// missing directory, or a file that is damaged or does not fit. The file is left as it is.
    pub fn start<C: Clock + Clone + 'static>(
        &self,
        engine: &Engine<C>,
    ) -> Result<Option<Restored>, StateError> {
        self.lock()?;
        engine.restore(&self.settings.path, self.settings.downtime)
    }

    fn lock(&self) -> Result<(), StateError> {
        if self.lock.get().is_some() {
            return Ok(());
        }
        let path = with_suffix(&self.settings.path, "lock");
        let file = create(&path).map_err(failed("create", &path))?;
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
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        match &saved {
            Ok(Saved { keys, bytes }) => {
                let saved = stats.saved.saturating_add(1);
                let (keys, bytes, saved_at_ns) = (*keys, *bytes, engine.clock().now_ns());
                *stats = KeeperStats { saved, keys, bytes, saved_at_ns, ..*stats };
            }
            Err(_) => stats.failed = stats.failed.saturating_add(1),
        }
        saved
    }

    /// Replaces the file. The new one goes to another name, and is renamed only once all of it is
    /// on the disk.
    fn replace<C: Clock + Clone + 'static>(
        &self,
        engine: &Engine<C>,
        is_last: bool,
    ) -> Result<Saved, StateError> {
        let (path, new) = (&self.settings.path, with_suffix(&self.settings.path, "new"));
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        // One that an earlier process has left is overwritten.
        let name = new.file_name().unwrap_or_default();
        let made = Builder::new().prefix(name).rand_bytes(0).make_in(directory, create);
        let file = made.map_err(failed("create", &new))?;
        let saved = engine.save_whole(file.as_file(), is_last).map_err(|error| match error {
            SnapshotError::Io(source) => failed("write", &new)(source),
            source => StateError::Table { path: new.clone(), source },
        })?;
        file.as_file().sync_all().map_err(failed("sync", &new))?;
        file.persist(path).map_err(|error| failed("replace", path)(error.error))?;
        // The new name must be on the disk too. Elsewhere a directory cannot be opened, and a
        // rename is on the disk when it returns.
        #[cfg(unix)]
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(failed("sync the directory", directory))?;
        Ok(saved)
    }

    /// Returns the counts of the keeper so far.
    #[must_use]
    pub fn stats(&self) -> KeeperStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (stop, stopped) = mpsc::channel();
        let (keeper, engine) = (Arc::clone(self), engine.clone());
        let thread = std::thread::Builder::new().name("rategate-state".to_owned());
        let thread = thread.spawn(move || {
            // The first save finds problems before there is anything to lose.
            report(&keeper.save(&engine));
            let mut is_over = false;
            while !is_over {
                is_over = stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout);
                report(&keeper.save_as(&engine, is_over));
            }
        })?;
        Ok(Saver { keeper: Arc::clone(self), stop: Some(stop), thread: Some(thread) })
    }
}

/// A thread that saves. When it is stopped or dropped, it saves once more and ends.
#[derive(Debug)]
pub struct Saver {
    keeper: Arc<Keeper>,
    /// Dropped to stop.
    stop: Option<Sender<()>>,
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
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Creates an empty file, replacing one of that name. Only its owner may read it: its contents
/// allow keys that collide to be constructed.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError + use<> {
    let path = path.to_path_buf();
    move |source| StateError::Io { doing, path, source }
}
