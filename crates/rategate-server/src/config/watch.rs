//! Reloading of the files when they change.
//!
//! A thread waits for events of the folders that contain the files or links to them: editors
//! write a new file and rename it, and Kubernetes swaps a link next to the files. After an event
//! it waits for silence, reads everything, and compares it with the previous contents. Writes to
//! other files there, such as a log, do not count as events. Wrong, half-written or missing files
//! change nothing but the [`State`].

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use notify::event::{EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use super::error::ConfigError;
use super::files::{self, ConfigFile};
use super::layers::Layers;
use super::load::{self, Loaded};
use crate::low_priority::low_priority;

/// The time without events after which the files are read.
pub const SILENCE: Duration = Duration::from_millis(200);
/// The maximum time to wait for such silence.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval at which files are read without an event: not every file system reports changes.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// The status of the configuration, for metrics and the page.
#[derive(Clone, Debug)]
pub struct State {
    /// The digest of the text in force.
    pub hash: Arc<str>,
    /// The time at which it came into force, by the wall clock.
    pub loaded_at: SystemTime,
    /// The reason why the current text is not in force; `None` if it is.
    pub last_error: Option<Refused>,
    /// The number of times that another text has come into force since the start.
    pub reloads: u64,
    /// The number of times that a text has been refused.
    pub failures: u64,
}

/// The reason why a text is not in force.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The time of the refusal, by the wall clock.
    pub at: SystemTime,
    /// The problems with their positions. `None` if the text is right but could not be put into
    /// force.
    pub error: Option<Arc<ConfigError>>,
    /// The problems as text, a line for each.
    pub message: Arc<str>,
}

impl State {
    /// Returns the state at the start.
    #[must_use]
    pub fn of(loaded: &Loaded) -> Self {
        Self {
            hash: Arc::clone(&loaded.hash),
            loaded_at: SystemTime::now(),
            last_error: None,
            reloads: 0,
            failures: 0,
        }
    }
}

/// A watch on the files, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    state: Arc<ArcSwap<State>>,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

/// A message to the watching thread.
#[derive(Debug)]
enum Order {
    /// Something has happened in a folder.
    Event,
    /// A request to read the files now, with a channel to signal that it is done.
    Reload(Sender<()>),
    Stop,
}

/// Watches the files of `path`, of which `current` is in force. Each other consistent
/// configuration is passed to `apply`, which puts it into force or returns the reason why not.
///
/// # Errors
///
/// Returns an error if the thread cannot be created. Folders that cannot be watched are no error:
/// then files are read once a minute.
pub fn watch(
    path: &Path,
    layers: Layers,
    current: &Loaded,
    apply: impl FnMut(Loaded) -> Result<(), String> + Send + 'static,
) -> io::Result<Watch> {
    let state = Arc::new(ArcSwap::from_pointee(State::of(current)));
    let (orders, received) = mpsc::channel();
    let follower = Follower {
        path: path.to_owned(),
        layers,
        seen: Arc::clone(&current.hash),
        state: Arc::clone(&state),
        folders: Folders::new(orders.clone()),
        apply,
    };
    let builder = thread::Builder::new().name("rategate-config".to_owned());
    let thread = builder.spawn(move || follower.run(&received))?;
    Ok(Watch { state, orders, thread: Some(thread) })
}

impl Watch {
    /// Returns the status of the configuration.
    #[must_use]
    pub fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Reads the files now, as after SIGHUP, and waits until that is done. A text that was
    /// refused before is tried again.
    pub fn reload_now(&self) {
        let (done, wait) = mpsc::channel();
        if self.orders.send(Order::Reload(done)).is_ok() {
            // If the thread has ended, this returns at once.
            let _ = wait.recv();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Follower<F> {
    path: PathBuf,
    layers: Layers,
    /// The digest of the text of the last read, accepted or refused, or the reason why the files
    /// could not be read.
    seen: Arc<str>,
    state: Arc<ArcSwap<State>>,
    folders: Folders,
    apply: F,
}

impl<F: FnMut(Loaded) -> Result<(), String>> Follower<F> {
    fn run(mut self, received: &Receiver<Order>) {
        self.folders.watch(&self.path);
        // The files may have changed since they were loaded.
        self.check(false);
        loop {
            let order = match received.recv_timeout(CHECK_EVERY) {
                Ok(Order::Event) => silence(received),
                Err(RecvTimeoutError::Disconnected) => return,
                order => order.ok(),
            };
            match order {
                Some(Order::Stop) => return,
                Some(Order::Reload(done)) => {
                    self.check(true);
                    let _ = done.send(());
                }
                Some(Order::Event) | None => self.check(false),
            }
            // Links may have changed.
            self.folders.watch(&self.path);
        }
    }

    /// Reads the files. Puts them into force if they have changed, or if `again` is `true`.
    fn check(&mut self, again: bool) {
        let read = files::read(&self.path).map_err(ConfigError::of);
        let seen = match &read {
            Ok(files) => files::digest(files),
            Err(error) => error.to_string().into(),
        };
        if !again && seen == self.seen {
            return;
        }
        self.seen = Arc::clone(&seen);
        match read {
            Ok(files) => self.consider(&files, &seen),
            Err(error) => self.refuse(error.to_string(), Some(error)),
        }
    }

    fn consider(&mut self, files: &[ConfigFile], digest: &Arc<str>) {
        let state = State::clone(&self.state.load());
        let right_again = |what: &str| {
            if state.last_error.is_some() {
                let hash = &**digest;
                tracing::info!(hash, "the configuration is valid again: {what} in force");
            }
        };
        if *digest == state.hash {
            right_again("the files say what is");
            self.state.store(Arc::new(State { last_error: None, ..state }));
            return;
        }
        let loaded = match low_priority(|| load::read(files, &self.layers, false)) {
            Ok(loaded) => loaded,
            Err(error) => return self.refuse(error.to_string(), Some(error)),
        };
        if let Err(complaint) = (self.apply)(loaded) {
            return self.refuse(complaint, None);
        }
        right_again("a new one is");
        let (hash, loaded_at) = (Arc::clone(digest), SystemTime::now());
        let reloads = state.reloads.saturating_add(1);
        let state = State { hash, loaded_at, reloads, last_error: None, ..state };
        self.state.store(Arc::new(state));
    }

    fn refuse(&mut self, message: String, error: Option<ConfigError>) {
        tracing::error!(error = message, "invalid configuration: the previous one stays in force");
        let state = State::clone(&self.state.load());
        let (at, error, message) = (SystemTime::now(), error.map(Arc::new), message.into());
        self.state.store(Arc::new(State {
            last_error: Some(Refused { at, error, message }),
            failures: state.failures.saturating_add(1),
            ..state
        }));
    }
}

/// Waits until nothing has happened for a while, or another order arrives.
fn silence(received: &Receiver<Order>) -> Option<Order> {
    let deadline = Instant::now().checked_add(PATIENCE);
    loop {
        let left = deadline.map_or(SILENCE, |at| at.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return None;
        }
        match received.recv_timeout(SILENCE.min(left)) {
            Ok(Order::Event) => {}
            Ok(other) => return Some(other),
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => return Some(Order::Stop),
        }
    }
}

/// The folders that are watched.
struct Folders {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    /// The names of files that count whatever their extension is: the configuration itself, and
    /// the targets of its links.
    names: Arc<ArcSwap<BTreeSet<OsString>>>,
}

impl Folders {
    fn new(orders: Sender<Order>) -> Self {
        let names = Arc::new(ArcSwap::default());
        let known = Arc::clone(&names);
        let on_event = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !is_news(&event, &known.load())) {
                return;
            }
            let _ = orders.send(Order::Event);
        };
        let watcher = notify::recommended_watcher(on_event);
        if let Err(error) = &watcher {
            tracing::warn!(%error, "changes of the configuration are seen once a minute");
        }
        Self { watcher: watcher.ok(), watched: BTreeSet::new(), names }
    }

    /// Watches the folders of the files at `path`, and of the targets of links. A folder that was
    /// replaced by another is watched anew.
    fn watch(&mut self, path: &Path) {
        let Some(watcher) = &mut self.watcher else { return };
        let (wanted, names) = folders(path);
        self.names.store(Arc::new(names));
        for folder in self.watched.difference(&wanted) {
            let _ = watcher.unwatch(folder);
        }
        self.watched.clear();
        for folder in wanted {
            // Watching a folder again watches what has that name now.
            match watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(folder);
                }
                Err(error) => {
                    tracing::debug!(%error, folder = %folder.display(), "cannot watch a folder");
                }
            }
        }
    }
}

/// Returns `true` if an event may concern the configuration. Our own reading does not, nor does
/// writing to a file of another name: a log in the folder would never let it be silent. Created,
/// removed or renamed files always count.
fn is_news(event: &notify::Event, names: &BTreeSet<OsString>) -> bool {
    let is_of_names = |path: &PathBuf| {
        files::Format::of(path).is_some()
            || path.file_name().is_some_and(|name| names.contains(name))
    };
    match event.kind {
        EventKind::Access(_) => false,
        EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_) | ModifyKind::Any) => {
            event.paths.is_empty() || event.paths.iter().any(is_of_names)
        }
        _ => true,
    }
}

/// Returns the folders of the files at `path`, and the names of the files that count whatever
/// their extension is.
fn folders(path: &Path) -> (BTreeSet<PathBuf>, BTreeSet<OsString>) {
    let parent = |path: &Path| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => path.to_owned(),
    };
    let mut folders = BTreeSet::from([parent(path)]);
    let mut names: BTreeSet<OsString> = path.file_name().map(OsString::from).into_iter().collect();
    let mut add_target = |path: &Path| {
        if let Ok(target) = path.canonicalize() {
            names.extend(target.file_name().map(OsString::from));
            folders.insert(if target.is_dir() { target } else { parent(&target) });
        }
    };
    add_target(path);
    if path.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries
            .filter(|entry| files::Format::of(&entry.path()).is_some())
            .for_each(|entry| add_target(&entry.path()));
    }
    (folders, names)
}
