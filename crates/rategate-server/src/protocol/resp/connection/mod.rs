//! A connection: bytes in, commands in order, bytes out. This is the only module of the protocol
//! that waits.
//!
//! An idle connection holds no buffers besides its task. Reads and writes use buffers that all
//! connections of a thread share. A connection keeps only the start of an incomplete command
//! (`input`), replies that the peer has not taken, and replies behind pending decisions (`later`).
//! All three are bounded. A peer that does not read its replies is not read
//! from.

mod input;
mod later;
#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use rategate::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use self::later::Answers;
use super::session::Session;
use super::{Open, Resp};
use crate::net::{self, Drain, WakeGate};

/// The number of unwritten bytes of replies from which on no more commands are run.
const MAX_UNWRITTEN: usize = 64 << 10;
/// The number of steps after which a connection lets others of its thread run.
const ROUNDS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Commands are read and run.
    Open,
    /// All replies are written, and the writing half is being closed.
    Closing,
    /// Input is discarded until the peer has closed, too. Closing with unread bytes would make the
    /// system discard replies that are still on their way.
    Lingering,
}

/// The next step of a connection.
enum NextStep {
    Again,
    Wait,
}

struct Connection<S, C: Clock> {
    stream: S,
    resp: Resp<C>,
    session: Session,
    phase: Phase,
    /// The start of a command, or commands that could not be run yet.
    input: Vec<u8>,
    /// The number of bytes of `input` below which parsing again is useless.
    needed: usize,
    /// Replies that the peer has not taken.
    output: Vec<u8>,
    written: usize,
    /// Lets other tasks run before replies are written.
    others: net::YieldOnce,
    /// `true` if the stream itself may hold unsent bytes.
    is_unflushed: bool,
    later: Answers,
    /// `true` once the peer has closed its writing half.
    is_ended: bool,
    is_draining: bool,
    /// The time of the last read or write.
    last: Instant,
    /// The time at which the incomplete command began.
    incomplete_since: Option<Instant>,
    /// The time until which nothing is written and no command is run.
    paused_until: Option<Instant>,
}

/// Serves the peer until it, an error, a timeout or the drain ends the connection.
pub(super) fn serve<S, C>(
    resp: Resp<C>,
    stream: S,
    session: Session,
    drain: Drain,
    open: Open<C>,
) -> impl Future<Output = ()> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: Clock + Clone + 'static,
{
    let mut connection = Connection::new(resp, stream, session);
    // Made before: a future keeps room for its arguments besides what is made of them.
    async move {
        let _open = open;
        let (begun, timer) = (pin!(drain.begun()), pin!(sleep_until(connection.deadline())));
        let (mut begun, mut timer) = (WakeGate::new(begun), WakeGate::new(timer));
        poll_fn(|cx| {
            let now = Instant::now();
            connection.is_draining =
                connection.is_draining || Pin::new(&mut begun).poll(cx).is_ready();
            if connection.poll(cx, now).is_ready() {
                return Poll::Ready(());
            }
            let deadline = connection.deadline();
            if deadline <= now {
                return Poll::Ready(());
            }
            let wake = connection.paused_until.map_or(deadline, |until| until.min(deadline));
            if timer.get().deadline() > wake || timer.get().deadline() <= now {
                timer.as_mut().reset(wake);
            }
            if Pin::new(&mut timer).poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
    }
}

impl<S, C> Connection<S, C>
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Clock + Clone + 'static,
{
    fn new(resp: Resp<C>, stream: S, session: Session) -> Self {
        Self {
            stream,
            resp,
            session,
            phase: Phase::Open,
            input: Vec::new(),
            needed: 0,
            output: Vec::new(),
            written: 0,
            others: net::YieldOnce::default(),
            is_unflushed: false,
            later: Answers::default(),
            is_ended: false,
            is_draining: false,
            last: Instant::now(),
            incomplete_since: None,
            paused_until: None,
        }
    }

    /// Pauses the connection if the session requires it.
    fn pause(&mut self, now: Instant) {
        let pause = std::mem::take(&mut self.session.pause);
        if !pause.is_zero() {
            self.paused_until = now.checked_add(pause);
        }
    }

    /// Returns the time at which the connection ends unless something happens.
    fn deadline(&self) -> Instant {
        let limits = self.resp.limits();
        let since = |since: Instant, length| since.checked_add(length).unwrap_or(since);
        match (self.phase, self.incomplete_since) {
            (Phase::Closing | Phase::Lingering, _) => since(self.last, limits.linger),
            _ if self.has_unwritten() => since(self.last, limits.unread),
            // An incomplete request does not extend the deadline.
            (_, Some(begun)) => since(begun, limits.arrival),
            _ => since(self.last, limits.idle),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        for _ in 0..ROUNDS {
            let step = match self.phase {
                Phase::Open => self.step(cx, now),
                Phase::Closing => match Pin::new(&mut self.stream).poll_shutdown(cx) {
                    Poll::Ready(Ok(())) if self.is_ended => return Poll::Ready(()),
                    Poll::Ready(Ok(())) => {
                        self.phase = Phase::Lingering;
                        Ok(NextStep::Again)
                    }
                    Poll::Ready(Err(error)) => Err(error),
                    Poll::Pending => Ok(NextStep::Wait),
                },
                Phase::Lingering => self.discard(cx),
            };
            match step {
                Ok(NextStep::Again) => {}
                Ok(NextStep::Wait) => return Poll::Pending,
                // The peer has closed, so no reply can be sent.
                Err(_) => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn step(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<NextStep> {
        if self.paused_until.is_some_and(|until| until > now) {
            return Ok(NextStep::Wait);
        }
        if self.paused_until.take().is_some() {
            self.session.resume();
        }
        self.later.collect(cx, &mut self.output, |reason| self.session.refused(reason));
        if self.has_unwritten() {
            let may_write = self.others.poll(cx).is_ready();
            if !may_write || self.write(cx, now)?.is_pending() {
                return Ok(NextStep::Wait);
            }
        }
        if self.may_run() && self.input.len() >= self.needed.max(1) {
            return Ok(self.run_buffered(now));
        }
        let is_last = self.session.is_over || self.is_ended || self.is_draining;
        if is_last && self.later.is_empty() {
            (self.phase, self.last) = (Phase::Closing, now);
            return Ok(NextStep::Again);
        }
        if is_last || !self.may_run() {
            // Waits for pending decisions.
            return Ok(NextStep::Wait);
        }
        self.read(cx, now)
    }

    /// Returns `true` if another command may be run.
    fn may_run(&self) -> bool {
        !self.session.is_over && self.session.pause.is_zero() && self.later.has_capacity()
    }

    fn has_unwritten(&self) -> bool {
        self.is_unflushed || self.written < self.output.len()
    }

    /// Writes replies, all of them or as many as the peer takes.
    fn write(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<io::Result<()>> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                // A stream that takes no bytes will not take any later.
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written = self.written.saturating_add(count),
            }
            (self.last, self.is_unflushed) = (now, true);
        }
        (self.output, self.written) = (Vec::new(), 0);
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        (self.is_unflushed, self.last) = (false, now);
        Poll::Ready(Ok(()))
    }
}
