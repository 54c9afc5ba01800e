//! A bounded HTTP connection: HTTP/1.1 with keep-alive and pipelining, or HTTP/2 by its first
//! bytes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rategate_protocol::http2::PREFACE;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{sleep, timeout};

use super::frames::Frames;
use super::watched::{Activity, FirstBytes, Watch, Watched};
use crate::net::{RefusalReason, WakeGate};
use crate::protocol::body::Body;

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
    /// The maximum number of streams that a peer may reset before they are processed. One more
    /// ends the connection.
    pub resets: usize,
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

/// The initial window of a stream, which fits the longest body that is read here.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;

/// Serves a connection until the peer ends it, it exceeds a bound, or, after `drain` and all calls
/// in flight, the server ends it.
///
/// Returns the reason for breaking it off, if the input was not HTTP or requested too little for
/// its volume. Has to be polled by a tokio runtime with IO and time enabled. Dropping the future
/// drops the connection.
pub async fn serve_connection<S, A, F>(
    stream: S,
    limits: ConnectionLimits,
    drain: impl Future<Output = ()>,
    answer: A,
) -> Option<RefusalReason>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let mut stream = stream;
    let mut drain = pin!(drain);
    let mut first = FirstBytes::default();
    let is_http2 = tokio::select! {
        biased;
        seen = timeout(limits.arrival, is_preface(&mut stream, &mut first)) => match seen {
            Ok(Ok(is_http2)) => is_http2,
            _ => return None,
        },
        () = drain.as_mut() => return None,
    };
    let activity = Arc::<Activity>::default();
    let frames = is_http2.then(|| Frames::new(Instant::now()));
    let io = TokioIo::new(Watched::new(stream, first, frames, Arc::clone(&activity)));
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
    let watch = Watch::new(limits, is_http2, Instant::now());
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // No keep-alive pings are sent: a silent client is disconnected after its idle time.
        builder
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(limits.resets)
            .max_local_error_reset_streams(limits.resets);
        let connection = builder.serve_connection(io, service);
        drive(connection, http2::Connection::graceful_shutdown, drain, watch, &activity).await
    } else {
        let mut builder = http1::Builder::new();
        // The arrival of a head is watched here, without a timer per request. Replies to pipelined
        // requests are not collected (`pipeline_flush`): hyper 1.12 would also hold back the
        // refusal of a malformed head, for ever.
        builder.header_read_timeout(None).max_buf_size(limits.head_bytes.max(8 * 1024));
        let connection = builder.serve_connection(io, service);
        drive(connection, http1::Connection::graceful_shutdown, drain, watch, &activity).await
    }
}

/// Returns `true` if a connection starts with the HTTP/2 preface. Reads only as many bytes as
/// needed.
async fn is_preface<S>(stream: &mut S, first: &mut FirstBytes) -> std::io::Result<bool>
where
    S: AsyncRead + Unpin,
{
    while first.until < PREFACE.len() {
        let buffer = first.bytes.get_mut(first.until..).unwrap_or_default();
        let read = stream.read(buffer).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        first.until = first.until.saturating_add(read);
        if first.bytes.get(..first.until) != PREFACE.get(..first.until) {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn drive<C>(
    connection: C,
    finish: impl Fn(Pin<&mut C>),
    drain: Pin<&mut impl Future<Output = ()>>,
    mut watch: Watch,
    activity: &Activity,
) -> Option<RefusalReason>
where
    C: Future<Output = hyper::Result<()>>,
{
    let mut connection = pin!(connection);
    let pause = pin!(sleep(watch.pause()));
    let (mut drain, mut pause) = (WakeGate::new(drain), WakeGate::new(pause));
    let mut is_draining = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                let error = ended.err()?;
                tracing::debug!(%error, "an HTTP connection ended with an error");
                return reason(&error, activity);
            }
            () = &mut drain, if !is_draining => {
                is_draining = true;
                finish(connection.as_mut());
            }
            () = &mut pause => {
                let now = Instant::now();
                if watch.is_stuck(activity, now) {
                    if is_draining || !watch.announce_end(now) {
                        return None;
                    }
                    is_draining = true;
                    finish(connection.as_mut());
                }
                let next = tokio::time::Instant::now().checked_add(watch.pause());
                pause.as_mut().reset(next.unwrap_or_else(tokio::time::Instant::now));
            }
        }
    }
}

/// Returns the reason for which a connection ended, if it counts as a refusal.
fn reason(error: &hyper::Error, activity: &Activity) -> Option<RefusalReason> {
    if activity.has_exceeded_budget() {
        Some(RefusalReason::TooMuch)
    } else if error.is_parse_too_large() {
        Some(RefusalReason::TooLong)
    } else if error.is_parse() {
        Some(RefusalReason::Malformed)
    } else {
        of_http2(error)
    }
}

/// Returns the reason why the HTTP/2 library ended a connection. Returns `None` if the peer ended
/// it or its bytes ended.
fn of_http2(error: &hyper::Error) -> Option<RefusalReason> {
    let error = std::error::Error::source(error)?.downcast_ref::<h2::Error>()?;
    let reason = error.reason().filter(|_| error.is_library())?;
    match reason {
        h2::Reason::NO_ERROR => None,
        h2::Reason::ENHANCE_YOUR_CALM => Some(RefusalReason::TooMuch),
        _ => Some(RefusalReason::Malformed),
    }
}
