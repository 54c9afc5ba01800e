//! Stdin, read ahead by a thread of its own, so that an interrupt finds the main thread awake.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::thread;
use std::time::Duration;

use rategate::wait::{CancelToken, Wake};

use super::signals::Stop;
use crate::failure::Failure;

const BUFFER: usize = 65_536;
/// The number of buffers queued. One more is being filled, and one emptied.
const AHEAD: usize = 2;

/// The bytes of stdin in order.
#[derive(Debug)]
pub(crate) struct Input {
    stop: Stop,
    full: Receiver<io::Result<Vec<u8>>>,
    spare: Sender<Vec<u8>>,
    current: Vec<u8>,
    consumed: usize,
}

/// The result of a wait for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// At least one byte is available.
    Bytes,
    /// The input has ended.
    End,
    /// A stop was requested.
    Stopped,
}

impl Input {
    /// Starts reading stdin.
    pub(crate) fn open(stop: &Stop) -> Result<Self, Failure> {
        let stdin = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failure)?);
        let (full_tx, full) = mpsc::sync_channel(AHEAD);
        let (spare, spare_rx) = mpsc::channel();
        let reader = stop.clone();
        let thread = thread::Builder::new().name("input".to_owned());
        let read = move || {
            read_all(stdin, &full_tx, &spare_rx, &reader);
            // The end wakes the main thread, too, once the channel is closed.
            drop(full_tx);
            reader.nudge();
        };
        thread.spawn(read).map_err(failure)?;
        Ok(Self { stop: stop.clone(), full, spare, current: Vec::new(), consumed: 0 })
    }

    /// Returns the bytes that were read and not consumed.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.current.get(self.consumed..).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.consumed = self.consumed.saturating_add(bytes).min(self.current.len());
    }

    /// Waits for a byte that begins something new; a stop takes precedence. `before_wait` runs
    /// before any wait.
    pub(crate) fn begin(
        &mut self,
        before_wait: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Ready, Failure> {
        if self.stop.is_requested() {
            return Ok(Ready::Stopped);
        }
        let cancel_token = self.stop.cancel_token().clone();
        self.fill(&cancel_token, before_wait)
    }

    /// Waits for a byte that completes something, even after a stop was requested.
    pub(crate) fn resume(
        &mut self,
        before_wait: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Ready, Failure> {
        let quiet = self.stop.quiet().clone();
        self.fill(&quiet, before_wait)
    }

    fn fill(
        &mut self,
        cancel_token: &CancelToken,
        before_wait: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Ready, Failure> {
        if !self.bytes().is_empty() {
            return Ok(Ready::Bytes);
        }
        let mut next = self.full.try_recv();
        if next.as_ref().is_err_and(|nothing| *nothing == TryRecvError::Empty) {
            before_wait()?;
            let wake = cancel_token.wait_on(|| {
                next = self.full.try_recv();
                matches!(next, Err(TryRecvError::Empty)).then_some(Duration::MAX)
            });
            if wake == Wake::Cancelled {
                return Ok(Ready::Stopped);
            }
        }
        match next {
            Ok(Ok(next)) => {
                let used = std::mem::replace(&mut self.current, next);
                self.consumed = 0;
                // A reader that is done needs no more buffers.
                let _ = self.spare.send(used);
                Ok(Ready::Bytes)
            }
            Ok(Err(error)) => Err(failure(error)),
            Err(_) => Ok(Ready::End),
        }
    }
}

fn failure(error: io::Error) -> Failure {
    Failure::Io("the input".to_owned(), error)
}

/// Reads to the end, or until the receiver is dropped.
fn read_all(
    mut stdin: File,
    full: &SyncSender<io::Result<Vec<u8>>>,
    spare: &Receiver<Vec<u8>>,
    stop: &Stop,
) {
    loop {
        let mut buffer = spare.try_recv().unwrap_or_default();
        buffer.resize(BUFFER, 0);
        let read = match stdin.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                buffer.truncate(count);
                Ok(buffer)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let ends = read.is_err();
        if full.send(read).is_err() || ends {
            return;
        }
        stop.nudge();
    }
}
