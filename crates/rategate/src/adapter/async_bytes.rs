//! Readers and writers for tasks whose bytes pass a limiter.

use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::io::{DEFAULT_CHUNK, SHARE, refused};
use super::poll_wait::PollWait;
use crate::clock::{Clock, MonotonicClock};
use crate::error::AcquireError;
use crate::future::{AcquireHold, AsyncLimiter};

/// A reader or a writer for tasks, or both, whose bytes are a limiter's permits.
///
/// It is [`ByteLimited`](crate::adapter::ByteLimited) for `AsyncRead` and `AsyncWrite`: those of
/// tokio with the feature `tokio`, those of the futures crates with the feature `futures`.
///
/// Each call moves one chunk at most, for which permits are [held](crate::Limiter::hold) before. If
/// bytes did not move, because the call came out shorter, failed, or found the inner stream not
/// ready, their permits come back in the same poll. So a stream that waits for its peer
/// keeps no permits from other callers, and when the peer is ready, it takes them anew. A call of
/// no bytes costs nothing, nor does the end of the input. Flushing and closing pass through.
///
/// A chunk is as long as the caller's buffer or as [`with_chunk`](Self::with_chunk) sets,
/// whichever is less; if that many bytes can never pass at one instant, it is a sixteenth of what
/// can. A chunk of 10 ms worth of the rate is a good choice.
///
/// An inner stream that is not [`Unpin`] has to be pinned first, by `Box::pin` or `pin!`.
///
/// # Which limit
///
/// Use a limit that takes back what it has just granted, as nearly all do; buckets and logs above
/// all. A damped schedule takes back nothing of a chunk, so there each call that finds the inner
/// stream not ready costs one. Where operations are counted in flight, as by
/// [`Concurrency`](crate::Concurrency) and [`CommitLog`](crate::CommitLog), those of a chunk end
/// with its call, although its bytes may not have arrived: do not
/// [release](crate::Limiter::release) them again.
///
/// # Errors
///
/// If the limiter grants no more, calls fail with an [`io::Error`] whose source is a
/// [`AdapterError`](crate::adapter::AdapterError), and nothing has moved. Other errors are those of
/// the inner stream.
///
/// # Cancelling
///
/// A read and a write each have a slot in the wait queue, which they keep while they are not
/// polled. So a `read` that is dropped, by a timeout or a `select!`, has lost no byte, and the
/// next one goes on from there, with any buffer. A chunk that was granted meanwhile moves late.
/// Dropped, the stream leaves the queue; closing it does so for a write.
pub struct AsyncByteLimited<T, C: Clock = MonotonicClock> {
    inner: T,
    limiter: AsyncLimiter<C>,
    reads: Wait<C>,
    writes: Wait<C>,
    chunk: NonZeroU64,
}

/// The wait of one direction.
type Wait<C> = PollWait<AcquireHold<C>>;

/// A direction of bytes.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    In,
    Out,
}

impl<T, C: Clock> AsyncByteLimited<T, C> {
    /// Lets the bytes of `inner` pass `limiter`, which may be shared.
    pub fn new(inner: T, limiter: &AsyncLimiter<C>) -> Self {
        let (reads, writes) = (PollWait::default(), PollWait::default());
        Self { inner, limiter: limiter.clone(), reads, writes, chunk: DEFAULT_CHUNK }
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

    /// Returns the inner stream, without the limiter. Its waits end.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Ends the wait of a write that will not be repeated.
    pub(super) fn end_writes(&mut self) {
        self.writes.leave();
    }
}

impl<T: Unpin, C: Clock> AsyncByteLimited<T, C> {
    pub(super) fn inner(&mut self) -> Pin<&mut T> {
        Pin::new(&mut self.inner)
    }

    /// Holds permits for `wanted` bytes, and lets `step` move them.
    pub(super) fn poll_pass(
        &mut self,
        direction: Direction,
        wanted: usize,
        context: &mut Context<'_>,
        step: impl FnOnce(Pin<&mut T>, &mut Context<'_>, usize) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Self { inner, limiter, reads, writes, chunk } = self;
        let inner = Pin::new(inner);
        let wait = match direction {
            Direction::In => reads,
            Direction::Out => writes,
        };
        let mut permits = u64::try_from(wanted).unwrap_or(u64::MAX).min(chunk.get());
        if permits == 0 {
            return step(inner, context, 0);
        }
        // A wait under way is for as many bytes as an earlier call wanted.
        let mut is_stale = wait.is_waiting();
        let held = loop {
            let begin = || Some(limiter.hold(permits, Duration::MAX));
            match ready!(wait.poll(begin, context)) {
                // A step that panics may have moved them.
                Some(Ok(held)) => break held.kept_if_dropped(),
                None => return step(inner, context, 0),
                Some(Err(AcquireError::ExceedsCapacity(error)))
                    if error.max > 0 && (is_stale || error.max < permits) =>
                {
                    is_stale = false;
                    // Smaller each time, so this ends; from then on chunks are that small at
                    // once.
                    if error.max < permits {
                        permits = error.max.div_ceil(SHARE);
                        *chunk = NonZeroU64::new(permits).unwrap_or(*chunk);
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(refused(error))),
            }
        };
        let permits = held.permits();
        let taken = usize::try_from(permits).unwrap_or(usize::MAX);
        let moved = step(inner, context, taken.min(wanted));
        let used = match &moved {
            Poll::Ready(Ok(bytes)) => u64::try_from(*bytes).unwrap_or(u64::MAX),
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        };
        // A closed limiter counts nothing.
        let _ = held.commit(used.min(permits));
        moved
    }
}

impl<T: fmt::Debug, C: Clock> fmt::Debug for AsyncByteLimited<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncByteLimited")
            .field("inner", &self.inner)
            .field("chunk", &self.chunk)
            .finish_non_exhaustive()
    }
}
