//! The layer for clients, whose requests wait for their start and whose responses bring hints.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use rategate::adaptive::Outcome;
use rategate::{AcquireError, AsyncLimiter, Clock, Grant, Limiter, MonotonicClock};
use tower_layer::Layer;
use tower_service::Service;

use super::allowance::Tokens;
use super::pacing::Pacing;

/// A way for a client to sleep, which depends on its runtime.
///
/// Closures that return a future implement it, such as `tokio::time::sleep`.
pub trait Sleep: Send + Sync {
    /// Returns a future that is ready after `time` or later. If it is ready sooner, another sleep
    /// follows.
    fn sleep(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl<T, F> Sleep for T
where
    T: Fn(Duration) -> F + Send + Sync,
    F: Future<Output = ()> + Send + 'static,
{
    fn sleep(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self(time))
    }
}

/// A layer that paces the requests of a client, and follows the hints of the responses.
///
/// Each request waits for the limiter, if there is one, and for the server. After a 429, 403 or 503
/// with `Retry-After`, or when nothing remains, no request is sent before that instant. Otherwise
/// the remaining requests are spread over the time until the reset.
/// [`parse_hints`](super::parse_hints) describes how responses are read, and of which services.
///
/// **One state for all.** Clones of the layer, all services that it makes and their clones share
/// the limiter and the server's hints. They concern one server: make a layer for each server. A
/// server may report several limits, by policy, by resource or by unit; a request waits for all of
/// them. Make a layer for each kind of requests that a server limits apart, such as GitHub's
/// resources.
///
/// **Never more than remains.** The layer counts down what the server reported. Requests without a
/// response count as if the server had not seen them. After a reset it assumes the same quota for
/// a window as long as the longest reset it saw; a bucket refills evenly. A quota of tokens is
/// counted if the [`cost`](Self::cost) of each request is known. Otherwise it holds requests only
/// when it is exhausted, until its reset.
///
/// Without a quota, no request waits past the reset, which is at most [`max_hold`](Self::max_hold)
/// away. Requests that still wait then start together, as nothing is known of the time after the
/// reset. Requests start in the order of their arrival. A request that is dropped while it waits
/// leaves its start to the next one that arrives. Requests that already sleep keep their instants.
///
/// A 429 is returned to the caller like any other response. To resend the request, put a retry
/// around this service. It needs no delay there, as the next call waits here.
///
/// # Example
///
/// ```
/// use rategate::{Gcra, Limiter};
/// use rategate_tower::client::PaceLayer;
///
/// // At most 20 a second, whatever the server says, and less if it says so.
/// let layer = PaceLayer::new(tokio::time::sleep)
///     .limiter(Limiter::new(Gcra::per_second(20)));
/// # drop(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PaceLayer {
    pub(super) rules: Arc<Rules>,
    pub(super) pacing: Pacing,
}

/// A closure that returns the tokens of a request.
type CostFn = dyn Fn(&Parts) -> Tokens + Send + Sync;

/// The configuration that all services of a layer share.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) sleep: Arc<dyn Sleep>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limiter: Option<Arc<dyn DynLimiter>>,
    pub(super) cost: Option<Arc<CostFn>>,
    pub(super) max_wait: Duration,
}

impl PaceLayer {
    /// Creates a layer that follows the server's hints and waits by `sleep`.
    #[must_use]
    pub fn new(sleep: impl Sleep + 'static) -> Self {
        let rules = Rules {
            sleep: Arc::new(sleep),
            clock: Arc::new(MonotonicClock::new()),
            limiter: None,
            cost: None,
            max_wait: Duration::MAX,
        };
        Self { rules: Arc::new(rules), pacing: Pacing::new() }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }

    fn paced_by(self, change: impl FnOnce(Pacing) -> Pacing) -> Self {
        Self { pacing: change(self.pacing), ..self }
    }

    /// Adds a limiter, of which each request takes a permit, in the limiter's FIFO order among all
    /// its waiters. The wait uses the timer of the limiter's own [clock](Clock::timer). The permit
    /// is released when the response's head arrives.
    ///
    /// An [`AdaptiveRate`](rategate::AdaptiveRate) finds the rate of a server that does not report
    /// it. It counts these as refused: 429, 503, 529, and a 403 that says when to come back. A 429
    /// that does not say it then holds nothing: the limiter's rate falls instead.
    ///
    /// ```
    /// use rategate::{AdaptiveRate, Limiter, Rate};
    /// use rategate_tower::client::PaceLayer;
    ///
    /// let [floor, ceiling] = [1, 100].map(Rate::per_second);
    /// let layer = PaceLayer::new(tokio::time::sleep)
    ///     .limiter(Limiter::new(AdaptiveRate::new(floor, ceiling)));
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn limiter<C>(self, limiter: Limiter<C>) -> Self
    where
        C: Clock + 'static,
    {
        self.with(|rules| rules.limiter = Some(Arc::new(AsyncLimiter::from(limiter))))
    }

    /// Sets the tokens of a language model that a request will take, by its head: an estimate, or
    /// what it takes at most. Limits of tokens then delay requests like limits of requests do.
    ///
    /// A request that costs more than the quota waits until all of it is available.
    ///
    /// ```
    /// use rategate_tower::client::{PaceLayer, Tokens};
    ///
    /// // The application counts when it builds the body, and leaves the result in the request.
    /// let layer = PaceLayer::new(tokio::time::sleep)
    ///     .cost(|head| head.extensions.get::<Tokens>().copied().unwrap_or_default());
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> Tokens + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.cost = Some(Arc::new(cost))).paced_by(Pacing::with_tokens)
    }

    /// Ends each hold later than the server asks, by a random part of `max`, and never sooner.
    ///
    /// Many clients that were refused until the same instant do not come back together then. Nor do
    /// the requests that wait in this layer: they start in their order and evenly, over another
    /// `max` from that end on.
    ///
    /// By default the maximum is a fifth of the hold, and at most 30 s. Requests that wait in this
    /// layer then start together. [`Duration::ZERO`] ends each hold when the server says, which
    /// suits a client that is alone.
    #[must_use]
    pub fn jitter(self, max: Duration) -> Self {
        self.paced_by(|pacing| pacing.jitter(max))
    }

    /// Sets the longest time that a server can make this client hold: an hour by default. Longer
    /// holds are cut to it. [Jitter](Self::jitter) is added to it.
    #[must_use]
    pub fn max_hold(self, max: Duration) -> Self {
        self.paced_by(|pacing| pacing.max_hold(max))
    }

    /// Makes a request fail at once with [`PaceError::TooLong`] if it would wait for longer. By
    /// default requests wait as long as necessary.
    #[must_use]
    pub fn max_wait(self, max: Duration) -> Self {
        self.with(|rules| rules.max_wait = max)
    }

    /// Makes a request fail at once with [`PaceError::QueueFull`] if `waiters` requests already
    /// wait for the server: [`DEFAULT_WAITERS`](super::DEFAULT_WAITERS) by default, at least one. Waiters of the
    /// [limiter](Self::limiter) are bounded by [`Limiter::bound_queue`].
    #[must_use]
    pub fn bound_queue(self, waiters: usize) -> Self {
        self.paced_by(|pacing| pacing.bound_queue(waiters))
    }

    /// Uses the remaining requests as fast as they arrive, and then holds.
    #[must_use]
    pub fn without_spreading(self) -> Self {
        self.paced_by(Pacing::without_spreading)
    }

    /// Reads another clock. `sleep` should wait on the same clock.
    #[must_use]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        self.with(|rules| rules.clock = Arc::new(clock))
    }
}

impl<S> Layer<S> for PaceLayer {
    type Service = Pace<S>;

    fn layer(&self, inner: S) -> Pace<S> {
        Pace { inner, layer: self.clone() }
    }
}

/// A client service behind a [`PaceLayer`].
#[derive(Clone, Debug)]
pub struct Pace<S> {
    inner: S,
    layer: PaceLayer,
}

/// The reason why a paced request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PaceError<E> {
    /// The inner client failed.
    Client(E),
    /// The limiter refuses the request: it is closed, or one permit exceeds its capacity.
    Limiter(AcquireError),
    /// The request would wait past [`PaceLayer::max_wait`]. Reported as soon as that is known.
    TooLong {
        /// The time that it would still have waited.
        wait: Duration,
    },
    /// The number of waiting requests has reached [`PaceLayer::bound_queue`].
    QueueFull,
}

impl<S, I, O> Service<Request<I>> for Pace<S>
where
    S: Service<Request<I>, Response = Response<O>> + Clone + Send + 'static,
    S::Future: Send,
    I: Send + 'static,
{
    type Response = Response<O>;
    type Error = PaceError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<O>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(PaceError::Client)
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        // The ready service is the one to call. Its clone becomes ready for the next request.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let layer = self.layer.clone();
        let (head, body) = request.into_parts();
        let tokens = layer.tokens(&head);
        let request = Request::from_parts(head, body);
        let head = |response: &Response<O>| (response.status(), response.headers().clone());
        Box::pin(async move { layer.paced(tokens, || inner.call(request), head).await })
    }
}

/// A limiter with any limit.
pub(super) trait DynLimiter: Send + Sync {
    /// Waits up to `max` in the limiter's wait queue, and takes a permit. Dropping the future
    /// leaves the queue.
    fn acquire_one_within(&self, max: Duration) -> AcquireFuture<'_>;

    /// Ends the operation of a grant in some way.
    fn end(&self, grant: &Grant, outcome: Outcome);

    /// Returns `true` if the limit moves by the outcomes.
    fn follows_outcomes(&self) -> bool;
}

pub(super) type AcquireFuture<'l> =
    Pin<Box<dyn Future<Output = Result<Grant, AcquireError>> + Send + 'l>>;

impl<C> DynLimiter for AsyncLimiter<C>
where
    C: Clock,
{
    fn acquire_one_within(&self, max: Duration) -> AcquireFuture<'_> {
        Box::pin(self.acquire_within(1, max))
    }

    fn end(&self, grant: &Grant, outcome: Outcome) {
        // A closed limiter needs nothing back.
        let _ = self.release_with_outcome(grant, outcome);
    }

    fn follows_outcomes(&self) -> bool {
        self.limiter().follows_outcomes().unwrap_or(false)
    }
}

impl fmt::Debug for PaceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceLayer")
            .field("has_limiter", &self.rules.limiter.is_some())
            .field("has_cost", &self.rules.cost.is_some())
            .field("pacing", &self.pacing)
            .finish_non_exhaustive()
    }
}

impl<E: fmt::Display> fmt::Display for PaceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Limiter(error) => error.fmt(f),
            Self::TooLong { wait } => write!(f, "the request would wait for {wait:?}"),
            Self::QueueFull => f.write_str("the maximum number of requests is already waiting"),
        }
    }
}

impl<E: Error + 'static> Error for PaceError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::Limiter(error) => Some(error),
            Self::TooLong { .. } | Self::QueueFull => None,
        }
    }
}
