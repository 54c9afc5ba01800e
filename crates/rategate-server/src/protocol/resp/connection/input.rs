//! Input of a connection: reading, running complete commands, and keeping the rest.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::protocol::resp::{RespWriter, Step, WordSpans, parse, words};
use rategate::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::{Connection, MAX_UNWRITTEN, NextStep};
use crate::net::RefusalReason;

/// The number of bytes of one read.
pub(super) const READ: usize = 16 << 10;

impl<S, C> Connection<S, C>
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Clock + Clone + 'static,
{
    /// Reads once, and runs all commands that are complete by then.
    pub(super) fn read(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<NextStep> {
        lend(|shared| self.read_into(cx, now, shared))
    }

    fn read_into(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        shared: &mut Shared,
    ) -> io::Result<NextStep> {
        let buffered = self.input.len();
        let buffer = shared.buffer(buffered..buffered.saturating_add(READ));
        let count = match poll_read(&mut self.stream, cx, buffer) {
            Poll::Pending => return Ok(NextStep::Wait),
            Poll::Ready(count) => count?,
        };
        if count == 0 {
            self.is_ended = true;
            return Ok(NextStep::Again);
        }
        self.last = now;
        let end = buffered.saturating_add(count);
        if end < self.needed {
            self.input.extend_from_slice(shared.input.get(buffered..end).unwrap_or_default());
            return Ok(NextStep::Again);
        }
        if let Some(front) = shared.input.get_mut(..buffered) {
            front.copy_from_slice(&self.input);
        }
        let Shared { input, output, spans } = shared;
        self.run_and_keep(input.get(..end).unwrap_or_default(), now, output, spans);
        Ok(NextStep::Again)
    }

    /// Runs the commands that were kept.
    pub(super) fn run_buffered(&mut self, now: Instant) -> NextStep {
        let bytes = std::mem::take(&mut self.input);
        lend(|Shared { output, spans, .. }| self.run_and_keep(&bytes, now, output, spans));
        NextStep::Again
    }

    fn run_and_keep(
        &mut self,
        bytes: &[u8],
        now: Instant,
        output: &mut Vec<u8>,
        spans: &mut WordSpans,
    ) {
        output.clear();
        let used = self.run(bytes, output, spans);
        self.keep(bytes, used, now);
        self.output.extend_from_slice(output);
        self.pause(now);
    }

    /// Runs the commands at the front of `bytes`, as many as allowed. Returns their length in
    /// bytes.
    fn run(&mut self, bytes: &[u8], output: &mut Vec<u8>, spans: &mut WordSpans) -> usize {
        let mut used = 0_usize;
        let mut bounds = self.resp.bounds(self.session.is_unauthenticated());
        self.needed = 0;
        while output.len() < MAX_UNWRITTEN && self.may_run() {
            let rest = bytes.get(used..).unwrap_or_default();
            let replies = self.later.behind().unwrap_or(&mut *output);
            match parse(rest, &bounds, spans) {
                Step::Nothing(count) => used = used.saturating_add(count),
                Step::Short(needed) => {
                    self.needed = needed;
                    return used;
                }
                Step::Command(count) => {
                    used = used.saturating_add(count);
                    let pending = self.resp.run(&mut self.session, words(rest, spans), replies);
                    if let Some(pending) = pending {
                        self.later.push(pending);
                    }
                    bounds.unauthenticated = self.session.is_unauthenticated();
                }
                Step::Broken(broken) => {
                    RespWriter::new(replies, self.session.version)
                        .error(&format!("ERR Protocol error: {broken}"));
                    self.session.is_over = true;
                    self.session.refused(RefusalReason::Malformed);
                }
            }
        }
        used
    }

    /// Keeps the bytes that could not be run, and frees the buffer if there are none.
    fn keep(&mut self, bytes: &[u8], used: usize, now: Instant) {
        let rest = bytes.get(used..).unwrap_or_default();
        if rest.is_empty() || self.session.is_over {
            self.input = Vec::new();
            self.incomplete_since = None;
            return;
        }
        self.input.clear();
        self.input.extend_from_slice(rest);
        let is_incomplete = self.needed > 0;
        let since = self.incomplete_since.filter(|_| used == 0).unwrap_or(now);
        self.incomplete_since = is_incomplete.then_some(since);
    }

    /// Discards bytes that arrive after the end.
    pub(super) fn discard(&mut self, cx: &mut Context<'_>) -> io::Result<NextStep> {
        match lend(|shared| poll_read(&mut self.stream, cx, shared.buffer(0..READ))) {
            Poll::Pending => Ok(NextStep::Wait),
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(count) => count.map(|_| NextStep::Again),
        }
    }
}

/// Reads once. Returns the number of bytes, 0 at the end.
fn poll_read<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut fresh = ReadBuf::new(buffer);
    Pin::new(stream).poll_read(cx, &mut fresh).map_ok(|()| fresh.filled().len())
}

/// Buffers that all connections of a thread share, so that idle connections need none.
#[derive(Default)]
struct Shared {
    input: Vec<u8>,
    output: Vec<u8>,
    spans: WordSpans,
}

thread_local! {
    static SHARED: Cell<Option<Box<Shared>>> = const { Cell::new(None) };
}

/// Lends the buffers to `to`, which must not wait meanwhile.
fn lend<T>(to: impl FnOnce(&mut Shared) -> T) -> T {
    let mut shared = SHARED.take().unwrap_or_default();
    let result = to(&mut shared);
    SHARED.set(Some(shared));
    result
}

impl Shared {
    /// Returns the input buffer at the positions `range`, which it grows as needed.
    fn buffer(&mut self, range: Range<usize>) -> &mut [u8] {
        if self.input.len() < range.end {
            self.input.resize(range.end, 0);
        }
        self.input.get_mut(range).unwrap_or_default()
    }
}
