//! The bounds of a gRPC connection, byte by byte: memory, unread answers, time, and its end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rategate_server::engine::{Decided, Request};
use rategate_server::net::Access;
use rategate_server::protocol::grpc::{Health, Rls, Settings};
use rategate_server::protocol::rls::Decide;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream, DuplexStream, ReadBuf,
};

use crate::rls::abuse::{
    PREFACE, Raw, begun_call, call, contains_text, frame, head, message, right_message, server,
    server_with,
};
use crate::rls::calls::{descriptor, request};
use crate::rls::common::{engine, rules, runtime};

/// The shortest request for the largest file.
const REFLECTION_REQUEST: &[u8] = b"\x00\x00\x00\x00\x22\x1a\x20google/protobuf/descriptor.proto";

fn reflection(stream: u32) -> Vec<u8> {
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    frame(1, 4, stream, &head(path, &[("content-type", "application/grpc")]))
}

fn window(stream: u32, more: u32) -> Vec<u8> {
    frame(8, 0, stream, &more.to_be_bytes())
}

fn setting(name: u8, value: u32) -> Vec<u8> {
    [&[0, name][..], &value.to_be_bytes()].concat()
}

/// Encodes as many requests as fit in a stream's window of 64 KiB and a prefix.
fn many_requests(stream: u32) -> Vec<u8> {
    let all = REFLECTION_REQUEST.repeat(65_541 / REFLECTION_REQUEST.len());
    all.chunks(16_384).flat_map(|chunk| frame(0, 0, stream, chunk)).collect()
}

#[test]
fn unanswered_requests_hold_their_window() {
    let mut raw = Raw::new(&server());
    let closed = frame(4, 0, 0, &setting(4, 0));
    raw.send(&[PREFACE, &closed, &reflection(1), &many_requests(1)].concat());
    // The window permits one answer, so as many bytes of requests may follow.
    raw.send(&window(1, 14_200));
    raw.send(&many_requests(1));
    assert_eq!(raw.goaway(), Some(3));
}

#[test]
fn a_long_reflection_session_goes_on() {
    let mut raw = Raw::greeted(&server());
    raw.send(&[reflection(1), window(0, 1 << 30), window(1, 1 << 30)].concat());
    for _ in 0..40 {
        raw.send(&frame(0, 0, 1, &REFLECTION_REQUEST.repeat(100)));
        let mut answered = 0;
        while answered < 100 * 14_000 {
            let frame = raw.next().unwrap();
            answered += if frame.0 == 0 { frame.3.len() } else { 0 };
        }
    }
}

/// A stream that records the maximum number of bytes written at a time.
struct Seen {
    stream: DuplexStream,
    max_bytes: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl AsyncRead for Seen {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Seen {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.max_bytes.fetch_max(bytes.len(), std::sync::atomic::Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn services<D: Decide>(engine: D) -> Rls<D> {
    Rls::new(engine, Access::default(), Health::new(true), Settings::default())
}

/// Reads that many bytes of calls' data, or fails in time.
async fn data(client: &mut DuplexStream, wanted: usize) -> usize {
    let mut data = 0;
    while data < wanted {
        let read = async {
            let mut head = [0; 9];
            client.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            client.read_exact(&mut payload).await.unwrap();
            if head[3] == 0 { payload.len() } else { 0 }
        };
        data += tokio::time::timeout(Duration::from_secs(5), read).await.unwrap();
    }
    data
}

#[test]
fn answers_are_sent_before_more_are_made() {
    let max_bytes = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    runtime().block_on(async {
        let (mut client, stream) = tokio::io::duplex(32 << 20);
        let stream = Seen { stream, max_bytes: max_bytes.clone() };
        let open = frame(4, 0, 0, &setting(4, 0x7fff_ffff));
        let call_bytes = [PREFACE, &open, &window(0, 1 << 30), &reflection(1)].concat();
        client.write_all(&call_bytes).await.unwrap();
        client.write_all(&frame(0, 0, 1, &REFLECTION_REQUEST.repeat(420))).await.unwrap();
        // Several at once that waited for the same window.
        let rls = services(engine(rules()).0);
        let serve = rls.serve(stream, false, std::future::pending());
        tokio::select! {
            () = serve => panic!("the connection ended"),
            sent = data(&mut client, 420 * 14_000) => assert!(sent < 420 * 14_500),
        }
    });
    let max_bytes = max_bytes.load(std::sync::atomic::Ordering::Relaxed);
    assert!(max_bytes < 96 << 10, "{max_bytes} bytes at once");
}

#[test]
fn answers_of_many_streams_are_sent_before_more_are_made() {
    let max_bytes = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    runtime().block_on(async {
        let (mut client, stream) = tokio::io::duplex(32 << 20);
        let stream = Seen { stream, max_bytes: max_bytes.clone() };
        let open = frame(4, 0, 0, &setting(4, 0x7fff_ffff));
        client.write_all(&[PREFACE, &open].concat()).await.unwrap();
        for stream in (1..200).step_by(2) {
            let call_bytes =
                [reflection(stream), frame(0, 0, stream, &REFLECTION_REQUEST.repeat(4))].concat();
            client.write_all(&call_bytes).await.unwrap();
        }
        client.write_all(&window(0, 1 << 30)).await.unwrap();
        let rls = services(engine(rules()).0);
        let serve = rls.serve(stream, false, std::future::pending());
        tokio::select! {
            () = serve => panic!("the connection ended"),
            sent = data(&mut client, 400 * 14_000) => assert!(sent < 400 * 14_500),
        }
    });
    let max_bytes = max_bytes.load(std::sync::atomic::Ordering::Relaxed);
    assert!(max_bytes < 96 << 10, "{max_bytes} bytes at once");
}

/// As over TLS, whose session may buffer what it receives.
#[test]
fn what_is_written_is_flushed() {
    runtime().block_on(async {
        let (mut client, stream) = tokio::io::duplex(1 << 16);
        client.write_all(&[PREFACE, &frame(4, 0, 0, &[]), &call(1)].concat()).await.unwrap();
        let rls = services(engine(rules()).0);
        let serve = rls.serve(BufStream::new(stream), false, std::future::pending());
        tokio::select! {
            () = serve => panic!("the connection ended"),
            sent = data(&mut client, 1) => assert_eq!(sent, 32),
        }
    });
}

/// A store that never replies.
struct Silent;

impl Decide for Silent {
    fn decide(&self, _: &Request<'_>) -> Decided {
        Decided::Later(Box::pin(std::future::pending()))
    }
}

#[test]
fn calls_that_a_store_keeps_waiting_may_be_given_up() {
    runtime().block_on(async {
        let (mut client, stream) = tokio::io::duplex(1 << 20);
        client.write_all(&[PREFACE, &frame(4, 0, 0, &[])].concat()).await.unwrap();
        for stream in (1..1001).step_by(2) {
            let call_bytes = [call(stream), frame(3, 0, stream, &[0, 0, 0, 8])].concat();
            client.write_all(&call_bytes).await.unwrap();
        }
        client.write_all(&frame(6, 0, 0, b"the last")).await.unwrap();
        let rls = services(Silent);
        let serve = rls.serve(stream, false, std::future::pending());
        let answered = async {
            loop {
                let mut head = [0; 9];
                client.read_exact(&mut head).await.unwrap();
                let mut payload = vec![0; usize::from(head[2])];
                client.read_exact(&mut payload).await.unwrap();
                assert_ne!(head[3], 7, "GOAWAY {payload:?}");
                if payload == b"the last" {
                    return;
                }
            }
        };
        tokio::select! {
            () = serve => panic!("the connection ended"),
            () = answered => {}
        }
    });
}

#[test]
fn the_longest_message_fits_the_window() {
    for (max_bytes, before) in [(1 << 20, 0), (1 << 20, 7), (4 << 20, 3)] {
        let settings = Settings { max_message_bytes: max_bytes, ..Settings::default() };
        let mut raw = Raw::greeted(&server_with(settings));
        let call_bytes = |length: usize| {
            let long = request(&[descriptor(&[("unheard", &"x".repeat(length))])]);
            message(&long)
        };
        let short = call_bytes(60_000);
        let mut long = call_bytes(max_bytes - 100);
        long = call_bytes(max_bytes - 100 + (max_bytes + 5 - long.len()));
        assert_eq!(long.len(), max_bytes + 5);
        for (n, bytes) in std::iter::repeat_n(&short, before).chain([&long]).enumerate() {
            let stream = 1 + 2 * u32::try_from(n).unwrap();
            raw.send(&begun_call(stream));
            for chunk in bytes.chunks(16_384) {
                raw.send(&frame(0, 0, stream, chunk));
            }
            raw.send(&frame(0, 1, stream, &[]));
            assert_eq!(raw.answer(stream).len(), 3, "message {n} of up to {max_bytes} bytes");
        }
    }
}

#[test]
fn settings_of_one_frame_take_effect_at_once() {
    let mut raw = Raw::greeted(&server());
    raw.send(&[begun_call(1), window(1, 1)].concat());
    // The largest window, and one that would exceed it if it took effect alone.
    let both = [setting(4, 0x7fff_ffff), setting(4, 100)].concat();
    raw.send(&[frame(4, 0, 0, &both), frame(0, 1, 1, &right_message())].concat());
    assert_eq!(raw.answer(1).len(), 3);
    raw.send(&frame(4, 0, 0, &setting(4, 0x8000_0000)));
    assert_eq!(raw.goaway(), Some(3));
}

#[test]
fn a_frame_that_never_ends_has_its_time() {
    let settings = Settings { max_wait: Duration::from_millis(300), ..Settings::default() };
    let server = server_with(settings);
    for begun in [&frame(6, 0, 0, &[0; 8])[..5], &frame(1, 0, 1, b"\x83")] {
        let mut raw = Raw::greeted(&server);
        let started = Instant::now();
        raw.send(begun);
        assert_eq!(raw.goaway(), Some(0));
        assert!(raw.next().is_none());
        let waited = started.elapsed();
        assert!(waited >= Duration::from_millis(300) && waited < Duration::from_secs(3));
    }
    // A client that sends bytes, but never a complete frame, has received nothing yet.
    let mut raw = Raw::greeted(&server);
    let long = frame(0, 0, 1, &[0; 1000]);
    let started = Instant::now();
    for byte in &long {
        raw.send(&[*byte]);
        std::thread::sleep(Duration::from_millis(10));
        if started.elapsed() > Duration::from_secs(1) {
            break;
        }
    }
    assert_eq!(raw.goaway(), Some(0));
}

#[test]
fn a_drain_answers_what_is_on_its_way() {
    let server = server();
    let mut raw = Raw::greeted(&server);
    raw.send(&call(1));
    assert_eq!(raw.answer(1).len(), 3);
    server.drain();
    let mut farewell = raw.next().unwrap();
    while farewell.0 != 7 {
        farewell = raw.next().unwrap();
    }
    assert_eq!(farewell.3, [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0], "no call is refused yet");
    let ping = raw.next().unwrap();
    assert_eq!((ping.0, ping.1), (6, 0));
    // It was sent before the GOAWAY arrived, and so is answered.
    raw.send(&call(3));
    assert_eq!(raw.answer(3).len(), 3);
    raw.send(&begun_call(5));
    raw.send(&frame(6, 1, 0, &ping.3));
    let farewell = raw.next().unwrap();
    assert_eq!((farewell.0, farewell.3), (7, vec![0, 0, 0, 5, 0, 0, 0, 0]));
    // Calls after the GOAWAY are too late, however many; the call that had begun is still
    // answered.
    let late: Vec<u8> = (0..200).flat_map(|n| call(7 + 2 * n)).collect();
    raw.send(&late);
    raw.send(&frame(0, 1, 5, &right_message()));
    assert_eq!(raw.answer(5).len(), 3);
    // Later input does not cancel the answer.
    raw.send(&late);
    while let Some(frame) = raw.next() {
        assert_ne!(frame.0, 7, "{frame:?}");
    }
}

#[test]
fn a_drain_does_not_wait_for_silent_clients() {
    let server = server();
    let mut raw = Raw::greeted(&server);
    raw.send(&call(1));
    assert_eq!(raw.answer(1).len(), 3);
    server.drain();
    let started = Instant::now();
    while raw.next().is_some() {}
    let waited = started.elapsed();
    assert!(waited > Duration::from_secs(1) && waited < Duration::from_secs(4), "{waited:?}");
}

#[test]
fn bounds_are_those_of_the_settings() {
    let settings = Settings { max_streams: 2, max_head_bytes: 350, ..Settings::default() };
    let mut raw = Raw::greeted(&server_with(settings));
    let reported = raw.next().unwrap();
    assert_eq!(&reported.3[..6], setting(3, 2));
    assert_eq!(&reported.3[12..], setting(6, 350));
    raw.send(&[begun_call(1), begun_call(3), begun_call(5)].concat());
    assert_eq!(raw.answer(5), [(3, 0, 5, vec![0, 0, 0, 7])]);
    let long = "x".repeat(120);
    let long = head("/x", &[("content-type", &long), ("x", &long)]);
    raw.send(&[frame(3, 0, 1, &[0, 0, 0, 8]), frame(1, 4, 7, &long)].concat());
    assert!(contains_text(&raw.answer(7), "415"), "the content type is checked first");
}
