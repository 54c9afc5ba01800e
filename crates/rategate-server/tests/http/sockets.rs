//! The API through connections, and their end with the service.

use std::future::Future;
use std::time::Duration;

use rategate_server::protocol::http::{ConnectionLimits, serve_connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::http::common::{Service, plain};

/// A request that every service answers.
pub(crate) const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";

/// The time that a test waits for something that must happen.
const LONG: Duration = Duration::from_secs(15);

/// A server on its own port.
pub(crate) struct Server {
    address: std::net::SocketAddr,
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

    /// Sends a request on a connection, and drains once it is answered.
    async fn drain_after(&self, stream: &mut TcpStream) {
        stream.write_all(HEALTH).await.unwrap();
        answer(stream).await;
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
