//! Connections without a socket, polled step by step.

use std::time::Duration;

use crate::protocol::resp::Bounds;
use rategate::ManualClock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};
use tokio::sync::oneshot;

use super::input::READ;
use super::later::MAX_LATER;
use super::*;
use crate::engine::{Answer, Decided, Engine, EngineError, EngineSettings, Verb};
use crate::net::{Access, Limits};
use crate::protocol::resp::own;

type Answered = oneshot::Sender<Result<Answer, EngineError>>;

fn connection() -> (Connection<DuplexStream, ManualClock>, DuplexStream) {
    connection_with(1 << 20)
}

/// Creates a connection with at most `buffer` bytes on their way in each direction.
fn connection_with(buffer: usize) -> (Connection<DuplexStream, ManualClock>, DuplexStream) {
    let engine = Engine::new(ManualClock::new(), EngineSettings::default());
    let resp = Resp::new(engine, Access::default(), Bounds::default(), Limits::default());
    let (ours, theirs) = duplex(buffer);
    (Connection::new(resp, ours, Session::new(1, false, net::Attempts::default())), theirs)
}

/// Adds a pending decision, as if the last command had reached a store.
fn ask_later(connection: &mut Connection<DuplexStream, ManualClock>) -> Answered {
    let (sender, answer) = oneshot::channel();
    let decided =
        Decided::Later(Box::pin(async { answer.await.unwrap_or(Err(EngineError::NotLoaded)) }));
    let request = own::CommandRequest { verb: Verb::Take, permits: 1, lease: None, repeated: None };
    let session = &mut connection.session;
    let pending = own::reply_now_or_later(decided, request, &mut Vec::new(), session);
    connection.later.push(pending.unwrap());
    sender
}

async fn advance(connection: &mut Connection<DuplexStream, ManualClock>) -> bool {
    // The first poll is for the connection itself, the second behind other tasks.
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
        let mut buffer = ReadBuf::new(&mut bytes);
        let polled = Pin::new(&mut *theirs).poll_read(cx, &mut buffer);
        Poll::Ready(if polled.is_ready() { buffer.filled().len() } else { 0 })
    });
    let count = read.await;
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[tokio::test]
async fn answers_that_come_later_keep_the_order() {
    let (mut connection, mut theirs) = connection();
    let first = ask_later(&mut connection);
    theirs.write_all(b"PING a\r\n").await.unwrap();
    assert!(!advance(&mut connection).await);
    let second = ask_later(&mut connection);
    theirs.write_all(b"PING b\r\n").await.unwrap();
    assert!(!advance(&mut connection).await);
    assert_eq!(read(&mut theirs).await, "");
    // The second decision arrives first, and waits.
    second.send(Err(EngineError::Store("it is unavailable".into()))).unwrap();
    assert!(!advance(&mut connection).await);
    assert_eq!(read(&mut theirs).await, "");
    first.send(Err(EngineError::NotLoaded)).unwrap();
    assert!(!advance(&mut connection).await);
    let all = "-ERR no configuration is loaded\r\n$1\r\na\r\n\
               -ERR it is unavailable\r\n$1\r\nb\r\n";
    assert_eq!(read(&mut theirs).await, all);
}

#[tokio::test]
async fn the_end_waits_for_answers_that_come_later() {
    let (mut connection, mut theirs) = connection();
    let answer = ask_later(&mut connection);
    connection.is_draining = true;
    assert!(!advance(&mut connection).await);
    assert_eq!(connection.phase, Phase::Open);
    answer.send(Err(EngineError::NotLoaded)).unwrap();
    assert!(!advance(&mut connection).await);
    assert_eq!(connection.phase, Phase::Lingering);
    let mut rest = String::new();
    theirs.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "-ERR no configuration is loaded\r\n");
    drop(theirs);
    assert!(advance(&mut connection).await, "both ends have closed");
}

#[tokio::test]
async fn a_connection_that_waits_for_many_answers_is_not_read_from() {
    let (mut connection, mut theirs) = connection();
    let answers: Vec<Answered> = (0..MAX_LATER).map(|_| ask_later(&mut connection)).collect();
    theirs.write_all(b"PING\r\n").await.unwrap();
    assert!(!advance(&mut connection).await);
    assert_eq!(connection.later.buffered(), 0);
    for answer in answers {
        answer.send(Err(EngineError::Store("it is unavailable".into()))).unwrap();
    }
    assert!(!advance(&mut connection).await);
    assert!(!advance(&mut connection).await);
    assert!(read(&mut theirs).await.ends_with("+PONG\r\n"));
    assert_eq!((connection.input.capacity(), connection.output.capacity()), (0, 0));
}

#[tokio::test]
async fn a_complete_command_releases_its_buffer() {
    let (mut connection, mut theirs) = connection();
    theirs.write_all(b"PI").await.unwrap();
    assert!(!advance(&mut connection).await);
    assert!(connection.incomplete_since.is_some());
    theirs.write_all(b"NG\r\n").await.unwrap();
    assert!(!advance(&mut connection).await);
    assert_eq!(read(&mut theirs).await, "+PONG\r\n");
    assert_eq!((connection.incomplete_since, connection.input.capacity()), (None, 0));
}

/// A complete input is a sign of life even if it needs no reply.
#[tokio::test]
async fn what_comes_is_a_sign_of_life() {
    let (mut connection, mut theirs) = connection();
    let long_ago = connection.last - Duration::from_secs(1);
    connection.last = long_ago;
    assert!(!advance(&mut connection).await);
    assert_eq!(connection.last, long_ago, "nothing has come");
    theirs.write_all(b"\r\n").await.unwrap();
    assert!(!advance(&mut connection).await);
    assert!(connection.last > long_ago && connection.output.is_empty());
}

#[tokio::test]
async fn replies_that_are_taken_bit_by_bit_are_a_sign_of_life() {
    let (mut connection, _theirs) = connection_with(8);
    connection.output = vec![b'+'; 64];
    let long_ago = connection.last - Duration::from_secs(1);
    connection.last = long_ago;
    assert!(!advance(&mut connection).await);
    assert_eq!(connection.written, 8);
    assert!(connection.last > long_ago);
}

/// The time limit depends on the party that the connection waits for.
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

/// Short requests with long replies that the peer does not read: the kept bytes stay within the
/// bound plus one reply.
#[tokio::test]
async fn unread_replies_are_bounded() {
    for waits in [false, true] {
        let (mut connection, mut theirs) = connection_with(READ);
        // Either the peer takes nothing, or an earlier pending decision delays all replies.
        let sender = waits.then(|| ask_later(&mut connection));
        theirs.write_all(&b"COMMAND\r\n".repeat(READ / 9)).await.unwrap();
        for _ in 0..9 {
            assert!(!advance(&mut connection).await);
        }
        let buffered = connection.later.buffered() + connection.output.len() - connection.written;
        assert!(buffered > MAX_UNWRITTEN / 2, "{buffered}: too little to say anything");
        assert!(buffered < MAX_UNWRITTEN + 8_192, "{buffered} bytes of answers");
        drop(sender);
    }
}
