//! Streams whose items pass a limiter one by one, each when it is pulled.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::stream::{FusedStream, Stream};

use super::poll_wait::{PollWait, wait_for};
use crate::clock::{Clock, MonotonicClock};
use crate::error::AcquireError;
use crate::future::{AcquireOwned, AsyncLimiter};

/// Rate limits for every stream.
///
/// An item is limited *as it is pulled*, as by [`RateLimitedExt`](crate::RateLimitedExt) for
/// iterators. Some consumers pull many items first and work on them afterwards or at the same
/// time, such as `buffer_unordered` of futures that do not begin at once. There,
/// [acquire](AsyncLimiter::acquire) in the action itself.
///
/// ```
/// use std::time::Duration;
///
/// use futures_util::{StreamExt, TryStreamExt, stream};
/// use rategate::{AsyncLimiter, ManualClock, RateLimitedStreamExt, SlidingLog};
///
/// # futures_util::FutureExt::now_or_never(async {
/// let clock = ManualClock::new();
/// let policy = SlidingLog::new(5, Duration::from_secs(1));
/// let limiter = AsyncLimiter::with_clock(policy, clock.clone());
/// let pages = stream::iter(["a", "bb", "a page that is larger"]);
/// // One permit for every four letters, rounded up.
/// let mut pages = pages.rate_limited_by(&limiter, |page| page.len().div_ceil(4) as u64);
/// assert_eq!(pages.next().await, Some(Ok("a")));
/// # drop(pages);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap().unwrap();
/// ```
pub trait RateLimitedStreamExt: Stream + Sized {
    /// Lets each item pass `limiter`, which may be shared, for one permit.
    fn rate_limited<C>(self, limiter: &AsyncLimiter<C>) -> RateLimitedStream<Self, C>
    where
        C: Clock,
    {
        self.rate_limited_by(limiter, |_| 1)
    }

    /// Lets each item pass `limiter` for as many permits as `cost` returns.
    ///
    /// An item that costs nothing passes without the limiter.
    fn rate_limited_by<C, F>(
        self,
        limiter: &AsyncLimiter<C>,
        cost: F,
    ) -> RateLimitedStream<Self, C, F>
    where
        C: Clock,
        F: FnMut(&Self::Item) -> u64,
    {
        let (limiter, wait) = (limiter.clone(), PollWait::default());
        RateLimitedStream { items: self, held: None, limiter, wait, cost, stopped: false }
    }
}

impl<S: Stream> RateLimitedStreamExt for S {}

/// The stream behind [`RateLimitedStreamExt`]: yields each item once its permits are granted.
///
/// The item is pulled before its permits are taken, because only the item knows its cost. So a
/// stream without items keeps no permits from other callers, and its end costs none. At most one
/// item is pulled ahead, the one that waits. It stays here with its slot in the wait queue while
/// the stream is not polled, so a `next` that is dropped, by a timeout or a `select!`, loses
/// neither.
///
/// An inner stream that is not [`Unpin`] has to be pinned first, by `Box::pin` or `pin!`.
///
/// # Errors
///
/// If the limiter grants no more, the error is the last thing to come out, and
/// [`into_parts`](Self::into_parts) returns the item that was pulled for it. A closing is not
/// reported while there is no item.
///
/// # Cancelling
///
/// Dropped, the stream leaves the wait queue, and those behind move up. The item itself is dropped with it; [`into_parts`](Self::into_parts) saves it.
/// A grant that is not polled for stays with its item, which so may come out late, and with it
/// one item more in a window than the limit allows.
#[must_use = "a stream does nothing until it is polled"]
pub struct RateLimitedStream<S, C = MonotonicClock, F = fn(&<S as Stream>::Item) -> u64>
where
    S: Stream,
    C: Clock,
{
    items: S,
    held: Option<S::Item>,
    limiter: AsyncLimiter<C>,
    wait: PollWait<AcquireOwned<C>>,
    cost: F,
    stopped: bool,
}

impl<S: Stream, C: Clock, F> RateLimitedStream<S, C, F> {
    /// Returns the item that waits for its permits, if any, and the items after it.
    ///
    /// Its wait ends.
    pub fn into_parts(self) -> (Option<S::Item>, S) {
        (self.held, self.items)
    }
}

impl<S, C, F> Stream for RateLimitedStream<S, C, F>
where
    S: Stream + Unpin,
    C: Clock,
    F: FnMut(&S::Item) -> u64,
{
    type Item = Result<S::Item, AcquireError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { items, held, limiter, wait, cost, stopped } = self.get_mut();
        if *stopped {
            return Poll::Ready(None);
        }
        if held.is_none() {
            *held = ready!(Pin::new(items).poll_next(context));
        }
        let Some(item) = held else {
            *stopped = true;
            return Poll::Ready(None);
        };
        match ready!(wait.poll(|| wait_for(limiter, cost(item)), context)) {
            None | Some(Ok(_)) => Poll::Ready(held.take().map(Ok)),
            Some(Err(error)) => {
                *stopped = true;
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.held.is_some());
        match self.items.size_hint() {
            _ if self.stopped => (0, Some(0)),
            // An error may replace the first item, and then nothing comes.
            (lower, upper) => {
                (lower.max(held).min(1), upper.and_then(|upper| upper.checked_add(held)))
            }
        }
    }
}

impl<S, C, F> FusedStream for RateLimitedStream<S, C, F>
where
    S: Stream + Unpin,
    C: Clock,
    F: FnMut(&S::Item) -> u64,
{
    fn is_terminated(&self) -> bool {
        self.stopped
    }
}

/// Only the inner stream is ever pinned.
impl<S: Stream + Unpin, C: Clock, F> Unpin for RateLimitedStream<S, C, F> {}

impl<S, C, F> fmt::Debug for RateLimitedStream<S, C, F>
where
    S: Stream + fmt::Debug,
    C: Clock,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitedStream")
            .field("items", &self.items)
            .field("holds", &self.held.is_some())
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}
