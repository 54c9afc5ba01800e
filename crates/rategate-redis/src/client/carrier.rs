//! The bytes of a connection: commands are written in the order in which they are submitted, and
//! replies are delivered in that order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rategate_protocol::resp::{ReplyParser, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

/// The number of bytes of one read.
const READ: usize = 16 << 10;
/// The maximum number of writes that wait for the carrier. More of them wait for it to take one.
const MAX_WAITING: usize = 16;
/// The size from which a buffer is freed once it is empty.
const MAX_IDLE_BYTES: usize = 256 << 10;

/// Commands that go out in one write.
pub(super) struct Submission {
    pub(super) bytes: Vec<u8>,
    /// The number of replies to the commands, at least one.
    pub(super) replies: usize,
    /// Receives the replies, or the reason why they do not come.
    pub(super) respond: oneshot::Sender<Result<Vec<Value>, String>>,
}

/// Replies that are on their way.
struct Expected {
    missing: usize,
    arrived: Vec<Value>,
    respond: oneshot::Sender<Result<Vec<Value>, String>>,
}

struct Carrier<S> {
    stream: S,
    submissions: mpsc::Receiver<Submission>,
    expected: VecDeque<Expected>,
    output: Vec<u8>,
    written: usize,
    /// `true` if the stream itself may hold unsent bytes.
    is_unflushed: bool,
    /// The start of an incomplete reply, as far as the parser has not taken it.
    input: Vec<u8>,
    buffer: Box<[u8]>,
    parser: ReplyParser,
}

/// Carries bytes over a stream. The future ends with the stream, or with the last sender.
pub(super) fn carry(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
) -> (mpsc::Sender<Submission>, impl Future<Output = ()> + Send) {
    let (sender, submissions) = mpsc::channel(MAX_WAITING);
    let mut carrier = Carrier {
        stream,
        submissions,
        expected: VecDeque::new(),
        output: Vec::new(),
        written: 0,
        is_unflushed: false,
        input: Vec::new(),
        buffer: vec![0; READ].into_boxed_slice(),
        parser: ReplyParser::default(),
    };
    let work = async move {
        let error = poll_fn(|context| carrier.poll(context)).await;
        carrier.end(&error.to_string());
    };
    (sender, work)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Carrier<S> {
    /// Moves bytes until the stream ends. Returns the reason.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            while let Poll::Ready(submission) = self.submissions.poll_recv(context) {
                let Some(Submission { bytes, replies, respond }) = submission else {
                    return Poll::Ready(io::Error::other("the connection is closed"));
                };
                self.output.extend_from_slice(&bytes);
                let arrived = Vec::with_capacity(replies);
                self.expected.push_back(Expected { missing: replies, arrived, respond });
            }
            if let Poll::Ready(Err(error)) = self.write(context) {
                return Poll::Ready(error);
            }
            if let Err(error) = ready!(self.read(context)) {
                return Poll::Ready(error);
            }
        }
    }

    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest @ [_, ..]) = self.output.get(self.written..) {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written = self.written.saturating_add(count),
            }
            self.is_unflushed = true;
        }
        self.written = 0;
        self.output.clear();
        self.output.shrink_to(MAX_IDLE_BYTES);
        if self.is_unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut fresh = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut fresh))?;
        if fresh.filled().is_empty() {
            return Poll::Ready(Err(io::Error::other("the server has closed the connection")));
        }
        self.input.extend_from_slice(fresh.filled());
        let mut used = 0_usize;
        loop {
            let rest = self.input.get(used..).unwrap_or_default();
            let (count, reply) = self.parser.parse(rest).map_err(io::Error::other)?;
            used = used.saturating_add(count);
            let Some(reply) = reply else { break };
            deliver(&mut self.expected, reply)?;
        }
        self.input.drain(..used);
        if self.input.is_empty() {
            self.input.shrink_to(MAX_IDLE_BYTES);
        }
        Poll::Ready(Ok(()))
    }

    /// Tells all callers why no more replies come.
    fn end(mut self, why: &str) {
        self.submissions.close();
        let expected = self.expected.into_iter().map(|expected| expected.respond);
        let submitted = std::iter::from_fn(|| self.submissions.try_recv().ok());
        for respond in expected.chain(submitted.map(|submission| submission.respond)) {
            // The caller may have dropped its end.
            let _ = respond.send(Err(why.to_owned()));
        }
    }
}

/// Adds a reply to those of the oldest write, and delivers them once all have arrived.
fn deliver(expected: &mut VecDeque<Expected>, reply: Value) -> io::Result<()> {
    let Some(first) = expected.front_mut() else {
        return Err(io::Error::other("the server sends a reply to no command"));
    };
    first.arrived.push(reply);
    first.missing = first.missing.saturating_sub(1);
    if first.missing == 0
        && let Some(Expected { arrived, respond, .. }) = expected.pop_front()
    {
        // The caller may have dropped its end.
        let _ = respond.send(Ok(arrived));
    }
    Ok(())
}
