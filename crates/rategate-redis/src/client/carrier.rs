//! The bytes of a connection: commands are written in the order in which they are submitted, and
//! replies are delivered in that order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use crate::command::{Callee, Command};
use crate::reply::{ReplyParser, Value};

/// The number of bytes of one read.
const READ: usize = 16 << 10;
/// The maximum number of writes that wait for the carrier. More of them wait for it to take one.
const MAX_WAITING: usize = 16;
/// The size from which a buffer is freed once it is empty.
const MAX_IDLE_BYTES: usize = 256 << 10;

/// Commands that go out in one write.
#[derive(Default)]
pub(super) struct Commands {
    bytes: Vec<u8>,
    /// The number of commands, each of which has one reply.
    pub(super) count: usize,
}

/// Receives the replies to all commands of a write, or the reason why they do not come.
type Respond = oneshot::Sender<Result<Vec<Value>, String>>;

/// Commands, at least one, and the receiver of their replies.
pub(super) type Submission = (Commands, Respond);

/// Replies that are on their way.
struct Expected {
    missing: usize,
    arrived: Vec<Value>,
    respond: Respond,
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

impl Commands {
    pub(super) fn add(
        &mut self,
        words: impl IntoIterator<Item = impl AsRef<[u8]>, IntoIter: ExactSizeIterator>,
    ) {
        let words = words.into_iter();
        self.begin(words.len());
        for word in words {
            self.word(word.as_ref());
        }
    }

    pub(super) fn add_call(&mut self, command: &Command, callee: Callee<'_>) {
        let mut count = 0_usize;
        command.each_word(callee, |_| count = count.saturating_add(1));
        self.begin(count);
        command.each_word(callee, |word| self.word(word));
    }

    /// Begins a command of so many words, which the caller writes next.
    fn begin(&mut self, words: usize) {
        self.count = self.count.saturating_add(1);
        // Writing to a vector cannot fail.
        let _ = write!(self.bytes, "*{words}\r\n");
    }

    fn word(&mut self, word: &[u8]) {
        let _ = write!(self.bytes, "${}\r\n", word.len());
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Carrier<S> {
    /// Moves bytes until the stream ends. Returns the reason.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            while let Poll::Ready(submission) = self.submissions.poll_recv(context) {
                let Some((Commands { bytes, count }, respond)) = submission else {
                    return Poll::Ready(io::Error::other("the connection is closed"));
                };
                self.output.extend_from_slice(&bytes);
                let arrived = Vec::with_capacity(count);
                self.expected.push_back(Expected { missing: count, arrived, respond });
            }
            // A server that closes may have said why: what it sent is read in any case.
            match (self.read(context), self.write(context)) {
                (Poll::Ready(Ok(())), _) => {}
                (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => {
                    return Poll::Ready(error);
                }
                (Poll::Pending, _) => return Poll::Pending,
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
        for respond in expected.chain(submitted.map(|(_, respond)| respond)) {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Submits this many commands `PING` in one write.
    async fn submit(
        sender: &mpsc::Sender<Submission>,
        count: usize,
    ) -> oneshot::Receiver<Result<Vec<Value>, String>> {
        let (mut commands, (respond, replies)) = (Commands::default(), oneshot::channel());
        (0..count).for_each(|_| commands.add(["PING"]));
        sender.send((commands, respond)).await.unwrap();
        replies
    }

    /// The stream takes and gives few bytes at a time.
    #[tokio::test]
    async fn replies_reach_their_callers_in_order() {
        let (stream, mut server) = duplex(7);
        let (sender, work) = carry(stream);
        let work = tokio::spawn(work);
        let (first, second) = (submit(&sender, 2).await, submit(&sender, 1).await);
        let mut sent = [0; 42];
        server.read_exact(&mut sent).await.unwrap();
        assert_eq!(&sent[..14], b"*1\r\n$4\r\nPING\r\n");
        server.write_all(b":1\r\n$3\r\none\r\n-ERR no\r\n").await.unwrap();
        let one = Value::Bytes(b"one".to_vec());
        assert_eq!(first.await.unwrap(), Ok(vec![Value::Int(1), one]));
        assert_eq!(second.await.unwrap(), Ok(vec![Value::Error("ERR no".to_owned())]));
        // The last sender ends the carrier.
        drop(sender);
        work.await.unwrap();
    }

    #[tokio::test]
    async fn callers_learn_why_no_reply_comes() {
        for (bytes, why) in [
            (&b""[..], "the server has closed the connection"),
            (b":1\r\n:2\r\n", "the server sends a reply to no command"),
            (b"?", "a reply begins with byte 0x3f, which is no type of RESP2"),
        ] {
            let (stream, mut server) = duplex(64);
            let (sender, work) = carry(stream);
            let replies = submit(&sender, 1).await;
            server.write_all(bytes).await.unwrap();
            drop(server);
            work.await;
            match replies.await.unwrap() {
                Ok(replies) => assert_eq!(replies, [Value::Int(1)], "before the second reply"),
                Err(error) => assert_eq!(error, why),
            }
            assert!(sender.is_closed());
        }
    }
}
