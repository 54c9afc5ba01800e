//! The response body, from the inner service or from the layer itself.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::gate::InFlight;

pin_project! {
    /// The body of a response: that of the inner service, or the text of a refusal.
    ///
    /// The data of the inner body has to convert from a `String`, as `Bytes` does. So it fits
    /// axum, tonic, hyper and other services with bytes in their bodies.
    ///
    /// Under a limit that counts requests in flight, the body holds the request's permits until it
    /// has ended, has failed, or is dropped.
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
        in_flight: Option<Box<dyn InFlight>>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProjection]
    enum Kind<B> {
        Within { #[pin] body: B },
        Own { text: String },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) const fn within(body: B, in_flight: Option<Box<dyn InFlight>>) -> Self {
        Self { kind: Kind::Within { body }, in_flight }
    }

    pub(crate) const fn own(text: String) -> Self {
        Self { kind: Kind::Own { text }, in_flight: None }
    }
}

impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::within(B::default(), None)
    }
}

impl<B: Body> Body for ResponseBody<B>
where
    B::Data: From<String>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        match this.kind.project() {
            KindProjection::Within { body } => {
                let frame = body.poll_frame(context);
                if let Poll::Ready(None | Some(Err(_))) = &frame {
                    drop(this.in_flight.take());
                }
                frame
            }
            KindProjection::Own { text } if text.is_empty() => Poll::Ready(None),
            KindProjection::Own { text } => {
                let data = B::Data::from(std::mem::take(text));
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Within { body } => body.is_end_stream(),
            Kind::Own { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Within { body } => body.size_hint(),
            Kind::Own { text } => {
                SizeHint::with_exact(u64::try_from(text.len()).unwrap_or(u64::MAX))
            }
        }
    }
}

impl<B: fmt::Debug> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ResponseBody");
        shown.field("kind", &self.kind).field("is_in_flight", &self.in_flight.is_some()).finish()
    }
}
