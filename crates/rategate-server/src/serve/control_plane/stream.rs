//! A stream of discovery responses: one call of gRPC on a connection of its own.
//!
//! HTTP/2 is hyper's. The service's own is a server alone, and has no speed to give here.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rategate_protocol::grpc::{self, BadFrame, PREFIX};
use rategate_protocol::protobuf::Malformed;
use rategate_protocol::xds::{DiscoveryRequest, STREAM_PATH};
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::config::settings::{Xds, XdsTls};
use crate::net::{TlsError, client_config};

/// The maximum time of an attempt to connect, from the lookup of the name to the handshake.
const WITHIN: Duration = Duration::from_secs(10);
/// The silence after which TCP asks whether the control plane is still there. Pings of HTTP/2 are
/// no choice: servers of gRPC end connections that send more than one in five minutes.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The maximum number of bytes that a log shows of a peer's message.
const MAX_SHOWN: usize = 512;

/// The reason why there is no stream, or no longer one.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("no connection within {} s", WITHIN.as_secs())]
    Late,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("HTTP/2: {0}")]
    Http(#[from] hyper::Error),
    #[error("its address makes no request: {0}")]
    Address(#[from] http::Error),
    #[error("the reply has the HTTP status {0}")]
    Status(u16),
    #[error("the stream ends with the status {code}{message}")]
    Ended { code: String, message: String },
    #[error("the reply is not of gRPC: {0}")]
    Frame(#[from] BadFrame),
    #[error("a response is malformed: {0}")]
    Malformed(Malformed),
}

impl From<Malformed> for StreamError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// An open stream. Dropping it closes the connection.
pub(super) struct Stream {
    requests: mpsc::UnboundedSender<Bytes>,
    reply: Reply,
    buffer: BytesMut,
    max_message_bytes: usize,
    connection: JoinHandle<Result<(), hyper::Error>>,
}

/// The reply to the call. Its head arrives with the first response at the earliest.
enum Reply {
    Awaited(Pin<Box<dyn Future<Output = Result<Response<Incoming>, hyper::Error>>>>),
    Begun(Incoming),
}

/// The requests of a stream, as the body of its call.
struct Requests(mpsc::UnboundedReceiver<Bytes>);

impl Body for Requests {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|request| request.map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl Stream {
    /// Connects to the control plane and begins the call, without waiting for its reply.
    pub(super) async fn open(xds: &Xds) -> Result<Self, StreamError> {
        let connected = timeout(WITHIN, connect(xds)).await;
        let (mut calls, connection) = connected.map_err(|_| StreamError::Late)??;
        let scheme = if xds.tls.is_some() { "https" } else { "http" };
        let (requests, body) = mpsc::unbounded_channel();
        let request = Request::post(format!("{scheme}://{}{STREAM_PATH}", xds.server))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .body(Requests(body))?;
        let reply = Box::pin(async move { calls.send_request(request).await });
        Ok(Self {
            requests,
            reply: Reply::Awaited(reply),
            buffer: BytesMut::new(),
            max_message_bytes: xds.max_message_bytes,
            connection,
        })
    }

    /// Sends a request. If the stream has ended, the next response is that error.
    pub(super) fn send(&self, request: &DiscoveryRequest<'_>) {
        let mut out = BytesMut::new();
        grpc::prefixed(&mut out, |out| request.write(out));
        let _ = self.requests.send(out.freeze());
    }

    /// Waits for the next message. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Bytes, StreamError> {
        loop {
            if let Some(length) = grpc::length(&self.buffer, self.max_message_bytes)?
                && self.buffer.len() >= length
            {
                return Ok(self.buffer.split_to(length).split_off(PREFIX).freeze());
            }
            let body = match &mut self.reply {
                Reply::Begun(body) => body,
                Reply::Awaited(reply) => {
                    let body = begun(reply.await?)?;
                    self.reply = Reply::Begun(body);
                    continue;
                }
            };
            let Some(frame) = body.frame().await else { return Err(ended(&HeaderMap::new())) };
            match frame?.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => return Err(ended(frame.trailers_ref().unwrap_or(&HeaderMap::new()))),
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Returns the body of a reply, unless its head ends the call.
fn begun(reply: Response<Incoming>) -> Result<Incoming, StreamError> {
    if !reply.status().is_success() {
        return Err(StreamError::Status(reply.status().as_u16()));
    }
    if reply.headers().contains_key("grpc-status") {
        return Err(ended(reply.headers()));
    }
    Ok(reply.into_body())
}

/// Creates the error of a call that ended with these fields.
fn ended(fields: &HeaderMap) -> StreamError {
    let text = |name| fields.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let shown = |text: &str| text.chars().take(MAX_SHOWN).collect::<String>();
    let code = text("grpc-status").map_or_else(|| "(none)".to_owned(), |code| shown(&code));
    let message = text("grpc-message").map(|message| shown(&message)).unwrap_or_default();
    let message = if message.is_empty() { message } else { format!(": {message:?}") };
    StreamError::Ended { code, message }
}

type Opened = (SendRequest<Requests>, JoinHandle<Result<(), hyper::Error>>);

async fn connect(xds: &Xds) -> Result<Opened, StreamError> {
    let server = &xds.server;
    // The files are read at each connection: certificates are renewed while a service runs.
    let tls = xds.tls.as_ref().map(|tls| tls_of(tls, &server.host)).transpose()?;
    let stream = TcpStream::connect((server.host.as_str(), server.port)).await;
    let stream = stream.map_err(StreamError::Connect)?;
    stream.set_nodelay(true).map_err(StreamError::Connect)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(StreamError::Connect)?;
    match tls {
        None => opened(stream).await,
        Some((connector, name)) => {
            let stream = connector.connect(name, stream).await.map_err(StreamError::Connect)?;
            opened(stream).await
        }
    }
}

fn tls_of(tls: &XdsTls, host: &str) -> Result<(TlsConnector, ServerName<'static>), StreamError> {
    let shown = tls.cert.as_deref().zip(tls.key.as_deref());
    let config = client_config(&tls.ca, shown, &[b"h2"])?;
    let name = tls.name.as_deref().unwrap_or(host).to_owned();
    let invalid = |error| StreamError::Connect(io::Error::new(io::ErrorKind::InvalidInput, error));
    let name = ServerName::try_from(name).map_err(invalid)?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

async fn opened<S>(stream: S) -> Result<Opened, StreamError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (calls, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    Ok((calls, tokio::spawn(connection)))
}
