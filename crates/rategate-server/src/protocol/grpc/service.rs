//! gRPC calls over general HTTP requests.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};
use rategate_protocol::grpc::{self, BadFrame, Code, ENCODING, Status};

use super::head::{Head, Method, Refusal};
use super::health::{State, Watcher};
use super::quota::QuotaSession;
use super::status::Failure;
use super::{Rls, Unary, reflection};
use crate::net::RefusalReason;
use crate::protocol::body::{Body, Collected, counted, typed};
use crate::protocol::rls::Decide;

impl<D: Decide + Send + Sync + 'static> Rls<D> {
    /// Answers a request; `token_required` is `true` if it has to show the token.
    ///
    /// Dropping the future cancels the call. Nothing is taken then unless the message was
    /// complete.
    pub async fn call<B>(&self, request: Request<B>, token_required: bool) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    {
        let (parts, mut body) = request.into_parts();
        let head = Head::of(&parts, &self.inner.access);
        let (method, timeout) = match head.call(&self.inner.access, token_required) {
            Ok(call) => call,
            Err(refusal) => return refused(refusal),
        };
        let wait = timeout.map_or(self.inner.settings.max_wait, |timeout| {
            timeout.min(self.inner.settings.max_wait)
        });
        if method == Method::Reflect {
            let stream = Reflecting {
                body,
                bytes: BytesMut::new(),
                max_message_bytes: self.max_message_bytes(),
                ended: false,
            };
            return answered(Body::stream(stream));
        }
        if method == Method::StreamQuotas {
            return answered(Body::stream(Assigning::new(self.clone(), body, wait)));
        }
        let may_credit = self.may_credit(head.token, token_required);
        match tokio::time::timeout(wait, self.one(method, may_credit, &mut body)).await {
            Ok(Ok(response)) => response,
            Ok(Err(Failure { status, refusal })) => {
                counted(refused(Refusal::Grpc(status)), refusal)
            }
            Err(_) => refused(Refusal::Grpc(Status::late())),
        }
    }

    fn max_message_bytes(&self) -> usize {
        self.inner.settings.max_message_bytes
    }

    /// Answers a call of one message.
    async fn one<B>(
        &self,
        method: Method,
        may_credit: bool,
        body: &mut B,
    ) -> Result<Response<Body>, Failure>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let message = match self.message(body).await? {
            Ok(message) => message,
            Err(bad) => {
                let mut out = BytesMut::new();
                self.bad_frame(method, bad, &mut out)?;
                return Ok(counted(succeeded(out), Some(RefusalReason::TooLong)));
            }
        };
        if method == Method::Watch {
            let watcher = self.inner.health.watch(&message)?;
            let watching = Watching { watcher, change: None, ended: false };
            return Ok(answered(Body::stream(watching)));
        }
        let mut out = BytesMut::with_capacity(96);
        let refusal = match self.unary(method, may_credit, &message, &mut out) {
            Ok(refusal) => refusal,
            Err(Unary::Failed(failure)) => return Err(failure),
            Err(Unary::Later(later)) => {
                let answer = later.await?;
                self.write(&answer, &mut out);
                answer.refusal()
            }
        };
        Ok(counted(succeeded(out), refusal))
    }

    /// Reads the only message of a call. Usually its bytes arrive at once and are not copied.
    async fn message<B>(&self, body: &mut B) -> Result<Result<Bytes, BadFrame>, Status>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let mut collected = Collected::default();
        let max_message_bytes = self.max_message_bytes().saturating_add(grpc::PREFIX);
        while !body.is_end_stream() {
            let Some(chunk) = body.frame().await else { break };
            let Ok(chunk) = chunk else {
                return Err(Status::new(Code::Internal, "the call's body ended early"));
            };
            let Ok(chunk) = chunk.into_data() else { continue };
            collected.add(chunk);
            let so_far = collected.so_far();
            if let Err(bad) = grpc::length(so_far, self.max_message_bytes()) {
                return Ok(Err(bad));
            }
            if so_far.len() > max_message_bytes {
                return Ok(Err(BadFrame::Several));
            }
        }
        let bytes = collected.take();
        Ok(grpc::only(&bytes, self.max_message_bytes()).map(|_| bytes.slice(grpc::PREFIX..)))
    }
}

/// Builds the response to a call that does not show the token.
pub(crate) fn no_token() -> Response<Body> {
    refused(Refusal::Grpc(Status::no_token()))
}

fn succeeded(message: BytesMut) -> Response<Body> {
    answered(Body::Message(message.freeze(), Box::new(trailers(&Status::OK))))
}

fn answered(body: Body) -> Response<Body> {
    typed("application/grpc", body)
}

/// Returns the trailers that end a call.
fn trailers(status: &Status) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(2);
    fields.insert("grpc-status", HeaderValue::from_static(status.code.number()));
    if status.code != Code::Ok
        && let Ok(message) = HeaderValue::from_str(&status.field())
    {
        fields.insert("grpc-message", message);
    }
    fields
}

fn refused(refusal: Refusal) -> Response<Body> {
    let mut response = counted(Response::new(Body::Empty), refusal.reason());
    match refusal {
        Refusal::Http(status) => {
            *response.status_mut() =
                StatusCode::from_u16(status).unwrap_or(StatusCode::UNSUPPORTED_MEDIA_TYPE);
            if status == 405 {
                response.headers_mut().insert("allow", HeaderValue::from_static("POST"));
            }
        }
        Refusal::Grpc(status) => {
            let fields = response.headers_mut();
            *fields = trailers(&status);
            fields.insert("content-type", HeaderValue::from_static("application/grpc"));
            if status.code == Code::Unimplemented {
                fields.insert("grpc-accept-encoding", HeaderValue::from_static(ENCODING));
            }
        }
    }
    response
}

/// A stream of health changes, for as long as the caller listens.
struct Watching {
    watcher: Watcher,
    change: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    ended: bool,
}

impl HttpBody for Watching {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(news) = self.watcher.news() {
                self.change = None;
                return Poll::Ready(Some(Ok(Frame::data(news))));
            }
            if self.watcher.is_over() {
                let was_sent = std::mem::replace(&mut self.ended, true);
                let unavailable = Status::new(Code::Unavailable, "the server is going away");
                let end = (!was_sent).then(|| Ok(Frame::trailers(trailers(&unavailable))));
                return Poll::Ready(end);
            }
            let serving = self.watcher.serving.clone();
            let change = self.change.get_or_insert_with(|| Box::pin(changed(serving)));
            if change.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.change = None;
        }
    }
}

/// Waits for the next change. Never ends if no further change is possible.
pub(super) async fn changed(mut serving: tokio::sync::watch::Receiver<State>) {
    if serving.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A stream of reflection replies, until the caller ends its requests.
struct Reflecting<B> {
    body: B,
    bytes: BytesMut,
    max_message_bytes: usize,
    ended: bool,
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Reflecting<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        while !self.ended {
            let max_message_bytes = self.max_message_bytes;
            match next(&mut self.bytes, max_message_bytes) {
                Ok(Some(answer)) => return Poll::Ready(Some(Ok(Frame::data(answer)))),
                Ok(None) => {}
                Err(status) => return self.end(&status),
            }
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(chunk)) => {
                    if let Ok(data) = chunk.into_data() {
                        self.bytes.extend_from_slice(&data);
                    }
                }
                Some(Err(_)) => {
                    return self.end(&Status::new(Code::Internal, "the call's body ended early"));
                }
                None if self.bytes.is_empty() => return self.end(&Status::OK),
                None => {
                    return self.end(&BadFrame::CutOff.into());
                }
            }
        }
        Poll::Ready(None)
    }
}

impl<B> Reflecting<B> {
    fn end(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.ended = true;
        Poll::Ready(Some(Ok(Frame::trailers(trailers(status)))))
    }
}

/// A stream of assignments, until the caller ends its reports.
struct Assigning<B, D> {
    rls: Rls<D>,
    body: B,
    bytes: BytesMut,
    session: QuotaSession,
    /// The instant at which something is due, or the first report is late.
    timer: Pin<Box<tokio::time::Sleep>>,
    serving: tokio::sync::watch::Receiver<State>,
    change: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    ended: bool,
}

impl<B, D> Assigning<B, D> {
    fn new(rls: Rls<D>, body: B, wait: Duration) -> Self {
        let serving = rls.inner.health.subscribe();
        let (bytes, session) = (BytesMut::new(), QuotaSession::default());
        let timer = Box::pin(tokio::time::sleep(wait));
        Self { rls, body, bytes, session, timer, serving, change: None, ended: false }
    }

    /// Ends the stream, and the subscriptions of its buckets.
    fn end(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.ended = true;
        self.session = QuotaSession::default();
        Poll::Ready(Some(Ok(Frame::trailers(trailers(status)))))
    }

    fn set_timer(&mut self) {
        let due = tokio::time::Instant::now().checked_add(self.session.wait());
        if let Some(due) = due {
            self.timer.as_mut().reset(due);
        }
    }

    /// Returns `true` if the server is going away.
    fn is_ending(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            if *self.serving.borrow() == State::Ending {
                return true;
            }
            let serving = self.serving.clone();
            let change = self.change.get_or_insert_with(|| Box::pin(changed(serving)));
            if change.as_mut().poll(context).is_pending() {
                return false;
            }
            self.change = None;
            self.serving.mark_unchanged();
        }
    }
}

impl<B, D> HttpBody for Assigning<B, D>
where
    B: HttpBody<Data = Bytes> + Unpin,
    D: Decide,
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        while !this.ended {
            if this.is_ending(context) {
                return this.end(&Status::new(Code::Unavailable, "the server is going away"));
            }
            let reply = match this.session.next(&this.rls, &mut this.bytes) {
                Ok(Some(reply)) => Some(reply.bytes),
                Ok(None) if this.timer.as_mut().poll(context).is_pending() => None,
                Ok(None) if !this.session.is_begun() => return this.end(&Status::late()),
                Ok(None) => match this.session.due() {
                    Ok(reply) => Some(reply),
                    Err(status) => return this.end(&status),
                },
                Err(status) => return this.end(&status),
            };
            if let Some(reply) = reply {
                this.set_timer();
                if !reply.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(reply))));
                }
                continue;
            }
            match std::task::ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(chunk)) => {
                    if let Ok(data) = chunk.into_data() {
                        this.bytes.extend_from_slice(&data);
                    }
                }
                Some(Err(_)) => {
                    return this.end(&Status::new(Code::Internal, "the call's body ended early"));
                }
                None if this.bytes.is_empty() => return this.end(&Status::OK),
                None => return this.end(&BadFrame::CutOff.into()),
            }
        }
        Poll::Ready(None)
    }
}

/// Returns the reply to the first message of a reflection call, if the message is complete.
pub(super) fn next(
    bytes: &mut BytesMut,
    max_message_bytes: usize,
) -> Result<Option<Bytes>, Status> {
    match grpc::length(bytes, max_message_bytes)? {
        Some(length) if length <= bytes.len() => {
            let message = bytes.split_to(length);
            let mut out = BytesMut::new();
            reflection::answer(message.get(grpc::PREFIX..).unwrap_or_default(), &mut out)?;
            Ok(Some(out.freeze()))
        }
        _ => Ok(None),
    }
}
