//! Bodies of responses: bytes, or a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The maximum number of concurrent streams of events.
pub(super) const MAX_STREAMS: usize = 32;
/// The number of events after which a stream ends; clients then reconnect.
const MAX_EVENTS: u32 = 3_600;

/// The body of a response.
#[derive(Debug)]
pub enum Body {
    /// A complete body.
    Full(Bytes),
    /// A stream with one event per second.
    Events(Box<Events>),
}

/// A stream of server-sent events, one per second.
pub struct Events {
    next: Interval,
    left: u32,
    render: Box<dyn Fn() -> Option<String> + Send + Sync>,
    _permit: StreamPermit,
}

/// A permit for a stream, released when it is dropped.
#[derive(Debug)]
pub(super) struct StreamPermit(Arc<AtomicUsize>);

impl StreamPermit {
    /// Takes a permit, if one is left.
    pub(super) fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |taken: usize| (taken < MAX_STREAMS).then(|| taken.saturating_add(1));
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Full(bytes)
    }
}

impl Body {
    /// Creates a stream of the events that `render` returns, which ends when it returns `None`.
    pub(super) fn events(
        permit: StreamPermit,
        render: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let mut next = interval(Duration::from_secs(1));
        next.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self::Events(Box::new(Events {
            next,
            left: MAX_EVENTS,
            render: Box::new(render),
            _permit: permit,
        }))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Events(events) => events.poll_next(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            Self::Events(_) => SizeHint::default(),
        }
    }
}

impl Events {
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        match self.next.poll_tick(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_) => {
                self.left = self.left.saturating_sub(1);
                let event = (self.render)();
                Poll::Ready(event.map(|data| Ok(Frame::data(format!("data: {data}\n\n").into()))))
            }
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("left", &self.left).finish_non_exhaustive()
    }
}
