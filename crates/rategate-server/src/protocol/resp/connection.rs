//! One connection: bytes in, commands in their order, bytes out. The only file of the protocol that waits.
//!
//! What a connection holds of its own while nothing is under way is the room for its task: what is read goes into a buffer
//! that all connections of a thread use in turn, and so does what is written. Only the start of a command whose rest has not
//! come, and replies that the peer does not take, are kept, and both have a bound. Who does not read its replies is not read
//! from.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use rategate::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use super::Resp;
use super::commands;
use super::own::{self, Pending};
use super::parse::{Step, parse, words};
use super::reply::Reply;
use super::session::Session;
use super::words::Spans;
use crate::engine::Decided;
use crate::net::{self, Drain, Seldom};

/// How much is read at once.
const READ: usize = 16 << 10;
/// No more commands are run while so many bytes of replies have not been written.
const MOST_UNWRITTEN: usize = 64 << 10;
/// The most answers that a connection waits for at a time.
const MOST_LATER: usize = 32;
/// How often a connection may go on before others of its thread have their turn.
const ROUNDS: usize = 4;

/// What the connections of a thread use in turn.
#[derive(Default)]
struct Shared {
    input: Vec<u8>,
    output: Vec<u8>,
    spans: Spans,
}

thread_local! {
    static SHARED: Cell<Option<Box<Shared>>> = const { Cell::new(None) };
}

/// An answer that comes later, and the replies behind it.
struct Later {
    pending: Option<Pending>,
    /// Its reply once it is there, and those to the commands that came after.
    replies: Vec<u8>,
}

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
    later: VecDeque<Later>,
    /// The peer sends no more.
    is_ended: bool,
    is_draining: bool,
    /// When something last happened.
    last: Instant,
    /// Since when a command is incomplete.
    incomplete_since: Option<Instant>,
}

/// Speaks with the peer until it, an error, a timeout or the drain ends it.
pub(super) async fn serve<S, C>(
    resp: Resp<C>,
    stream: S,
    id: i64,
    token_required: bool,
    drain: Drain,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: Clock + Clone + 'static,
{
    let mut connection = Connection::new(resp, stream, Session::new(id, token_required));
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
        if alarm.get().deadline() > deadline || alarm.get().deadline() <= now {
            alarm.as_mut().reset(deadline);
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
            later: VecDeque::new(),
            is_ended: false,
            is_draining: false,
            last: Instant::now(),
            incomplete_since: None,
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

    fn has_unwritten(&self) -> bool {
        self.is_unflushed || self.written < self.output.len()
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
        self.collect(cx);
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
        let waiting = self.later.iter().map(|later| later.replies.len()).sum::<usize>();
        !self.session.is_over && self.later.len() < MOST_LATER && waiting < MOST_UNWRITTEN
    }

    /// Takes the answers that have come, as far as no other has to come first.
    fn collect(&mut self, cx: &mut Context<'_>) {
        for later in &mut self.later {
            let Some(pending) = &mut later.pending else { continue };
            let Decided::Later(answer) = &mut pending.decided else { continue };
            let Poll::Ready(answer) = answer.as_mut().poll(cx) else { continue };
            let mut replies = Vec::new();
            own::write(&answer, pending.asked, &mut Reply::new(&mut replies, pending.version));
            replies.append(&mut later.replies);
            (later.replies, later.pending) = (replies, None);
        }
        while self.later.front().is_some_and(|later| later.pending.is_none()) {
            let Some(later) = self.later.pop_front() else { break };
            self.output.extend_from_slice(&later.replies);
        }
    }

    /// Reads once, and runs all commands that are complete by then.
    fn read(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<Turn> {
        let mut shared = SHARED.take().unwrap_or_default();
        let result = self.read_into(cx, now, &mut shared);
        SHARED.set(Some(shared));
        result
    }

    fn read_into(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        shared: &mut Shared,
    ) -> io::Result<Turn> {
        let kept = self.input.len();
        let room = kept.saturating_add(READ);
        if shared.input.len() < room {
            shared.input.resize(room, 0);
        }
        let mut fresh = ReadBuf::new(shared.input.get_mut(kept..room).unwrap_or_default());
        let count = match Pin::new(&mut self.stream).poll_read(cx, &mut fresh) {
            Poll::Pending => return Ok(Turn::Wait),
            Poll::Ready(result) => {
                result?;
                fresh.filled().len()
            }
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
        let bytes = input.get(..end).unwrap_or_default();
        output.clear();
        let used = self.run(bytes, output, spans);
        self.keep(bytes, used, now);
        self.output.extend_from_slice(output);
        Ok(Turn::Again)
    }

    /// Runs the commands that were kept back.
    fn run_kept(&mut self, now: Instant) -> Turn {
        let mut shared = SHARED.take().unwrap_or_default();
        let bytes = std::mem::take(&mut self.input);
        let Shared { output, spans, .. } = &mut *shared;
        output.clear();
        let used = self.run(&bytes, output, spans);
        self.keep(&bytes, used, now);
        self.output.extend_from_slice(output);
        SHARED.set(Some(shared));
        Turn::Again
    }

    /// Runs the commands at the front of `bytes`, as many as may be. How many bytes they are.
    fn run(&mut self, bytes: &[u8], output: &mut Vec<u8>, spans: &mut Spans) -> usize {
        let mut used = 0_usize;
        let mut bounds = self.resp.bounds(self.session.is_stranger());
        self.needed = 0;
        while output.len() < MOST_UNWRITTEN && self.may_run() {
            let rest = bytes.get(used..).unwrap_or_default();
            let replies = match self.later.back_mut() {
                Some(later) => &mut later.replies,
                None => &mut *output,
            };
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
                        self.later.push_back(Later { pending: Some(pending), replies: Vec::new() });
                    }
                    bounds.unauthenticated = self.session.is_stranger();
                }
                Step::Broken(broken) => {
                    Reply::new(replies, self.session.version)
                        .error(&format!("ERR Protocol error: {broken}"));
                    self.session.is_over = true;
                }
            }
        }
        used
    }

    /// Keeps what could not be run, and gives back the room if that is nothing.
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

    /// Writes replies, all of them or as much as the peer takes.
    fn write(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<Poll<()>> {
        while let Some(rest) = self.output.get(self.written..).filter(|rest| !rest.is_empty()) {
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(count) => {
                    self.written = self.written.saturating_add(some(count?)?);
                    (self.last, self.is_unflushed) = (now, true);
                }
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
        (self.output, self.written) = (Vec::new(), 0);
        self.flush(cx, now)
    }

    fn flush(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<Poll<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(result) => {
                result?;
                (self.is_unflushed, self.last) = (false, now);
                Ok(Poll::Ready(()))
            }
            Poll::Pending => Ok(Poll::Pending),
        }
    }

    fn discard(&mut self, cx: &mut Context<'_>) -> io::Result<Turn> {
        let mut shared = SHARED.take().unwrap_or_default();
        if shared.input.len() < READ {
            shared.input.resize(READ, 0);
        }
        let mut thrown = ReadBuf::new(&mut shared.input);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut thrown);
        let count = thrown.filled().len();
        SHARED.set(Some(shared));
        match polled {
            Poll::Pending => Ok(Turn::Wait),
            Poll::Ready(result) => {
                result?;
                if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Turn::Again) }
            }
        }
    }
}

/// A stream that takes nothing never will.
fn some(count: usize) -> io::Result<usize> {
    if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rategate::ManualClock;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::sync::oneshot;

    use super::*;
    use crate::engine::{Answer, Engine, EngineSettings, Fault, Verb};
    use crate::net::{Access, Limits};
    use crate::protocol::resp::{Bounds, Version};

    type Answered = oneshot::Sender<Result<Answer, Fault>>;

    fn connection() -> (Connection<DuplexStream, ManualClock>, DuplexStream) {
        let engine = Engine::new(ManualClock::new(), EngineSettings::default());
        let resp = Resp::new(engine, Access::default(), Bounds::default(), Limits::default());
        let (ours, theirs) = duplex(1 << 20);
        (Connection::new(resp, ours, Session::new(1, false)), theirs)
    }

    /// As if a store had been asked by the last command.
    fn ask_later(connection: &mut Connection<DuplexStream, ManualClock>) -> Answered {
        let (told, answer) = oneshot::channel();
        let decided =
            Decided::Later(Box::pin(async { answer.await.unwrap_or(Err(Fault::NotLoaded)) }));
        let asked = own::Asked { verb: Verb::Take, permits: 1, lease: None };
        let pending = Some(Pending { decided, asked, version: Version::Two });
        connection.later.push_back(Later { pending, replies: Vec::new() });
        told
    }

    async fn go_on(connection: &mut Connection<DuplexStream, ManualClock>) -> bool {
        // Once for itself, and once behind others.
        for _ in 0..2 {
            let polled = poll_fn(|cx| Poll::Ready(connection.poll(cx, Instant::now())));
            if polled.await.is_ready() {
                return true;
            }
        }
        false
    }

    async fn read(theirs: &mut DuplexStream) -> String {
        let mut bytes = vec![0; 4096];
        let read = poll_fn(|cx| {
            let mut room = ReadBuf::new(&mut bytes);
            let polled = Pin::new(&mut *theirs).poll_read(cx, &mut room);
            Poll::Ready(if polled.is_ready() { room.filled().len() } else { 0 })
        });
        let count = read.await;
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[tokio::test]
    async fn answers_that_come_later_keep_the_order() {
        let (mut connection, mut theirs) = connection();
        let first = ask_later(&mut connection);
        theirs.write_all(b"PING a\r\n").await.unwrap();
        assert!(!go_on(&mut connection).await);
        let second = ask_later(&mut connection);
        theirs.write_all(b"PING b\r\n").await.unwrap();
        assert!(!go_on(&mut connection).await);
        assert_eq!(read(&mut theirs).await, "");
        // The second is there first, and waits.
        second.send(Err(Fault::NoRoom)).unwrap();
        assert!(!go_on(&mut connection).await);
        assert_eq!(read(&mut theirs).await, "");
        first.send(Err(Fault::NotLoaded)).unwrap();
        assert!(!go_on(&mut connection).await);
        let all = "-ERR no configuration is loaded\r\n$1\r\na\r\n\
                   -ERR there is no room for another key\r\n$1\r\nb\r\n";
        assert_eq!(read(&mut theirs).await, all);
    }

    #[tokio::test]
    async fn the_end_waits_for_answers_that_come_later() {
        let (mut connection, mut theirs) = connection();
        let answer = ask_later(&mut connection);
        connection.is_draining = true;
        assert!(!go_on(&mut connection).await);
        assert_eq!(connection.phase, Phase::Open);
        answer.send(Err(Fault::NotLoaded)).unwrap();
        assert!(!go_on(&mut connection).await);
        assert_eq!(connection.phase, Phase::Lingering);
        let mut rest = String::new();
        theirs.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "-ERR no configuration is loaded\r\n");
    }

    #[tokio::test]
    async fn a_connection_that_waits_for_many_answers_is_not_read_from() {
        let (mut connection, mut theirs) = connection();
        let answers: Vec<Answered> = (0..MOST_LATER).map(|_| ask_later(&mut connection)).collect();
        theirs.write_all(b"PING\r\n").await.unwrap();
        assert!(!go_on(&mut connection).await);
        assert!(connection.later.iter().all(|later| later.replies.is_empty()));
        for answer in answers {
            answer.send(Err(Fault::NoRoom)).unwrap();
        }
        assert!(!go_on(&mut connection).await);
        assert!(!go_on(&mut connection).await);
        assert!(read(&mut theirs).await.ends_with("+PONG\r\n"));
        assert_eq!((connection.input.capacity(), connection.output.capacity()), (0, 0));
    }

    /// How long nothing may happen depends on whose turn it is.
    #[tokio::test]
    async fn each_silence_has_its_own_length() {
        let (mut connection, _theirs) = connection();
        let limits = Limits::default();
        let all = [limits.idle, limits.arrival, limits.unread, limits.linger];
        assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)));
        let patience = |connection: &Connection<_, _>| connection.deadline() - connection.last;
        assert_eq!(patience(&connection), limits.idle);
        connection.incomplete_since = Some(connection.last);
        assert_eq!(patience(&connection), limits.arrival);
        connection.output = b"+PONG\r\n".to_vec();
        assert_eq!(patience(&connection), limits.unread);
        for phase in [Phase::Closing, Phase::Lingering] {
            connection.phase = phase;
            assert_eq!(patience(&connection), limits.linger);
        }
    }

    /// Whoever sends anything that is whole, and whoever takes anything of what is told, is there.
    #[tokio::test]
    async fn what_comes_and_what_is_taken_ends_a_silence() {
        let (mut connection, mut theirs) = connection();
        let pause = || tokio::time::sleep(Duration::from_millis(2));
        let before = connection.last;
        pause().await;
        // Nothing is to be answered.
        theirs.write_all(b"\r\n").await.unwrap();
        assert!(!go_on(&mut connection).await);
        assert!(connection.last > before && connection.output.is_empty());

        let (ours, mut theirs) = duplex(READ);
        connection.stream = ours;
        theirs.write_all(&b"COMMAND\r\n".repeat(READ / 9)).await.unwrap();
        for _ in 0..9 {
            assert!(!go_on(&mut connection).await);
        }
        let before = connection.last;
        pause().await;
        assert!(!go_on(&mut connection).await);
        assert_eq!(connection.last, before, "nobody has taken anything");
        assert!(!read(&mut theirs).await.is_empty());
        assert!(!go_on(&mut connection).await);
        assert!(connection.last > before && connection.has_unwritten());
    }

    /// Short questions with long answers, while nobody reads: no more is kept than may be, and the answer that passed it.
    #[tokio::test]
    async fn answers_that_nobody_reads_are_bounded() {
        for waits in [false, true] {
            let engine = Engine::new(ManualClock::new(), EngineSettings::default());
            let resp = Resp::new(engine, Access::default(), Bounds::default(), Limits::default());
            let (ours, mut theirs) = duplex(READ);
            let mut connection = Connection::new(resp, ours, Session::new(1, false));
            // Either the peer takes nothing, or an answer that is to come first keeps back all others.
            let told = waits.then(|| ask_later(&mut connection));
            theirs.write_all(&b"COMMAND\r\n".repeat(READ / 9)).await.unwrap();
            for _ in 0..9 {
                assert!(!go_on(&mut connection).await);
            }
            let kept = connection.later.iter().map(|later| later.replies.len()).sum::<usize>();
            let kept = kept + connection.output.len() - connection.written;
            assert!(kept > MOST_UNWRITTEN / 2, "{kept}: too little to say anything");
            assert!(kept < MOST_UNWRITTEN + 8_192, "{kept} bytes of answers");
            drop(told);
        }
    }
}
