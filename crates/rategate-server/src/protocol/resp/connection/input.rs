//! Input of a connection: reading, running complete commands, and keeping the rest.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rategate::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::shared::{Shared, lend};
use super::{Connection, MOST_UNWRITTEN, Turn};
use crate::net::RefusalReason;
use crate::protocol::resp::commands;
use crate::protocol::resp::parse::{Step, parse, words};
use crate::protocol::resp::reply::Reply;
use crate::protocol::resp::words::Spans;

/// The number of bytes of one read.
pub(super) const READ: usize = 16 << 10;

impl<S, C> Connection<S, C>
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Clock + Clone + 'static,
{
    /// Reads once, and runs all commands that are complete by then.
    pub(super) fn read(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<Turn> {
        lend(|shared| self.read_into(cx, now, shared))
    }

    fn read_into(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        shared: &mut Shared,
    ) -> io::Result<Turn> {
        let kept = self.input.len();
        let room = shared.room(kept..kept.saturating_add(READ));
        let count = match poll_read(&mut self.stream, cx, room) {
            Poll::Pending => return Ok(Turn::Wait),
            Poll::Ready(count) => count?,
        };
        if count == 0 {
            self.is_ended = true;
            return Ok(Turn::Again);
        }
        self.last = now;
        let end = kept.saturating_add(count);
        if end < self.needed {
            self.input.extend_from_slice(shared.input.get(kept..end).unwrap_or_default());
            return Ok(Turn::Again);
        }
        if let Some(front) = shared.input.get_mut(..kept) {
            front.copy_from_slice(&self.input);
        }
        let Shared { input, output, spans } = shared;
        self.run_and_keep(input.get(..end).unwrap_or_default(), now, output, spans);
        Ok(Turn::Again)
    }

    /// Runs the commands that were kept.
    pub(super) fn run_kept(&mut self, now: Instant) -> Turn {
        let bytes = std::mem::take(&mut self.input);
        lend(|Shared { output, spans, .. }| self.run_and_keep(&bytes, now, output, spans));
        Turn::Again
    }

    fn run_and_keep(
        &mut self,
        bytes: &[u8],
        now: Instant,
        output: &mut Vec<u8>,
        spans: &mut Spans,
    ) {
        output.clear();
        let used = self.run(bytes, output, spans);
        self.keep(bytes, used, now);
        self.output.extend_from_slice(output);
        self.pause(now);
    }

    /// Runs the commands at the front of `bytes`, as many as allowed. Returns their length in
    /// bytes.
    fn run(&mut self, bytes: &[u8], output: &mut Vec<u8>, spans: &mut Spans) -> usize {
        let mut used = 0_usize;
        let mut bounds = self.resp.bounds(self.session.is_stranger());
        self.needed = 0;
        while output.len() < MOST_UNWRITTEN && self.may_run() {
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
                    let pending =
                        commands::run(&self.resp, &mut self.session, words(rest, spans), replies);
                    if let Some(pending) = pending {
                        self.later.push(pending);
                    }
                    bounds.unauthenticated = self.session.is_stranger();
                }
                Step::Broken(broken) => {
                    Reply::new(replies, self.session.version)
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
    pub(super) fn discard(&mut self, cx: &mut Context<'_>) -> io::Result<Turn> {
        match lend(|shared| poll_read(&mut self.stream, cx, shared.room(0..READ))) {
            Poll::Pending => Ok(Turn::Wait),
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(count) => count.map(|_| Turn::Again),
        }
    }
}

/// Reads once. Returns the number of bytes, 0 at the end.
fn poll_read<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    room: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut fresh = ReadBuf::new(room);
    Pin::new(stream).poll_read(cx, &mut fresh).map_ok(|()| fresh.filled().len())
}
