//! Streams of events, one per second.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The maximum number of concurrent streams of events.
const MAX_STREAMS: usize = 32;

/// The number of events after which a stream ends; clients then reconnect.
const MAX_EVENTS: u32 = 3_600;

/// A stream of server-sent events, one per second, which ends when `render` returns `None`.
pub(super) struct Events<F> {
    next: Interval,
    left: u32,
    render: F,
    _permit: StreamPermit,
}

/// A permit for a stream, released when it is dropped.
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

impl<F> Events<F> {
    pub(super) fn new(permit: StreamPermit, render: F) -> Self {
        let mut next = interval(Duration::from_secs(1));
        next.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { next, left: MAX_EVENTS, render, _permit: permit }
    }
}

impl<F: Fn() -> Option<String> + Unpin> HttpBody for Events<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        ready!(self.next.poll_tick(context));
        self.left = self.left.saturating_sub(1);
        let event = (self.render)();
        Poll::Ready(event.map(|data| Ok(Frame::data(format!("data: {data}\n\n").into()))))
    }
}
