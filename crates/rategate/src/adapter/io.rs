//! Readers and writers whose bytes pass a limiter.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::num::NonZeroU64;
use std::time::Duration;

use crate::clock::{Clock, MonotonicClock};
use crate::error::AcquireError;
use crate::limiter::Limiter;

/// The default for the maximum number of bytes in one step.
pub const DEFAULT_CHUNK: NonZeroU64 = NonZeroU64::new(65_536).unwrap();

/// The divisor for a chunk that could never pass: it is cut to this share of what can pass.
///
/// All of that at once would wait until nothing else is in a window.
pub(super) const SHARE: u64 = 16;

/// A reader or a writer, or both, whose bytes are a limiter's permits.
///
/// Each call moves one chunk at most. Its permits are [held](Limiter::hold) before the bytes move,
/// so that a limit on what the other side sees is kept. If the call came out shorter or failed,
/// the permits of the bytes that did not move come back. A call of no bytes costs nothing, nor
/// does the end of the input.
///
/// A chunk is as long as the caller's buffer or as [`with_chunk`](Self::with_chunk) sets,
/// whichever is less; if that many bytes can never pass at one instant, it is a sixteenth of what
/// can. A chunk of 10 ms worth of the rate is a good choice: the stream is smooth then, and no
/// single wait long. The end of the input is known only at the last read, so that read waits for
/// a chunk, too.
///
/// ```
/// use std::io::Write;
/// use std::num::NonZeroU64;
/// use std::time::Duration;
///
/// use rategate::adapter::ByteLimited;
/// use rategate::{Gcra, Limiter, ManualClock};
///
/// // A thousand bytes a second, a hundred at once.
/// let clock = ManualClock::new();
/// let limiter = Limiter::with_clock(Gcra::per_second(1000).burst(100), clock.clone());
/// let mut slow = ByteLimited::new(Vec::new(), &limiter).with_chunk(NonZeroU64::new(10).unwrap());
/// slow.write_all(&[7; 600])?;
/// assert_eq!(slow.get_ref().len(), 600);
/// assert_eq!(limiter.now(), Duration::from_millis(500), "the first hundred at once");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If the limiter grants no more, calls fail with an [`io::Error`] whose source is a
/// [`AdapterError`], and nothing has moved. `Interrupted` and `WouldBlock` come from the inner
/// stream as they are: the permits have come back by then, and the same call can be made
/// again.
pub struct ByteLimited<T, C = MonotonicClock> {
    inner: T,
    limiter: Limiter<C>,
    chunk: NonZeroU64,
}

/// The error of a limiter that grants no more, so no bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterError(AcquireError);

impl AdapterError {
    /// Returns the limiter's error.
    #[must_use]
    pub const fn reason(&self) -> AcquireError {
        self.0
    }
}

impl<T, C: Clock> ByteLimited<T, C> {
    /// Lets the bytes of `inner` pass `limiter`, which may be shared.
    ///
    /// Reading and writing block the thread: in a task, use `AsyncByteLimited` of the features
    /// `futures` and `tokio`.
    pub fn new(inner: T, limiter: &Limiter<C>) -> Self {
        Self { inner, limiter: limiter.clone(), chunk: DEFAULT_CHUNK }
    }

    /// Sets the maximum number of bytes in one step.
    #[must_use]
    pub fn with_chunk(self, chunk: NonZeroU64) -> Self {
        Self { chunk, ..self }
    }

    /// Returns the inner stream. Bytes that pass here do not pass the limiter.
    pub const fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the inner stream for changes. Bytes that pass here do not pass the limiter.
    pub const fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the inner stream, without the limiter.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Holds permits for a chunk of `wanted` bytes, and lets `step` move them.
    fn pass(
        &mut self,
        wanted: usize,
        step: impl FnOnce(&mut T, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut permits = u64::try_from(wanted).unwrap_or(u64::MAX).min(self.chunk.get());
        if permits == 0 {
            return step(&mut self.inner, 0);
        }
        let held = loop {
            match self.limiter.hold(permits, Duration::MAX) {
                // A step that panics may have moved them.
                Ok(held) => break held.kept_if_dropped(),
                // Smaller each time, so this ends; from then on chunks are that small at once.
                Err(AcquireError::ExceedsCapacity(error)) if (1..permits).contains(&error.max) => {
                    permits = error.max.div_ceil(SHARE);
                    self.chunk = NonZeroU64::new(permits).unwrap_or(self.chunk);
                }
                Err(error) => return Err(refused(error)),
            }
        };
        let taken = usize::try_from(permits).unwrap_or(usize::MAX);
        let moved = step(&mut self.inner, taken);
        let used = moved.as_ref().map_or(0, |&bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        // A closed limiter counts nothing.
        let _ = held.commit(used.min(permits));
        moved
    }
}

impl<T: Read, C: Clock> Read for ByteLimited<T, C> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.pass(buffer.len(), |inner, max| {
            let max = max.min(buffer.len());
            inner.read(buffer.get_mut(..max).unwrap_or_default())
        })
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let first = buffers.iter_mut().find(|buffer| !buffer.is_empty());
        self.read(first.map_or(&mut [], |buffer| &mut **buffer))
    }
}

impl<T: Write, C: Clock> Write for ByteLimited<T, C> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pass(bytes.len(), |inner, max| {
            inner.write(bytes.get(..max.min(bytes.len())).unwrap_or_default())
        })
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let first = buffers.iter().find(|buffer| !buffer.is_empty());
        self.write(first.map_or(&[], |buffer| &**buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: fmt::Debug, C> fmt::Debug for ByteLimited<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByteLimited")
            .field("inner", &self.inner)
            .field("chunk", &self.chunk)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for AdapterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the limiter grants no permits for bytes: {}", self.0)
    }
}

impl Error for AdapterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// Converts a limiter's refusal to the error of a stream's call.
pub(super) fn refused(error: AcquireError) -> io::Error {
    let kind = match error {
        AcquireError::Closed => io::ErrorKind::BrokenPipe,
        AcquireError::TooLong(_) | AcquireError::DeadlinePassed => io::ErrorKind::TimedOut,
        AcquireError::QueueFull | AcquireError::Evicted => io::ErrorKind::ResourceBusy,
        // Callers of streams repeat a call that was "interrupted".
        AcquireError::ExceedsCapacity(_)
        | AcquireError::TimeCannotHelp
        | AcquireError::Held
        | AcquireError::Interrupted => io::ErrorKind::Other,
    };
    io::Error::new(kind, AdapterError(error))
}
