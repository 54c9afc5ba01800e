//! The layer for clients, whose requests wait for their start and whose responses bring hints.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Request, Response, StatusCode};
use rategate::policy::LimiterPolicy;
use rategate::{AcquireError, AsyncLimiter, Clock, Limiter, MonotonicClock};
use tower_layer::Layer;
use tower_service::Service;

use super::hints::{MAX_HOLD, ServerHint, parse_hints};
use super::pace::{PacingState, Ticket};

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
/// Each request waits for the limiter, if there is one, and for the server. After a 429 or a 503
/// with `Retry-After`, or when nothing remains, no request is sent before that instant. Otherwise
/// the remaining requests are spread over the time until the reset. [`parse_hints`] describes how
/// responses are read.
///
/// **One state for all.** Clones of the layer, all services that it makes and their clones share
/// the limiter and the server's hints. They concern one server: make a layer for each server.
///
/// No request waits past the reset, which is at most [`max_hold`](Self::max_hold) away.
/// Requests that still wait then start together, as nothing is known of the time after the reset.
/// Until then they start in the order of their arrival. A request that is dropped while it waits
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
    rules: Arc<Rules>,
    pacing: Arc<Mutex<PacingState>>,
}

/// The configuration that all services of a layer share.
#[derive(Clone)]
struct Rules {
    sleep: Arc<dyn Sleep>,
    clock: Arc<dyn Clock>,
    limiter: Option<Arc<dyn DynLimiter>>,
    max_hold: Duration,
    max_wait: Duration,
    max_waiters: usize,
    spreads: bool,
}

/// The default number of requests of a client that may wait for the server at the same time.
pub const DEFAULT_WAITERS: usize = 65_536;

impl PaceLayer {
    /// Creates a layer that follows the server's hints and waits by `sleep`.
    #[must_use]
    pub fn new(sleep: impl Sleep + 'static) -> Self {
        let rules = Rules {
            sleep: Arc::new(sleep),
            clock: Arc::new(MonotonicClock::new()),
            limiter: None,
            max_hold: MAX_HOLD,
            max_wait: Duration::MAX,
            max_waiters: DEFAULT_WAITERS,
            spreads: true,
        };
        Self { rules: Arc::new(rules), pacing: Arc::default() }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }

    /// Adds a limiter, of which each request takes a permit, in the limiter's FIFO order among all
    /// its waiters. The wait uses the timer of the limiter's own [clock](Clock::timer).
    #[must_use]
    pub fn limiter<P, C>(self, limiter: Limiter<P, C>) -> Self
    where
        P: LimiterPolicy<Limit: Send + 'static> + 'static,
        C: Clock + 'static,
    {
        self.with(|rules| rules.limiter = Some(Arc::new(AsyncLimiter::from(limiter))))
    }

    /// Sets the longest time that a server can make this client hold: an hour by default. Longer
    /// holds are cut to it.
    #[must_use]
    pub fn max_hold(self, max: Duration) -> Self {
        self.with(|rules| rules.max_hold = max)
    }

    /// Makes a request fail at once with [`PaceError::TooLong`] if it would wait for longer. By
    /// default requests wait as long as necessary.
    #[must_use]
    pub fn max_wait(self, max: Duration) -> Self {
        self.with(|rules| rules.max_wait = max)
    }

    /// Makes a request fail at once with [`PaceError::QueueFull`] if `waiters` requests already
    /// wait for the server: [`DEFAULT_WAITERS`] by default, at least one. Waiters of the
    /// [limiter](Self::limiter) are bounded by [`Limiter::bound_queue`].
    #[must_use]
    pub fn bound_queue(self, waiters: usize) -> Self {
        self.with(|rules| rules.max_waiters = waiters.max(1))
    }

    /// Uses the remaining requests as fast as they arrive, and then holds.
    #[must_use]
    pub fn without_spreading(self) -> Self {
        self.with(|rules| rules.spreads = false)
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
        let head = |response: &Response<O>| (response.status(), response.headers().clone());
        Box::pin(async move { layer.paced(|| inner.call(request), head).await })
    }
}

/// The reason why a request may not start.
enum NotStarted {
    Limiter(AcquireError),
    TooLong(Duration),
    QueueFull,
}

impl PaceLayer {
    /// Makes a call at its start, and follows the hints in the head of its response.
    pub(super) async fn paced<F, R, E>(
        &self,
        call: impl FnOnce() -> F,
        head: impl FnOnce(&R) -> (StatusCode, HeaderMap),
    ) -> Result<R, PaceError<E>>
    where
        F: Future<Output = Result<R, E>>,
    {
        self.wait_for_start().await.map_err(|refused| match refused {
            NotStarted::Limiter(error) => PaceError::Limiter(error),
            NotStarted::TooLong(wait) => PaceError::TooLong { wait },
            NotStarted::QueueFull => PaceError::QueueFull,
        })?;
        let in_flight = InFlight::new(self);
        let response = call().await.map_err(PaceError::Client)?;
        let (status, headers) = head(&response);
        let hint = parse_hints(status, &headers, SystemTime::now(), self.rules.max_hold);
        in_flight.apply(hint);
        Ok(response)
    }

    /// Waits until one request may start.
    async fn wait_for_start(&self) -> Result<(), NotStarted> {
        let max_wait_ns = u64::try_from(self.rules.max_wait.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = self.now_ns().saturating_add(max_wait_ns);
        let mut waiting = WaitingRequest::new(self).ok_or(NotStarted::QueueFull)?;
        loop {
            while let Err(again_ns) = waiting.start(self.now_ns()) {
                if again_ns > deadline_ns {
                    let wait_ns = again_ns.saturating_sub(self.now_ns());
                    return Err(NotStarted::TooLong(Duration::from_nanos(wait_ns)));
                }
                self.sleep_until(again_ns).await;
            }
            if let Some(limiter) = &self.rules.limiter {
                let left = Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns()));
                limiter.acquire_one_within(left).await.map_err(NotStarted::of)?;
            }
            waiting.started_ns = None;
            // A hold may have begun while this request waited. Its permit then stays charged, and
            // it takes another one: a permit used later than its promised start could coincide
            // with others and exceed the limit.
            if !self.pacing().holds(self.now_ns()) {
                return Ok(());
            }
        }
    }

    /// Sleeps until `start_ns`, repeatedly if a sleep ends early.
    async fn sleep_until(&self, start_ns: u64) {
        loop {
            match start_ns.saturating_sub(self.now_ns()) {
                0 => return,
                left_ns => self.rules.sleep.sleep(Duration::from_nanos(left_ns)).await,
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.rules.clock.now_ns()
    }

    /// Locks the state. A panic under the lock leaves no partial update.
    fn pacing(&self) -> MutexGuard<'_, PacingState> {
        self.pacing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NotStarted {
    fn of(error: AcquireError) -> Self {
        match error {
            AcquireError::TooLong(too_long) => Self::TooLong(too_long.wait()),
            other => Self::Limiter(other),
        }
    }
}

/// A waiting request. Dropping it removes it from the queue, and withdraws a start that was not
/// used.
struct WaitingRequest<'l> {
    layer: &'l PaceLayer,
    ticket: Ticket,
    started_ns: Option<u64>,
}

impl<'l> WaitingRequest<'l> {
    fn new(layer: &'l PaceLayer) -> Option<Self> {
        let ticket = layer.pacing().join(layer.rules.max_waiters)?;
        Some(Self { layer, ticket, started_ns: None })
    }

    fn start(&mut self, now_ns: u64) -> Result<(), u64> {
        self.layer.pacing().start(now_ns, self.ticket)?;
        self.started_ns = Some(now_ns);
        Ok(())
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        let mut pacing = self.layer.pacing();
        pacing.leave(self.ticket);
        if let Some(start_ns) = self.started_ns {
            pacing.take_back(start_ns);
        }
    }
}

/// A request that has been sent. Dropping this ends it.
struct InFlight<'l> {
    layer: &'l PaceLayer,
}

impl<'l> InFlight<'l> {
    fn new(layer: &'l PaceLayer) -> Self {
        layer.pacing().begin();
        Self { layer }
    }

    fn apply(self, hint: ServerHint) {
        let spreads = self.layer.rules.spreads;
        if spreads || !matches!(hint, ServerHint::Spread { .. }) {
            self.layer.pacing().take(self.layer.now_ns(), hint);
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.layer.pacing().end();
    }
}

/// A limiter with any limit.
trait DynLimiter: Send + Sync {
    /// Waits up to `max` in the limiter's wait queue, and takes a permit. Dropping the future
    /// leaves the queue.
    fn acquire_one_within(&self, max: Duration) -> AcquireFuture<'_>;
}

type AcquireFuture<'l> = Pin<Box<dyn Future<Output = Result<(), AcquireError>> + Send + 'l>>;

impl<P, C> DynLimiter for AsyncLimiter<P, C>
where
    P: LimiterPolicy<Limit: Send>,
    C: Clock,
{
    fn acquire_one_within(&self, max: Duration) -> AcquireFuture<'_> {
        Box::pin(async move { self.acquire_within(1, max).await.map(drop) })
    }
}

impl fmt::Debug for PaceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceLayer")
            .field("has_limiter", &self.rules.limiter.is_some())
            .field("lessons", &*self.pacing())
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
