//! A bounded connection: HTTP/1.1 with keep-alive and pipelining, or HTTP/2, which carries gRPC,
//! by its first bytes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use http::Request;
use http::header::CONTENT_TYPE;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::watched::{Activity, Watch, Watched};
use crate::net::{RefusalReason, WakeGate};

/// The bounds of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The maximum number of bytes of a request's head, at least 8 KiB, and of the connection's
    /// read buffer.
    pub head_bytes: usize,
    /// The longest time that a request may take to arrive, up to its body.
    pub arrival: Duration,
    /// The longest time that a connection may be silent.
    pub idle: Duration,
    /// The longest time that a peer may leave replies unread.
    pub unread: Duration,
    /// The longest time that an ended connection waits for the peer to close.
    pub linger: Duration,
    /// The maximum number of concurrent streams of an HTTP/2 connection.
    pub streams: u32,
    /// The maximum number of streams that a peer may reset before they are processed, and of those
    /// that this side resets. One more ends the connection.
    pub resets: usize,
    /// The silence after which an HTTP/2 peer is sent a ping, and the longest time that it may take
    /// to confirm it.
    pub keep_alive: (Duration, Duration),
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            head_bytes: 32 * 1024,
            arrival: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            unread: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            streams: 128,
            resets: 20,
            keep_alive: (Duration::from_secs(60), Duration::from_secs(20)),
        }
    }
}

/// Returns `true` if a request is for a gRPC service, and `false` for any other, chosen by the
/// path.
///
/// A gRPC request has the content type of gRPC and a path like `/package.Service/Method`. The path
/// matters because a proxy may pass on its client's content type with a request of its own.
pub(crate) fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    content_type.is_some_and(|value| value.starts_with(b"application/grpc"))
        && is_method(request.uri().path())
}

/// Returns `true` if a path has the form of gRPC. No other path here has a dot in its first
/// segment and a second segment.
fn is_method(path: &str) -> bool {
    let components = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    components.is_some_and(|(service, method)| service.contains('.') && !method.contains('/'))
}

impl ConnectionLimits {
    /// Returns `true` for a request whose head is too long, counted as HTTP/2 does.
    pub(crate) fn are_exceeded_by<B>(&self, request: &Request<B>) -> bool {
        let fields = request.headers().iter();
        let lengths = fields.map(|(name, value)| name.as_str().len().saturating_add(value.len()));
        let bytes =
            lengths.fold(0, |sum: usize, length| sum.saturating_add(length).saturating_add(32));
        request.version() == http::Version::HTTP_2 && bytes > self.head_bytes
    }
}

/// The initial window of a stream, which fits the longest body that is read here.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;

/// The maximum length of a frame that is accepted, and the most that is buffered of a reply that a
/// stream does not take.
const MAX_FRAME: u32 = 16 * 1024;

/// The longest head that is read of a call over HTTP/2. A proxy may put fields of its clients
/// there, and lets a call pass that fails: a head over [`ConnectionLimits::head_bytes`] is denied,
/// and one over this limit fails.
const MAX_HEAD: u32 = 256 * 1024;
const SEND_BUFFER: usize = 64 * 1024;

/// Serves a connection until the peer ends it, it exceeds a bound, or, after `drain` and all calls
/// in flight, the server ends it.
///
/// Returns the reason for breaking it off, if the input was not HTTP or exceeded a bound of HTTP/2.
/// Has to be polled by a tokio runtime with IO and time enabled. Dropping the future drops the
/// connection.
pub async fn serve_connection<S, A, F>(
    stream: S,
    limits: ConnectionLimits,
    drain: impl Future<Output = ()>,
    answer: A,
) -> Option<RefusalReason>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let activity = Arc::<Activity>::default();
    let io = TokioIo::new(Watched::new(stream, Arc::clone(&activity)));
    let requests = Arc::clone(&activity);
    let service = service_fn(move |request| {
        let under_way = requests.begin();
        let response = answer(request);
        async move {
            let response = response.await;
            drop(under_way);
            Ok::<_, Infallible>(response)
        }
    });
    let builder = builder(&limits);
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut watch = Watch::new(limits, Instant::now());
    let (drain, pause) = (pin!(drain), pin!(sleep(watch.pause())));
    let (mut drain, mut pause) = (WakeGate::new(drain), WakeGate::new(pause));
    let mut is_draining = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                let error = ended.err()?;
                tracing::debug!(%error, "an HTTP connection ended with an error");
                return reason(&*error);
            }
            () = &mut drain, if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut pause => {
                let now = Instant::now();
                if watch.is_stuck(&activity, now) {
                    if is_draining || !watch.announce_end(&activity, now) {
                        return None;
                    }
                    is_draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                let next = tokio::time::Instant::now().checked_add(watch.pause());
                pause.as_mut().reset(next.unwrap_or_else(tokio::time::Instant::now));
            }
        }
    }
}

/// Returns the builder of connections: every bound that the library has is set here.
fn builder(limits: &ConnectionLimits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // The arrival of a head is watched here, without a timer per request. Replies to pipelined
    // requests are not collected (`pipeline_flush`): hyper 1.12 would also hold back the
    // refusal of a malformed head, for ever.
    builder.http1().header_read_timeout(None).max_buf_size(limits.head_bytes.max(8 * 1024));
    let (interval, timeout) = limits.keep_alive;
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_send_buf_size(SEND_BUFFER)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX).max(MAX_HEAD))
        .max_pending_accept_reset_streams(limits.resets)
        .max_local_error_reset_streams(limits.resets)
        .keep_alive_interval(interval)
        .keep_alive_timeout(timeout);
    builder
}

/// Returns the reason for which a connection ended, if it counts as a refusal. The end of the peer
/// or of its bytes does not.
fn reason(error: &(dyn std::error::Error + 'static)) -> Option<RefusalReason> {
    let error = error.downcast_ref::<hyper::Error>()?;
    if error.is_parse_too_large() {
        return Some(RefusalReason::TooLong);
    }
    if error.is_parse() {
        return Some(RefusalReason::Malformed);
    }
    let error = std::error::Error::source(error)?.downcast_ref::<h2::Error>()?;
    match error.reason().filter(|_| error.is_library())? {
        h2::Reason::NO_ERROR => None,
        h2::Reason::ENHANCE_YOUR_CALM => Some(RefusalReason::TooMuch),
        _ => Some(RefusalReason::Malformed),
    }
}
