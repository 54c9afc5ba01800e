//! Malicious peers: slow, oversized, broken, resetting.

use std::time::Duration;

use bytes::Bytes;
use rategate_server::protocol::http::{ConnectionLimits, Options};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::http::common::{plain, service};
use crate::http::sockets::{HEALTH, Server, answer, post, rest, run};
use fastrand::Rng;

/// Short enough for a test to wait, and longer than anything else takes.
const SHORT: Duration = Duration::from_millis(400);

fn short() -> ConnectionLimits {
    ConnectionLimits { arrival: SHORT, linger: SHORT, ..ConnectionLimits::default() }
}

async fn lives(server: &Server) {
    let mut stream = server.connect().await;
    stream.write_all(HEALTH).await.unwrap();
    assert!(answer(&mut stream).await.ends_with("OK"));
}

#[test]
fn a_head_that_never_ends_ends_the_connection() {
    run(async {
        let server = Server::new(plain(), short()).await;
        let (mut silent, mut slow) = (server.connect().await, server.connect().await);
        let mut second = server.connect().await;
        second.write_all(HEALTH).await.unwrap();
        answer(&mut second).await;
        second.write_all(b"GET /heal").await.unwrap();
        slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        // No single byte is late, but all together are.
        let mut written = 0;
        while slow.write_all(b"a: b\r\n").await.is_ok() {
            tokio::time::sleep(SHORT / 20).await;
            written += 1;
            assert!(written < 500, "it goes on for ever");
        }
        assert_eq!(rest(&mut silent).await, "");
        assert_eq!(rest(&mut second).await, "");
        lives(&server).await;
    });
}

#[test]
fn a_body_that_never_ends_is_answered() {
    run(async {
        let options = Options { body_within: SHORT, ..Options::default() };
        let server = Server::new(service(options), ConnectionLimits::default()).await;
        let mut slow = server.connect().await;
        slow.write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
            .await
            .unwrap();
        assert!(answer(&mut slow).await.starts_with("HTTP/1.1 408 "));
    });
}

#[test]
fn idle_connections_end_and_busy_ones_do_not() {
    run(async {
        let limits = ConnectionLimits { idle: SHORT, ..ConnectionLimits::default() };
        let server = Server::new(plain(), limits).await;
        let (mut idle, mut busy) = (server.connect().await, server.connect().await);
        idle.write_all(HEALTH).await.unwrap();
        answer(&mut idle).await;
        let idles = rest(&mut idle);
        let works = async {
            loop {
                busy.write_all(HEALTH).await.unwrap();
                answer(&mut busy).await;
                tokio::time::sleep(SHORT / 40).await;
            }
        };
        tokio::select! {
            rest = idles => assert_eq!(rest, ""),
            () = works => {}
        }
        lives(&server).await;
    });
}

/// Acknowledgements and window updates do not count as requests that have begun.
#[test]
fn an_idle_connection_of_http2_may_be_as_silent_as_any() {
    run(async {
        let limits = ConnectionLimits {
            arrival: SHORT / 2,
            idle: SHORT * 3,
            streams: 3,
            ..ConnectionLimits::default()
        };
        let server = Server::new(plain(), limits).await;
        let (sender, mut connection) = h2::client::handshake(server.connect().await).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        let ended = tokio::spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        for _ in 0..3 {
            let ask = http::Request::get("http://x/healthz").body(()).unwrap();
            let (response, _) = sender.send_request(ask, true).unwrap();
            response.await.unwrap();
            pings.ping(h2::Ping::opaque()).await.unwrap();
            tokio::time::sleep(SHORT).await;
        }
        assert_eq!(sender.current_max_send_streams(), 3, "no more at once than allowed");
        // HTTP/2 then ends with a GOAWAY, and no request is lost.
        let ended = tokio::time::timeout(SHORT * 10, ended).await.unwrap().unwrap();
        assert!(ended.is_ok(), "{ended:?}");
        lives(&server).await;
    });
}

/// Returns the answer to a request that does not end.
async fn first_line(server: &Server, request: String) -> String {
    let mut stream = server.connect().await;
    // The answer may arrive before everything is written.
    let _ = stream.write_all(request.as_bytes()).await;
    let answer = rest(&mut stream).await;
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn bodies_that_are_too_long_are_refused_before_they_come() {
    run(async {
        let server = Server::new(plain(), short()).await;
        let head = "POST /v1/check HTTP/1.1\r\nhost: x\r\n";
        let data = format!("{head}content-length: 99999999999\r\n\r\n");
        assert_eq!(first_line(&server, data).await, "HTTP/1.1 413 Payload Too Large");
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000)).repeat(2);
        let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{chunk}");
        assert_eq!(first_line(&server, chunked).await, "HTTP/1.1 413 Payload Too Large");
    });
}

/// Otherwise the system would discard the answer.
#[test]
fn what_still_comes_after_the_last_answer_is_thrown_away() {
    run(async {
        let server = Server::new(plain(), ConnectionLimits::default()).await;
        let mut stream = server.connect().await;
        let head = "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 413 "));
        for _ in 0..20 {
            stream.write_all(&[b'x'; 1024]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn heads_have_a_bound() {
    run(async {
        let server = Server::new(plain(), short()).await;
        let head = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
        let long = |bytes: usize| format!("{head}a: {}\r\n\r\n", "b".repeat(bytes));
        let too_large = "HTTP/1.1 431 Request Header Fields Too Large";
        assert_eq!(first_line(&server, long(64 * 1024)).await, too_large);
        let many = format!("{head}{}\r\n", "a: b\r\n".repeat(200));
        assert_eq!(first_line(&server, many).await, too_large);
        // A head that fits is accepted.
        assert_eq!(first_line(&server, long(8 * 1024)).await, "HTTP/1.1 200 OK");
        let path = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(70_000));
        assert_eq!(first_line(&server, path).await, too_large);
    });
}

/// Returns a request with some of its bytes replaced, doubled, removed or cut off.
fn mutated(random: &mut Rng, request: &str) -> Vec<u8> {
    const NUMBERS: [&str; 4] = ["-1", "1e999", "18446744073709551616", "NaN"];
    const SIGNS: [&str; 6] = ["\r\n", "\0", "\u{fffd}", "{", "[[", "\""];
    const FIELDS: [&str; 2] = ["transfer-encoding: chunked\r\n", "content-length: 5\r\n"];
    let mut bytes = request.as_bytes().to_vec();
    for _ in 0..=random.usize(..4) {
        let at = random.usize(..bytes.len().max(1));
        match random.usize(..5) {
            0 => bytes[at] = random.u8(..),
            1 => bytes.truncate(at.max(1)),
            2 => {
                let end = (at + random.usize(..20)).min(bytes.len());
                bytes.drain(at..end.min(bytes.len() - 1).max(at));
            }
            3 => {
                let words = NUMBERS.iter().chain(&SIGNS).chain(&FIELDS);
                let word = random.choice(words.collect::<Vec<_>>()).unwrap();
                bytes.splice(at..at, word.bytes());
            }
            _ => {
                let end = (at + random.usize(..40)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
    bytes
}

const GOOD: [(&str, &str); 6] = [
    ("/v1/check", r#"{"rule":"per_user","key":{"base64":"AP8="},"permits":2,"verb":"peek"}"#),
    (
        "/v1/check?status=429",
        r#"{"items":[{"rule":"all"},{"rule":"per_path","key":{"user":"1","path":"\u00e4"}}]}"#,
    ),
    ("/v1/check", r#"{"domain":"edge","descriptor":[["user","42"],["path","/a"]]}"#),
    ("/v1/check", r#"{"limit":"0.5/10s","burst":20,"key":"42","permits":7}"#),
    (
        "/v1/check",
        r#"{"verb":"lease","rule":"ovens","key":"a","lease":"00112233445566778899aabbccddeeff"}"#,
    ),
    ("/v1/auth?rule=per_user&key=%20%ff+&permits=3&deny=403", ""),
];

/// Nonsensical bodies never panic, and are answered with an error status.
#[test]
fn garbled_bodies_are_answered() {
    let mut random = Rng::with_seed(1);
    let service = plain();
    for round in 0..10_000 {
        let (uri, body) = GOOD[random.usize(..GOOD.len() - 1)];
        let garbled = mutated(&mut random, body);
        let answer = service.post_bytes(uri, garbled.clone());
        let status = answer.status;
        let known = [200, 400, 404, 429, 503].contains(&status);
        assert!(known, "round {round}: {status} to {:?}", Bytes::from(garbled));
    }
}

/// 10 000 garbled requests through sockets: whatever each does to its own connection, the next is
/// served.
#[test]
fn garbled_requests_leave_it_serving() {
    run(async {
        let limits = ConnectionLimits { linger: Duration::from_millis(50), ..short() };
        let server = Server::new(plain(), limits).await;
        let mut random = Rng::with_seed(2);
        for _ in 0..100 {
            let mut stream: TcpStream = server.connect().await;
            for _ in 0..100 {
                let (uri, body) = random.choice(GOOD).unwrap();
                let garbled = mutated(&mut random, &post(uri, body));
                if stream.write_all(&garbled).await.is_err() {
                    stream = server.connect().await;
                }
            }
            stream.shutdown().await.ok();
            let _ = tokio::time::timeout(Duration::from_millis(5), rest(&mut stream)).await;
        }
        lives(&server).await;
    });
}
