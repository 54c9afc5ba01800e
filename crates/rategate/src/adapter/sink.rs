//! Sinks whose items pass a limiter one by one, on their way in.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_sink::Sink;

use super::poll_wait::{PollWait, wait_for};
use crate::clock::{Clock, MonotonicClock};
use crate::error::AcquireError;
use crate::future::{AcquireOwned, AsyncLimiter};

/// A sink whose items pass a limiter on their way in.
///
/// The cost of an item is known only once it is there. So the sink accepts one item at once,
/// which waits here for its permits; it accepts the next when that one has gone on. It takes no
/// permit for an item that may not come, nor before the inner sink is ready for it. Each cost is
/// exact, so that nothing is owed afterwards. Flushing and closing wait for the item that is
/// here.
///
/// While it waits, the inner sink is flushed: an item goes out when it was granted, not together
/// with the next ones.
///
/// ```
/// use std::time::Duration;
///
/// use futures_util::{FutureExt, SinkExt, sink};
/// use rategate::adapter::RateLimitedSink;
/// use rategate::{AsyncLimiter, ManualClock, SlidingLog};
///
/// # async {
/// let policy = SlidingLog::new(9, Duration::from_secs(1));
/// let limiter = AsyncLimiter::with_clock(policy, ManualClock::new());
/// let letters = |message: &&str| message.len() as u64;
/// let mut sent = RateLimitedSink::by(sink::drain(), &limiter, letters);
/// sent.send("hello").await?;
/// assert_eq!(limiter.limiter().remaining()?, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }.now_or_never().unwrap().unwrap();
/// ```
///
/// A stream that is a sink as well is [split][split] first. An inner sink that is not [`Unpin`]
/// has to be pinned, by `Box::pin` or `pin!`.
///
/// [split]: https://docs.rs/futures/latest/futures/stream/trait.StreamExt.html#method.split
///
/// # Errors
///
/// [`SinkError`]. If the limiter grants no more, or the inner sink fails before it has the item,
/// the item stays here, and [`into_parts`](Self::into_parts) returns it. An item that the inner
/// sink has received is paid for, whether the inner sink fails or not.
///
/// # Cancelling
///
/// A `send` that is dropped leaves its item here with its slot in the wait queue; the next call
/// goes on with both. Dropped itself, the sink leaves the queue, and the item is dropped with it.
#[must_use = "a sink does nothing until it is polled"]
pub struct RateLimitedSink<S, T, C = MonotonicClock, F = fn(&T) -> u64>
where
    C: Clock,
{
    inner: S,
    held: Option<T>,
    limiter: AsyncLimiter<C>,
    wait: PollWait<AcquireOwned<C>>,
    cost: F,
}

/// The error of an item that did not go into a rate-limited sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SinkError<E> {
    /// The limiter grants no more.
    Limiter(AcquireError),
    /// The inner sink failed.
    Inner(E),
    /// The item was sent while another waits.
    ///
    /// The rules of sinks require a `poll_ready` before. The new item is dropped, and the one
    /// that waits goes on.
    NotReady,
}

impl<S, T, C: Clock> RateLimitedSink<S, T, C> {
    /// Lets each item pass `limiter`, which may be shared, for one permit.
    pub fn new(inner: S, limiter: &AsyncLimiter<C>) -> Self {
        Self::by(inner, limiter, |_| 1)
    }
}

impl<S, T, C: Clock, F: FnMut(&T) -> u64> RateLimitedSink<S, T, C, F> {
    /// Lets each item pass `limiter` for as many permits as `cost` returns.
    ///
    /// An item that costs nothing passes without the limiter.
    pub fn by(inner: S, limiter: &AsyncLimiter<C>, cost: F) -> Self {
        let (limiter, wait) = (limiter.clone(), PollWait::default());
        Self { inner, held: None, limiter, wait, cost }
    }
}

impl<S, T, C: Clock, F> RateLimitedSink<S, T, C, F> {
    /// Returns the inner sink. Items sent into it here do not pass the limiter.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner sink for changes. Items sent into it here do not pass the limiter.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the item that waits for its permits, if any, and the sink. Its wait ends.
    pub fn into_parts(self) -> (Option<T>, S) {
        (self.held, self.inner)
    }
}

impl<S, T, C, F> RateLimitedSink<S, T, C, F>
where
    S: Sink<T> + Unpin,
    C: Clock,
    F: FnMut(&T) -> u64,
{
    /// Sends the item that is here into the inner sink once its permits are granted.
    fn poll_pass(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SinkError<S::Error>>> {
        let Self { inner, held, limiter, wait, cost } = self;
        let Some(item) = held else { return Poll::Ready(Ok(())) };
        let mut inner = Pin::new(inner);
        if let Err(error) = ready!(inner.as_mut().poll_ready(context)) {
            wait.leave();
            return Poll::Ready(Err(SinkError::Inner(error)));
        }
        let begin = || wait_for(limiter, cost(item));
        let Poll::Ready(granted) = wait.poll(begin, context) else {
            if let Poll::Ready(Err(error)) = inner.poll_flush(context) {
                wait.leave();
                return Poll::Ready(Err(SinkError::Inner(error)));
            }
            return Poll::Pending;
        };
        granted.transpose().map_err(SinkError::Limiter)?;
        let sent = held.take().map_or(Ok(()), |item| inner.start_send(item));
        Poll::Ready(sent.map_err(SinkError::Inner))
    }
}

impl<S, T, C, F> Sink<T> for RateLimitedSink<S, T, C, F>
where
    S: Sink<T> + Unpin,
    C: Clock,
    F: FnMut(&T) -> u64,
{
    type Error = SinkError<S::Error>;

    fn poll_ready(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Self::Error>> {
        self.get_mut().poll_pass(context)
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), Self::Error> {
        let held = &mut self.get_mut().held;
        if held.is_some() {
            return Err(SinkError::NotReady);
        }
        *held = Some(item);
        Ok(())
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Self::Error>> {
        let this = self.get_mut();
        ready!(this.poll_pass(context))?;
        Pin::new(&mut this.inner).poll_flush(context).map_err(SinkError::Inner)
    }

    fn poll_close(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Self::Error>> {
        let this = self.get_mut();
        ready!(this.poll_pass(context))?;
        Pin::new(&mut this.inner).poll_close(context).map_err(SinkError::Inner)
    }
}

/// Only the inner sink is ever pinned.
impl<S: Unpin, T, C: Clock, F> Unpin for RateLimitedSink<S, T, C, F> {}

impl<S: fmt::Debug, T, C: Clock, F> fmt::Debug for RateLimitedSink<S, T, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitedSink")
            .field("inner", &self.inner)
            .field("holds", &self.held.is_some())
            .finish_non_exhaustive()
    }
}

impl<E: fmt::Display> fmt::Display for SinkError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limiter(error) => write!(f, "no item passes: {error}"),
            Self::Inner(error) => error.fmt(f),
            Self::NotReady => f.write_str("an item was sent while another waits"),
        }
    }
}

impl<E: Error + 'static> Error for SinkError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Limiter(error) => Some(error),
            Self::Inner(error) => error.source(),
            Self::NotReady => None,
        }
    }
}
