//! One connection: bytes in, commands in their order, bytes out. The only module of the protocol that waits.
//!
//! What a connection holds of its own while nothing is under way is the room for its task: what is read goes into a buffer
//! that all connections of a thread use in turn, and so does what is written (`shared`). Only the start of a command whose rest
//! has not come (`input`), replies that the peer does not take (`output`), and those behind answers that come later (`later`)
//! are kept, and all have a bound. Who does not read its replies is not read from.

mod input;
mod later;
mod output;
mod shared;
#[cfg(test)]
mod tests;

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use rategate::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};

use self::later::Answers;
use super::Resp;
use super::session::Session;
use crate::net::{self, Drain, Seldom};

/// No more commands are run while so many bytes of replies have not been written.
const MOST_UNWRITTEN: usize = 64 << 10;
/// How often a connection may go on before others of its thread have their turn.
const ROUNDS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Commands are read and run.
    Open,
    /// All is written: now the peer is told that no more comes.
    Closing,
    /// Whatever the peer sends is thrown away until it has closed too: closing with bytes unread would make the system
    /// throw away replies that are still on their way.
    Lingering,
}

/// What to do next.
enum Turn {
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
    /// Looking at `input` is no use while it is shorter.
    needed: usize,
    /// Replies that the peer has not taken.
    output: Vec<u8>,
    written: usize,
    /// Others first, before they are written.
    others: net::Turn,
    /// Whether the stream itself holds something back.
    is_unflushed: bool,
    later: Answers,
    /// The peer sends no more.
    is_ended: bool,
    is_draining: bool,
    /// When something last happened.
    last: Instant,
    /// Since when a command is incomplete.
    incomplete_since: Option<Instant>,
    /// Until when nothing is written, and no command is run.
    paused_until: Option<Instant>,
}

/// Speaks with the peer until it, an error, a timeout or the drain ends it.
pub(super) async fn serve<S, C>(resp: Resp<C>, stream: S, session: Session, drain: Drain)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: Clock + Clone + 'static,
{
    let mut connection = Connection::new(resp, stream, session);
    let (begun, alarm) = (pin!(drain.begun()), pin!(sleep_until(connection.deadline())));
    let (mut begun, mut alarm) = (Seldom::new(begun), Seldom::new(alarm));
    poll_fn(|cx| {
        let now = Instant::now();
        connection.is_draining = drain.is_begun();
        if connection.poll(cx, now).is_ready() {
            return Poll::Ready(());
        }
        let deadline = connection.deadline();
        if deadline <= now {
            return Poll::Ready(());
        }
        let wake = connection.paused_until.map_or(deadline, |until| until.min(deadline));
        if alarm.get().deadline() > wake || alarm.get().deadline() <= now {
            alarm.as_mut().reset(wake);
        }
        let is_called = !connection.is_draining && Pin::new(&mut begun).poll(cx).is_ready();
        if is_called || Pin::new(&mut alarm).poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
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
            others: net::Turn::default(),
            is_unflushed: false,
            later: Answers::default(),
            is_ended: false,
            is_draining: false,
            last: Instant::now(),
            incomplete_since: None,
            paused_until: None,
        }
    }

    /// Goes on later, if the session says so.
    fn pause(&mut self, now: Instant) {
        let pause = std::mem::take(&mut self.session.pause);
        if !pause.is_zero() {
            self.paused_until = now.checked_add(pause);
        }
    }

    /// When it is over for lack of anything happening.
    fn deadline(&self) -> Instant {
        let limits = self.resp.limits();
        let since = |since: Instant, length| since.checked_add(length).unwrap_or(since);
        match (self.phase, self.incomplete_since) {
            (Phase::Closing | Phase::Lingering, _) => since(self.last, limits.linger),
            _ if self.has_unwritten() => since(self.last, limits.unread),
            // A request that never comes to its end is no sign of life.
            (_, Some(begun)) => since(begun, limits.arrival),
            _ => since(self.last, limits.idle),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        for _ in 0..ROUNDS {
            let turn = match self.phase {
                Phase::Open => self.turn(cx, now),
                Phase::Closing => match Pin::new(&mut self.stream).poll_shutdown(cx) {
                    Poll::Ready(Ok(())) if self.is_ended => return Poll::Ready(()),
                    Poll::Ready(Ok(())) => {
                        self.phase = Phase::Lingering;
                        Ok(Turn::Again)
                    }
                    Poll::Ready(Err(error)) => Err(error),
                    Poll::Pending => Ok(Turn::Wait),
                },
                Phase::Lingering => self.discard(cx),
            };
            match turn {
                Ok(Turn::Again) => {}
                Ok(Turn::Wait) => return Poll::Pending,
                // The peer is gone: nobody is left to tell.
                Err(_) => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn turn(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<Turn> {
        if self.paused_until.is_some_and(|until| until > now) {
            return Ok(Turn::Wait);
        }
        if self.paused_until.take().is_some() {
            self.session.go_on();
        }
        self.later.collect(cx, &mut self.output, |reason| self.session.refused(reason));
        if self.has_unwritten() {
            let is_turn = self.others.poll(cx).is_ready();
            if !is_turn || self.write(cx, now)?.is_pending() {
                return Ok(Turn::Wait);
            }
        }
        if self.may_run() && self.input.len() >= self.needed.max(1) {
            return Ok(self.run_kept(now));
        }
        let is_last = self.session.is_over || self.is_ended || self.is_draining;
        if is_last && self.later.is_empty() {
            (self.phase, self.last) = (Phase::Closing, now);
            return Ok(Turn::Again);
        }
        if is_last || !self.may_run() {
            // For answers that come later.
            return Ok(Turn::Wait);
        }
        self.read(cx, now)
    }

    /// Whether one more command may be run.
    fn may_run(&self) -> bool {
        !self.session.is_over && self.session.pause.is_zero() && self.later.has_room()
    }
}
