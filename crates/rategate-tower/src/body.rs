//! The body of a response that is the service's, or the layer's own.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response: that of the service within, or the text of a refusal.
    ///
    /// It asks nothing of the body within but that its data can be made of a `String`, as `Bytes`
    /// can. So it fits axum, tonic, hyper and whatever else has bytes in its bodies.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
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
    pub(crate) const fn within(body: B) -> Self {
        Self { kind: Kind::Within { body } }
    }

    pub(crate) const fn own(text: String) -> Self {
        Self { kind: Kind::Own { text } }
    }
}

impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::within(B::default())
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
        match self.project().kind.project() {
            KindProjection::Within { body } => body.poll_frame(context),
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
