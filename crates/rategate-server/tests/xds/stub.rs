//! A control plane for tests, which sends what it is told, and a service that follows it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use prost_types::Any;
use rategate_server::messages::discovery::{DiscoveryRequest, DiscoveryResponse};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc as tasks, oneshot};
use tokio_rustls::TlsAcceptor;

use super::xds_messages::{TheirConfig, TheirDescriptor, TheirPolicy};
use crate::serve::clients::PATIENCE;

pub(super) const TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";
const PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// A control plane on a port of its own, until it is dropped.
pub(super) struct Stub {
    pub(super) port: u16,
    requests: Receiver<DiscoveryRequest>,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// The way into the stream that was opened last.
    stream: Mutex<Option<tasks::UnboundedSender<Frame<Bytes>>>>,
    streams: AtomicUsize,
}

/// The body of a response, as it is sent.
struct Sent(tasks::UnboundedReceiver<Frame<Bytes>>);

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

impl Stub {
    pub(super) fn start() -> Self {
        Self::at(0, None)
    }

    /// Starts at a port, with TLS or without.
    pub(super) fn at(port: u16, tls: Option<rustls::ServerConfig>) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                tokio::select! {
                    () = accept(listener, tls, theirs, sender) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { port, requests, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Waits for the next request.
    pub(super) fn request(&self) -> DiscoveryRequest {
        self.requests.recv_timeout(PATIENCE).unwrap()
    }

    /// Returns the requests that come within a time.
    pub(super) fn requests_within(&self, time: Duration) -> Vec<DiscoveryRequest> {
        let deadline = std::time::Instant::now() + time;
        let left = || deadline.saturating_duration_since(std::time::Instant::now());
        std::iter::from_fn(|| self.requests.recv_timeout(left()).ok()).collect()
    }

    /// Returns the number of streams that were opened so far.
    pub(super) fn streams(&self) -> usize {
        self.shared.streams.load(Ordering::Relaxed)
    }

    /// Sends a response with these configurations, whose version and nonce are the same.
    pub(super) fn send(&self, version: &str, configs: &[TheirConfig]) {
        let any =
            |config: &TheirConfig| Any { type_url: TYPE.to_owned(), value: config.encode_to_vec() };
        self.respond(&DiscoveryResponse {
            version_info: version.to_owned(),
            resources: configs.iter().map(any).collect(),
            type_url: TYPE.to_owned(),
            nonce: version.to_owned(),
        });
    }

    pub(super) fn respond(&self, response: &DiscoveryResponse) {
        self.send_bytes(&framed(&response.encode_to_vec()));
    }

    pub(super) fn send_bytes(&self, bytes: &[u8]) {
        self.frame(Frame::data(Bytes::copy_from_slice(bytes)));
    }

    /// Ends the stream with a status.
    pub(super) fn end(&self, status: &'static str) {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.parse().unwrap());
        trailers.insert("grpc-message", "so be it".parse().unwrap());
        self.frame(Frame::trailers(trailers));
        *self.shared.stream.lock().unwrap() = None;
    }

    fn frame(&self, frame: Frame<Bytes>) {
        self.shared.stream.lock().unwrap().as_ref().unwrap().send(frame).unwrap();
    }

    /// Sends configurations that are right, and checks that they are accepted.
    pub(super) fn accepts(&self, version: &str, configs: &[TheirConfig]) {
        self.send(version, configs);
        let verdict = self.request();
        assert_eq!(verdict.error_detail, None);
        assert_eq!((&*verdict.version_info, &*verdict.response_nonce), (version, version));
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

async fn accept(
    listener: std::net::TcpListener,
    tls: Option<rustls::ServerConfig>,
    shared: Arc<Shared>,
    requests: mpsc::Sender<DiscoveryRequest>,
) {
    let listener = TcpListener::from_std(listener).unwrap();
    let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (shared, requests, tls) = (Arc::clone(&shared), requests.clone(), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(stream, shared, requests).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => serve(stream, shared, requests).await,
                    Err(error) => eprintln!("no handshake: {error}"),
                },
            }
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    shared: Arc<Shared>,
    requests: mpsc::Sender<DiscoveryRequest>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, requests) = (Arc::clone(&shared), requests.clone());
        async move {
            assert_eq!(request.uri().path(), PATH);
            assert_eq!(request.headers()["content-type"], "application/grpc");
            assert_eq!(request.headers()["te"], "trailers");
            let (sender, sent) = tasks::unbounded_channel();
            *shared.stream.lock().unwrap() = Some(sender);
            shared.streams.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(read(request.into_body(), requests));
            let response = Response::builder().header("content-type", "application/grpc");
            Ok::<_, Infallible>(response.body(Sent(sent)).unwrap())
        }
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // The client may close it at any time.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn read(mut body: Incoming, requests: mpsc::Sender<DiscoveryRequest>) {
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(prefix) = buffer.first_chunk::<5>() {
            let [flag, a, b, c, d] = *prefix;
            assert_eq!(flag, 0);
            let length = u32::from_be_bytes([a, b, c, d]) as usize + 5;
            if buffer.len() < length {
                break;
            }
            let message = buffer.split_to(length);
            let request = DiscoveryRequest::decode(&message[5..]).unwrap();
            assert_eq!(request.type_url, TYPE);
            // The test may be over.
            let _ = requests.send(request);
        }
    }
}

/// Returns a configuration of a domain with a limit an hour for each value of a key.
pub(super) fn limits(domain: &str, limits: &[(&str, u32)]) -> TheirConfig {
    let descriptor = |(key, permits): &(&str, u32)| TheirDescriptor {
        key: (*key).to_owned(),
        rate_limit: Some(hourly(*permits)),
        ..TheirDescriptor::default()
    };
    TheirConfig {
        name: format!("{domain}-config"),
        domain: domain.to_owned(),
        descriptors: limits.iter().map(descriptor).collect(),
    }
}

pub(super) fn hourly(permits: u32) -> TheirPolicy {
    TheirPolicy { unit: 3, requests_per_unit: permits, ..TheirPolicy::default() }
}

/// Returns the table `[xds]` of a control plane at this port, which waits little.
pub(super) fn table(port: u16) -> String {
    format!(
        "[xds]\nserver = \"127.0.0.1:{port}\"\nnode = \"envoy-ratelimit\"\n\
         connect_retry = \"20ms\"\nbackoff = \"50ms\"\nmax_backoff = \"200ms\"\n"
    )
}

/// Returns the port of an address without a listener.
pub(super) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().as_ref().map(SocketAddr::port).unwrap()
}

pub(super) fn put(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}
