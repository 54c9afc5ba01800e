//! A connection to a service, over which requests go one after another.
//!
//! hyper implements the protocol: the service in the same binary uses it too, and it takes a Unix
//! socket like TCP, unlike clients that know only URLs.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

use super::endpoint::Endpoint;

/// The maximum length of a reply. A service lists at most some thousands of keys at a time.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// A client of one service.
pub(crate) struct Client {
    endpoint: Endpoint,
    token: Option<String>,
    timeout: Duration,
    runtime: Runtime,
    open: Option<SendRequest<Full<Bytes>>>,
}

/// The reply of the service.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// The reason why no usable reply came, as the end of a message that begins with the service's
/// address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoReplyReason(pub(crate) String);

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

impl Client {
    /// Creates a client, which connects at the first request.
    pub(crate) fn new(
        endpoint: Endpoint,
        token: Option<String>,
        timeout: Duration,
    ) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { endpoint, token, timeout, runtime, open: None })
    }

    /// Returns the address of the service.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends a request, and waits for the whole reply.
    ///
    /// Connecting, sending and reading together take at most the timeout. A request that changes
    /// something is sent once. One that reads is sent again over a new connection if the old one
    /// was closed in the meantime.
    pub(crate) fn send(
        &mut self,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> Result<Answer, NoReplyReason> {
        let (timeout, reused) = (self.timeout, self.open.is_some());
        let mut outcome = self.once(method, path, body, timeout);
        if reused && outcome.is_err() && *method == Method::GET {
            outcome = self.once(method, path, body, timeout);
        }
        outcome
    }

    fn once(
        &mut self,
        method: &Method,
        path: &str,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Answer, NoReplyReason> {
        let open = self.open.take();
        let (endpoint, token) = (&self.endpoint, self.token.as_deref());
        let exchanged = async {
            let mut sender = match open.filter(|sender| !sender.is_closed()) {
                Some(sender) => sender,
                None => connect(endpoint).await?,
            };
            let answer = exchange(&mut sender, endpoint, token, method, path, body).await?;
            Outcome::Ok((answer, sender))
        };
        let outcome =
            self.runtime.block_on(async { tokio::time::timeout(timeout, exchanged).await });
        match outcome {
            Ok(Ok((answer, sender))) => {
                self.open = Some(sender);
                Ok(answer)
            }
            Ok(Err(error)) => Err(NoReplyReason(cause(&*error))),
            Err(_) => Err(NoReplyReason(format!("no reply within {} ms", timeout.as_millis()))),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("place", &self.endpoint).finish_non_exhaustive()
    }
}

async fn connect(endpoint: &Endpoint) -> Outcome<SendRequest<Full<Bytes>>> {
    match endpoint {
        Endpoint::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            begin(stream).await
        }
        Endpoint::Unix(path) => begin(UnixStream::connect(path).await?).await,
    }
}

async fn begin<S>(stream: S) -> Outcome<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The connection is driven during a request, and its failure is reported by that request.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    endpoint: &Endpoint,
    token: Option<&str>,
    method: &Method,
    path: &str,
    body: &[u8],
) -> Outcome<Answer> {
    let mut request =
        Request::builder().method(method).uri(path).header(header::HOST, endpoint.host());
    if let Some(token) = token {
        let mut value = header::HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| "the token has a character that no header field can carry")?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    if !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    sender.ready().await?;
    let response = sender.send_request(request.body(Full::from(body.to_vec()))?).await?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
    Ok(Answer { status: head.status, body })
}

/// Returns the innermost cause: the others say only where it happened.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
