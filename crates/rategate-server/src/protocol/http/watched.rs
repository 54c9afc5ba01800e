//! A stream that records its connection's activity, so that one timer per connection suffices,
//! with none per request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ConnectionLimits;
use crate::net::YieldOnce;

/// The activity of a connection. Written by the connection's task, or over HTTP/2 by the tasks of
/// its streams.
#[derive(Debug, Default)]
pub(super) struct Activity {
    begun: AtomicU64,
    done: AtomicU64,
    reads: AtomicU64,
    /// The number of reads when a request last began or was answered. Later reads belong to
    /// another request.
    reads_then: AtomicU64,
    writes: AtomicU64,
    /// `true` if the peer leaves replies unread.
    is_blocked: AtomicBool,
    /// `true` for HTTP/2, where input may be no request: acknowledgements, window updates, pings.
    /// It alone writes before a request has arrived.
    is_http2: AtomicBool,
    /// `true` if all replies are sent, and only the peer's close is awaited.
    is_over: AtomicBool,
}

/// A guard of a request in progress, which ends on drop.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

impl Activity {
    /// Records that a request has arrived, up to its body.
    pub(super) fn begin(self: &Arc<Self>) -> RequestGuard {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.mark();
        RequestGuard(Arc::clone(self))
    }

    fn mark(&self) {
        self.reads_then.store(self.reads.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn seen(&self) -> Seen {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let begun = of(&self.begun);
        let phase = if self.is_over.load(Ordering::Relaxed) {
            ConnectionPhase::Ending
        } else if self.is_blocked.load(Ordering::Relaxed) {
            ConnectionPhase::Writing
        } else if begun > of(&self.done) {
            ConnectionPhase::Answering
        } else if of(&self.reads) > of(&self.reads_then) && !self.is_http2() {
            ConnectionPhase::Reading
        } else {
            ConnectionPhase::Nothing
        };
        Seen { begun, writes: of(&self.writes), phase }
    }

    fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Ordering::Relaxed);
        self.0.mark();
    }
}

/// The activity at one check of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    begun: u64,
    writes: u64,
    phase: ConnectionPhase,
}

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionPhase {
    /// A request.
    Nothing,
    /// The rest of a request's head.
    Reading,
    /// The server's own reply, or the request's body.
    Answering,
    /// The peer reading its replies.
    Writing,
    /// The peer's close.
    Ending,
}

/// A periodic check of a connection, which detects that it has done nothing for too long.
#[derive(Debug)]
pub(super) struct Watch {
    limits: ConnectionLimits,
    last: Seen,
    /// The time since which the connection waits for the same event.
    since: Instant,
}

impl Watch {
    pub(super) fn new(limits: ConnectionLimits, now: Instant) -> Self {
        let last = Seen { begun: 0, writes: 0, phase: ConnectionPhase::Reading };
        Self { limits, last, since: now }
    }

    /// Returns the interval between checks.
    pub(super) fn pause(&self) -> Duration {
        let ConnectionLimits { arrival, unread, idle, linger, .. } = self.limits;
        let shortest = arrival.min(unread).min(idle).min(linger);
        let quarter = shortest.checked_div(4).unwrap_or_default();
        quarter.clamp(Duration::from_millis(10), Duration::from_secs(5))
    }

    /// Returns `true` if the connection has done nothing for too long.
    pub(super) fn is_stuck(&mut self, activity: &Activity, now: Instant) -> bool {
        let seen = activity.seen();
        if seen != self.last {
            (self.last, self.since) = (seen, now);
            return false;
        }
        let max = match seen.phase {
            ConnectionPhase::Nothing => self.limits.idle,
            ConnectionPhase::Reading => self.limits.arrival,
            // The decision has time limits of its own, and so has the reading of a body.
            ConnectionPhase::Answering => return false,
            ConnectionPhase::Writing => self.limits.unread,
            ConnectionPhase::Ending => self.limits.linger,
        };
        now.saturating_duration_since(self.since) >= max
    }

    /// Returns `true` if a connection that did nothing for too long is sent a closing notice, as
    /// HTTP/2 allows. It then has the linger time to close.
    pub(super) fn announce_end(&mut self, activity: &Activity, now: Instant) -> bool {
        if !activity.is_http2() || self.last.phase != ConnectionPhase::Nothing {
            return false;
        }
        (self.limits.idle, self.since) = (self.limits.linger, now);
        true
    }
}

/// A stream that records what it carries.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
    yield_once: YieldOnce,
    is_shut: bool,
    discarded: usize,
}

/// The maximum number of bytes that are read and discarded after the last reply, so that the peer
/// can read the reply.
const MAX_DISCARDED: usize = 1 << 20;

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        // The first bytes of a request are awaited.
        activity.reads.fetch_add(1, Ordering::Relaxed);
        let yield_once = YieldOnce::default();
        Self { stream, activity, yield_once, is_shut: false, discarded: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.activity.reads.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    fn wrote<T>(&self, written: Poll<T>) -> Poll<T> {
        let is_blocked = written.is_pending();
        self.activity.is_blocked.store(is_blocked, Ordering::Relaxed);
        if !is_blocked {
            if self.activity.begun.load(Ordering::Relaxed) == 0 {
                self.activity.is_http2.store(true, Ordering::Relaxed);
            }
            self.activity.writes.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.yield_once.poll(context));
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Closes the writing half, and waits for the peer to close. A system that closes a connection
    /// with unread bytes revokes what it has sent, including the last reply.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_shut {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            this.is_shut = true;
            this.activity.is_over.store(true, Ordering::Relaxed);
        }
        let mut scratch = [0; 4096];
        while this.discarded < MAX_DISCARDED {
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut this.stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    this.discarded = this.discarded.saturating_add(buffer.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
