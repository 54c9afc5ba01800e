//! HTTP responses with their bodies, and bounded reading of request bodies.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::net::RefusalReason;

/// The reason why a streamed body ended early.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// The body of a response.
#[derive(Debug, Default)]
pub enum Body {
    /// An empty body, or the end of one.
    #[default]
    Empty,
    /// A whole body, so that decisions need no boxed stream.
    Full(Bytes),
    /// A stream of frames.
    Stream(UnsyncBoxBody<Bytes, BodyError>),
}

impl Body {
    /// Creates a body from a stream of frames.
    pub fn stream<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        Self::Stream(body.map_err(Into::into).boxed_unsync())
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() { Self::Empty } else { Self::Full(bytes) }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = self.get_mut();
        match body {
            Self::Stream(stream) => Pin::new(stream).poll_frame(context),
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *body = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(_) => false,
            Self::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            Self::Stream(stream) => stream.size_hint(),
        }
    }
}

/// Builds a response with a content type.
pub(crate) fn typed(kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Builds a response of plain text.
pub(crate) fn text(status: StatusCode, text: impl Into<Body>) -> Response<Body> {
    let mut response = typed("text/plain; charset=utf-8", text);
    *response.status_mut() = status;
    response
}

/// Marks a response as a refused call, if there is a reason.
pub(crate) fn counted(
    mut response: Response<Body>,
    refusal: Option<RefusalReason>,
) -> Response<Body> {
    if let Some(reason) = refusal {
        response.extensions_mut().insert(reason);
    }
    response
}

/// The longest time that a body may take once it has to be waited for.
pub(crate) const WITHIN: Duration = Duration::from_secs(5);

/// The reason why a request's body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The body exceeds the maximum length.
    TooLong,
    /// The body did not arrive in time.
    TooSlow,
    /// The connection or the peer ended it early.
    BrokenOff,
}

/// Reads a body of at most `max_bytes` bytes, and waits at most `within` for the rest of it.
///
/// A body that declares a greater length is refused before anything is read, others at the first
/// frame that exceeds the maximum. A body in one frame is not copied.
///
/// # Errors
///
/// [`Unread`].
pub async fn read<B>(body: B, max_bytes: usize, within: Duration) -> Result<Bytes, Unread>
where
    B: HttpBody<Data = Bytes>,
{
    let max = u64::try_from(max_bytes).unwrap_or(u64::MAX);
    if body.size_hint().lower() > max {
        return Err(Unread::TooLong);
    }
    let mut body = std::pin::pin!(body);
    let mut collected = Collected::default();
    // The whole body almost always arrives with the head. No timer is set then.
    let mut timer = None;
    std::future::poll_fn(|context| {
        loop {
            match body.as_mut().poll_frame(context) {
                Poll::Ready(None) => return Poll::Ready(Ok(collected.take())),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(Unread::BrokenOff)),
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers have no meaning here.
                    let Ok(data) = frame.into_data() else { continue };
                    if collected.so_far().len().saturating_add(data.len()) > max_bytes {
                        return Poll::Ready(Err(Unread::TooLong));
                    }
                    collected.add(data);
                    if body.is_end_stream() {
                        return Poll::Ready(Ok(collected.take()));
                    }
                }
                Poll::Pending => {
                    let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
                    return timer.as_mut().poll(context).map(|()| Err(Unread::TooSlow));
                }
            }
        }
    })
    .await
}

/// The first frame unchanged, or a copy of several.
#[derive(Debug, Default)]
pub(super) struct Collected {
    first: Bytes,
    all: BytesMut,
}

impl Collected {
    pub(super) fn add(&mut self, data: Bytes) {
        if self.so_far().is_empty() {
            self.first = data;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&data);
    }

    pub(super) fn so_far(&self) -> &[u8] {
        if self.all.is_empty() { &self.first } else { &self.all }
    }

    pub(super) fn take(&mut self) -> Bytes {
        if self.all.is_empty() {
            std::mem::take(&mut self.first)
        } else {
            self.all.split().freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Full};
    use hyper::body::{Body as HttpBody, Frame};

    use super::{Body, Unread, read};

    const SOON: Duration = Duration::from_millis(20);

    /// A body of the given frames, followed by its end or by silence.
    struct Frames {
        frames: VecDeque<&'static str>,
        ends: bool,
    }

    impl HttpBody for Frames {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.frames.pop_front() {
                Some(frame) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(frame))))),
                None if self.ends => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    fn frames(frames: &[&'static str], ends: bool) -> Frames {
        Frames { frames: frames.iter().copied().collect(), ends }
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_their_bound() {
        assert_eq!(read(frames(&["ab", "c", "de"], true), 5, SOON).await.unwrap(), "abcde");
        assert_eq!(read(frames(&["ab", "c", "def"], true), 5, SOON).await, Err(Unread::TooLong));
        assert_eq!(read(frames(&["abcdef"], true), 5, SOON).await, Err(Unread::TooLong));
        assert_eq!(read(frames(&[], true), 0, SOON).await.unwrap(), "");
        assert_eq!(read(Full::new(Bytes::from("abcdef")), 5, SOON).await, Err(Unread::TooLong));
    }

    #[tokio::test]
    async fn a_body_that_never_ends_is_given_up() {
        assert_eq!(read(frames(&["ab"], false), 5, SOON).await, Err(Unread::TooSlow));
    }

    #[tokio::test]
    async fn what_is_answered_says_its_length() {
        let body = Body::from("abc");
        assert_eq!(body.size_hint().exact(), Some(3));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
        assert!(Body::from("").is_end_stream());
        let streamed = Body::stream(Full::new(Bytes::from("abc")));
        assert_eq!(streamed.collect().await.unwrap().to_bytes(), "abc");
    }
}
