//! Reloads the listeners' certificates when their files change or a reload is ordered.
//!
//! A thread checks the files periodically, since tools that renew certificates send no notice. A
//! change is used once two checks in a row see the same files: a certificate and its key are two
//! files, and are not replaced at one instant. Files that do not match are refused with a logged
//! error, and the old certificates stay.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::config::settings;
use crate::net::Tls;
use crate::observe::Observe;

/// The interval between checks of the files. New files are in use after at most twice that, plus
/// the time to read them.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A thread that follows the files until this is dropped.
#[derive(Debug)]
pub(super) struct Certificates {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Order {
    /// Read the files, even if they have not changed.
    Reload,
    Stop,
}

/// The metadata of a file: its modification time in seconds and nanoseconds, its length and its
/// inode. `None` if the file does not exist.
type Stamp = Option<(i64, i64, u64, u64)>;

/// The certificate files and their metadata at one check.
#[derive(Debug)]
pub(super) struct Stamps {
    files: Vec<PathBuf>,
    seen: Vec<Stamp>,
}

impl Stamps {
    /// Reads the metadata before the files themselves are read, so that a later change leads to
    /// another read.
    pub(super) fn of(files: &settings::Tls) -> Self {
        let files = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()];
        let files: Vec<PathBuf> = files.into_iter().flatten().cloned().collect();
        Self { seen: stamps(&files), files }
    }
}

impl Certificates {
    /// Follows the files of `listeners`, which have read them since the stamps were taken.
    ///
    /// # Errors
    ///
    /// The system's error if no thread can be started.
    pub(super) fn follow(
        Stamps { files, seen }: Stamps,
        listeners: Vec<Tls>,
        observe: Arc<Observe>,
    ) -> io::Result<Self> {
        let (orders, receiver) = mpsc::channel();
        let follower = Follower { changes: ChangeDetector::of(seen), files, listeners, observe };
        let thread = thread::Builder::new().name("rategate-tls".to_owned());
        let thread = thread.spawn(move || follower.run(&receiver))?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Orders a reload, which happens soon.
    pub(super) fn reload(&self) {
        // If the thread has ended, so has the service.
        let _ = self.orders.send(Order::Reload);
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Follower {
    files: Vec<PathBuf>,
    listeners: Vec<Tls>,
    observe: Arc<Observe>,
    changes: ChangeDetector,
}

impl Follower {
    fn run(mut self, receiver: &Receiver<Order>) {
        loop {
            match receiver.recv_timeout(CHECK_INTERVAL) {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Order::Reload) => {
                    self.changes = ChangeDetector::of(stamps(&self.files));
                    self.read();
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.changes.is_due(stamps(&self.files)) {
                        self.read();
                    }
                }
            }
        }
    }

    fn read(&self) {
        match Tls::reload(&self.listeners) {
            Ok(()) => {
                self.observe.status().certificates_loaded();
                tracing::info!("certificates are reloaded: new connections use them");
            }
            Err(error) => {
                let error = error.to_string();
                self.observe.status().certificates_failed(&error);
                tracing::error!(
                    error,
                    "the new certificates are invalid: the previous ones stay in use"
                );
            }
        }
    }
}

/// The metadata seen at earlier checks.
struct ChangeDetector {
    /// The metadata at the last read, whether or not it succeeded.
    used: Vec<Stamp>,
    /// The metadata at the last check.
    last: Vec<Stamp>,
}

impl ChangeDetector {
    fn of(used: Vec<Stamp>) -> Self {
        Self { last: used.clone(), used }
    }

    /// Returns `true` if files with the metadata `seen` are to be read now: they differ from those
    /// last read, and have not changed since the last check.
    fn is_due(&mut self, seen: Vec<Stamp>) -> bool {
        let is_due = seen != self.used && seen == self.last;
        if is_due {
            self.used.clone_from(&seen);
        }
        self.last = seen;
        is_due
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |file: &PathBuf| {
        let about = fs::metadata(file).ok()?;
        Some((about.mtime(), about.mtime_nsec(), about.len(), about.ino()))
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_once_they_are_others_and_left_alone() {
        let stamp = |second| vec![Some((second, 0, 1, 1)), None];
        let mut changes = ChangeDetector::of(stamp(1));
        let seen = [
            (1, false),
            (2, false),
            // Still being written.
            (3, false),
            (3, true),
            (3, false),
            // Reverted before the change was used.
            (4, false),
            (3, false),
            (3, false),
            (5, false),
            (5, true),
        ];
        for (nth, (second, is_due)) in seen.into_iter().enumerate() {
            assert_eq!(changes.is_due(stamp(second)), is_due, "look {nth}");
        }
    }
}
