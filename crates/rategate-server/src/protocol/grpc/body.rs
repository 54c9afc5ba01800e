//! The bodies of gRPC responses, for hyper.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Frame, SizeHint};

use rategate_protocol::grpc::{Code, Status};

/// A response body: one message and the status, or a stream of messages.
pub struct Body(Kind);

enum Kind {
    Message(Bytes),
    Ok,
    Done,
    Stream(UnsyncBoxBody<Bytes, Infallible>),
}

impl Body {
    pub(super) const fn empty() -> Self {
        Self(Kind::Done)
    }

    pub(super) const fn message(message: Bytes) -> Self {
        Self(Kind::Message(message))
    }

    pub(super) const fn stream(stream: UnsyncBoxBody<Bytes, Infallible>) -> Self {
        Self(Kind::Stream(stream))
    }
}

/// Returns the trailers that end a call.
pub(super) fn trailers(status: &Status) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(2);
    fields.insert("grpc-status", HeaderValue::from_static(status.code.number()));
    if status.code != Code::Ok
        && let Ok(message) = HeaderValue::from_str(&status.field())
    {
        fields.insert("grpc-message", message);
    }
    fields
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Kind::Stream(stream) = &mut self.0 {
            return Pin::new(stream).poll_frame(context);
        }
        Poll::Ready(match std::mem::replace(&mut self.0, Kind::Done) {
            Kind::Message(message) => {
                self.0 = Kind::Ok;
                Some(Ok(Frame::data(message)))
            }
            Kind::Ok => Some(Ok(Frame::trailers(trailers(&Status::OK)))),
            Kind::Done | Kind::Stream(_) => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Done)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Message(_) | Kind::Stream(_) => SizeHint::default(),
            Kind::Ok | Kind::Done => SizeHint::with_exact(0),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Message(_) => "Body(message)",
            Kind::Ok => "Body(trailers)",
            Kind::Done => "Body(empty)",
            Kind::Stream(_) => "Body(stream)",
        })
    }
}
