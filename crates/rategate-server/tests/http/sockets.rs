//! The API through connections: HTTP/1.1, pipelining, HTTP/2, and the end of the service.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rategate_server::protocol::http::{ConnectionLimits, serve_connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::http::common::{Service, plain};

/// The time that a test waits for something that must happen.
pub(crate) const LONG: Duration = Duration::from_secs(15);

/// A server on its own port.
pub(crate) struct Server {
    pub(crate) address: std::net::SocketAddr,
    drain: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn new(service: Service, limits: ConnectionLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (drain, drained) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (service, mut drained) = (service.clone(), drained.clone());
                let drain = async move {
                    let _ = drained.wait_for(|drained| *drained).await;
                };
                tokio::spawn(serve_connection(stream, limits, drain, move |request| {
                    let service = service.clone();
                    async move { service.api.call(request, &service.caller).await }
                }));
            }
        });
        Self { address, drain, task }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(crate) fn drain(&self) {
        self.drain.send_replace(true);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a test that must end in time.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LONG, test).await.expect("the test hangs");
    });
}

/// Returns all bytes until the peer closes.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    // A reset ends it as well.
    let _ = stream.read_to_end(&mut all).await;
    String::from_utf8_lossy(&all).into_owned()
}

/// Returns one answer with a content length.
pub(crate) async fn answer(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_lowercase();
            let length = length.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).await.unwrap(), 1, "{text}");
        all.extend_from_slice(&byte);
    }
}

pub(crate) fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

const ASK: &str = r#"{"rule":"per_user","key":"42"}"#;

#[test]
fn connections_are_kept() {
    run(async {
        let server = Server::new(plain(), ConnectionLimits::default()).await;
        let mut stream = server.connect().await;
        for left in [2, 1, 0] {
            stream.write_all(post("/v1/check", ASK).as_bytes()).await.unwrap();
            let answer = answer(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.contains(&format!("\"remaining\":{left}")), "{answer}");
            assert!(answer.contains("\r\ndate: "), "{answer}");
        }
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        assert!(rest(&mut stream).await.ends_with("\r\n\r\nOK"));
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    run(async {
        let server = Server::new(plain(), ConnectionLimits::default()).await;
        let mut stream = server.connect().await;
        let ask = r#"{"limit":"1/min","burst":100,"key":"k"}"#;
        let all = post("/v1/check", ask).repeat(50);
        stream.write_all(all.as_bytes()).await.unwrap();
        for left in (50..100).rev() {
            let answer = answer(&mut stream).await;
            assert!(answer.contains(&format!("\"remaining\":{left},")), "{answer}");
        }
    });
}

#[test]
fn bodies_come_in_parts_or_in_chunks() {
    run(async {
        let server = Server::new(plain(), ConnectionLimits::default()).await;
        let mut stream = server.connect().await;
        for chunk in post("/v1/check", ASK).as_bytes().chunks(7) {
            stream.write_all(chunk).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert!(answer(&mut stream).await.contains("\"remaining\":2"));
        let (one, two) = ASK.split_at(9);
        let chunked = format!(
            "POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
             {:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n",
            one.len(),
            two.len()
        );
        stream.write_all(chunked.as_bytes()).await.unwrap();
        assert!(answer(&mut stream).await.contains("\"remaining\":1"));
    });
}

#[test]
fn http_2_by_prior_knowledge() {
    run(async {
        let server = Server::new(plain(), ConnectionLimits::default()).await;
        let io = TokioIo::new(server.connect().await);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let ask = |sender: &mut hyper::client::conn::http2::SendRequest<Full<Bytes>>| {
            let request = Request::post("http://x/v1/check").body(Full::new(Bytes::from(ASK)));
            sender.send_request(request.unwrap())
        };
        let sent: Vec<_> = (0..5).map(|_| ask(&mut sender)).collect();
        let mut allowed = 0;
        for sent in sent {
            let response = sent.await.unwrap();
            assert_eq!(response.status(), 200);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            allowed += usize::from(body["allowed"].as_bool().unwrap());
        }
        assert_eq!(allowed, 3);
        // The service ends: later requests get no answer here.
        server.drain();
        while !sender.is_closed() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn the_end_comes_after_the_last_answer() {
    run(async {
        let server = Server::new(plain(), ConnectionLimits::default()).await;
        let (mut asking, mut idle) = (server.connect().await, server.connect().await);
        let mut silent = server.connect().await;
        let sent = post("/v1/check", ASK);
        for stream in [&mut asking, &mut idle] {
            stream.write_all(sent.as_bytes()).await.unwrap();
            answer(stream).await;
        }
        let (head, body) = sent.split_at(sent.len() - ASK.len());
        asking.write_all(head.as_bytes()).await.unwrap();
        // Its head has been read once the next connection was served.
        server.drain_after(&mut silent).await;
        assert_eq!(rest(&mut idle).await, "");
        asking.write_all(body.as_bytes()).await.unwrap();
        let last = rest(&mut asking).await;
        assert!(last.contains("connection: close") && last.contains("\"remaining\":0"), "{last}");
    });
}

impl Server {
    /// Sends a request on a connection, and drains once it is answered.
    async fn drain_after(&self, stream: &mut TcpStream) {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        answer(stream).await;
        self.drain();
    }
}
