//! The certificates of listeners, read again when their files change or somebody says so.
//!
//! A thread looks at the files from time to time, since whoever renews certificates tells nobody. What it finds is used once two looks
//! see the same: a certificate and its key are two files, and are not replaced at one instant. What does not fit together is refused
//! aloud, and the old one stays.

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

/// How often the files are looked at; new ones are in use after at most twice as long, and as long as it takes to read them.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Follows the files until it is dropped.
#[derive(Debug)]
pub(super) struct Certificates {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Order {
    /// Read the files, whether they have changed or not.
    Reload,
    Stop,
}

/// What is known of a file without reading it: when it was written last, how long it is, and which it is. None if it is not there.
type Stamp = Option<(i64, i64, u64, u64)>;

/// The files, as they were when somebody looked.
#[derive(Debug)]
pub(super) struct Stamps {
    files: Vec<PathBuf>,
    seen: Vec<Stamp>,
}

impl Stamps {
    /// As they are now, before anybody reads them: what changes after that is read again.
    pub(super) fn of(files: &settings::Tls) -> Self {
        let files = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()];
        let files: Vec<PathBuf> = files.into_iter().flatten().cloned().collect();
        Self { seen: stamps(&files), files }
    }
}

impl Certificates {
    /// Follows the files of `listeners`, which have read them as they were then.
    ///
    /// # Errors
    ///
    /// There can be no further thread.
    pub(super) fn follow(
        Stamps { files, seen }: Stamps,
        listeners: Vec<Tls>,
        observe: Arc<Observe>,
    ) -> io::Result<Self> {
        let (orders, heard) = mpsc::channel();
        let follower = Follower { looks: Looks::of(seen), files, listeners, observe };
        let thread = thread::Builder::new().name("rategate-tls".to_owned());
        let thread = thread.spawn(move || follower.run(&heard))?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Has the files read, soon.
    pub(super) fn reload(&self) {
        // If the thread is gone, so is the service.
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
    looks: Looks,
}

impl Follower {
    fn run(mut self, heard: &Receiver<Order>) {
        loop {
            match heard.recv_timeout(LOOK_EVERY) {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Order::Reload) => {
                    self.looks = Looks::of(stamps(&self.files));
                    self.read();
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.looks.is_due(stamps(&self.files)) {
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
                tracing::info!("certificates are read again: new connections see them");
            }
            Err(error) => {
                let error = error.to_string();
                self.observe.status().certificates_failed(&error);
                tracing::error!(error, "certificates are refused, and the old ones stay");
            }
        }
    }
}

/// What was seen of the files.
struct Looks {
    /// As they were when they were read last, whatever became of it.
    used: Vec<Stamp>,
    /// At the last look.
    last: Vec<Stamp>,
}

impl Looks {
    fn of(used: Vec<Stamp>) -> Self {
        Self { last: used.clone(), used }
    }

    /// Whether files that look so are to be read now: they are others, and have been left alone since the last look.
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
        let mut looks = Looks::of(stamp(1));
        let seen = [
            (1, false),
            (2, false),
            // Still being written.
            (3, false),
            (3, true),
            (3, false),
            // Gone back before anybody used it.
            (4, false),
            (3, false),
            (3, false),
            (5, false),
            (5, true),
        ];
        for (nth, (second, is_due)) in seen.into_iter().enumerate() {
            assert_eq!(looks.is_due(stamp(second)), is_due, "look {nth}");
        }
    }
}
