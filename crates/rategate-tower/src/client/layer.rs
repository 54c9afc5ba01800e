//! The layer for clients, and the service that it makes.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use http::{Request, Response};
use rategate::{AcquireError, AsyncLimiter, Clock, Concurrent, Limiter, MonotonicClock};
use tower_layer::Layer;
use tower_service::Service;

use super::learn::{LONGEST_HOLD, Lesson, learn};
use super::pace::{Lessons, Ticket};

/// How a client waits for a hold to end, which is its runtime's business. Closures that make a future do:
/// `tokio::time::sleep`.
pub trait Sleep: Send + Sync {
    /// A future that is ready after `time` or later. One that is ready sooner is asked again.
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

/// Paces the requests of a client, and learns from the responses.
///
/// Each request waits for the limiter, if there is one, and for what the server has asked for: after a
/// 429 or a 503 with `Retry-After`, or when nothing remains, nobody sends before that instant; else
/// what remains is spread over the time until the reset. [`learn`] says how responses are read.
///
/// **One state for all.** Clones of the layer, all services that it makes and their clones share
/// limiter and lessons. They are about one server: make a layer for each.
///
/// No request waits past the reset, which is at most [`longest_hold`](Self::longest_hold) away. Those that wait then
/// start together: nothing is known of what comes after it. Until then they start in the order of asking. A
/// request that is dropped while it waits leaves its place to the next one that comes; those that sleep already keep
/// their instants.
///
/// A 429 is returned to the caller as any other response. Who wants the request to be sent again puts
/// a retry around this service, and needs no delay there: the next call waits here.
///
/// # Example
///
/// ```
/// use rategate::{Gcra, Limiter};
/// use rategate_tower::client::PaceLayer;
///
/// // At most 20 a second, whatever the server says, and less if it says so.
/// let layer = PaceLayer::new(tokio::time::sleep)
///     .limiter(Limiter::new(Gcra::new("20/s".parse()?, 1)?));
/// # drop(layer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PaceLayer {
    rules: Arc<Rules>,
    lessons: Arc<Mutex<Lessons>>,
}

/// What all services of a layer share, and do not change.
#[derive(Clone)]
struct Rules {
    sleep: Arc<dyn Sleep>,
    clock: Arc<dyn Clock>,
    limiter: Option<Arc<dyn Line>>,
    longest_hold: Duration,
    longest_wait: Duration,
    max_waiters: usize,
    spreads: bool,
}

/// How many requests of a client wait for a hold at a time, if not said otherwise.
pub const DEFAULT_WAITERS: usize = 65_536;

impl PaceLayer {
    /// Paces by what servers say, and waits by `sleep`.
    #[must_use]
    pub fn new(sleep: impl Sleep + 'static) -> Self {
        let rules = Rules {
            sleep: Arc::new(sleep),
            clock: Arc::new(MonotonicClock::new()),
            limiter: None,
            longest_hold: LONGEST_HOLD,
            longest_wait: Duration::MAX,
            max_waiters: DEFAULT_WAITERS,
            spreads: true,
        };
        Self { rules: Arc::new(rules), lessons: Arc::default() }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }

    /// Takes a permit of `limiter` for each request as well, in line with all who wait for it
    /// elsewhere. That wait is by the timer of the limiter's own [clock](Clock::timer).
    #[must_use]
    pub fn limiter<L, C>(self, limiter: Limiter<L, C>) -> Self
    where
        L: Concurrent + Send + 'static,
        C: Clock + 'static,
    {
        self.with(|rules| rules.limiter = Some(Arc::new(AsyncLimiter::from(limiter))))
    }

    /// The longest that a server can make this client hold: an hour if not given. What a server asks
    /// for beyond that is cut.
    #[must_use]
    pub fn longest_hold(self, longest: Duration) -> Self {
        self.with(|rules| rules.longest_hold = longest)
    }

    /// Fails at once with [`PaceError::TooLong`] where a request would wait for longer. Without it
    /// requests wait as long as they have to.
    #[must_use]
    pub fn longest_wait(self, longest: Duration) -> Self {
        self.with(|rules| rules.longest_wait = longest)
    }

    /// Fails at once with [`PaceError::QueueFull`] where as many requests wait for what the server has asked for:
    /// [`DEFAULT_WAITERS`] if not given, at least one. Those that wait for the [limiter](Self::limiter) are bounded by
    /// [`Limiter::bound_queue`].
    #[must_use]
    pub fn bound_queue(self, waiters: usize) -> Self {
        self.with(|rules| rules.max_waiters = waiters.max(1))
    }

    /// Uses up what remains as fast as requests come, and then holds.
    #[must_use]
    pub fn without_spreading(self) -> Self {
        self.with(|rules| rules.spreads = false)
    }

    /// Reads another clock. `sleep` should wait on the same.
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

/// Why a paced request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PaceError<E> {
    /// The client within failed.
    Client(E),
    /// The limiter will not let it pass: it is closed, or a permit is more than it could ever give.
    Limiter(AcquireError),
    /// The request would wait past [`PaceLayer::longest_wait`]. Told as soon as it is known.
    TooLong {
        /// How much longer it would have waited.
        wait: Duration,
    },
    /// As many requests wait already as may by [`PaceLayer::bound_queue`].
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
        // The service that is ready is the one to call; its clone gets ready for the next.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let layer = self.layer.clone();
        Box::pin(async move {
            layer.turn().await.map_err(|refused| match refused {
                NoTurn::Limiter(error) => PaceError::Limiter(error),
                NoTurn::TooLong(wait) => PaceError::TooLong { wait },
                NoTurn::QueueFull => PaceError::QueueFull,
            })?;
            let in_flight = InFlight::new(&layer);
            let response = inner.call(request).await.map_err(PaceError::Client)?;
            let (status, headers) = (response.status(), response.headers());
            let lesson = learn(status, headers, SystemTime::now(), layer.rules.longest_hold);
            in_flight.learn(lesson);
            Ok(response)
        })
    }
}

/// Why a request does not get its turn.
enum NoTurn {
    Limiter(AcquireError),
    TooLong(Duration),
    QueueFull,
}

impl PaceLayer {
    /// Waits for the turn of one request.
    async fn turn(&self) -> Result<(), NoTurn> {
        let longest_ns = u64::try_from(self.rules.longest_wait.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = self.now_ns().saturating_add(longest_ns);
        let mut place = Place::new(self).ok_or(NoTurn::QueueFull)?;
        loop {
            while let Err(again_ns) = place.start(self.now_ns()) {
                if again_ns > deadline_ns {
                    let wait_ns = again_ns.saturating_sub(self.now_ns());
                    return Err(NoTurn::TooLong(Duration::from_nanos(wait_ns)));
                }
                self.sleep_until(again_ns).await;
            }
            if let Some(limiter) = &self.rules.limiter {
                let left = Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns()));
                limiter.turn_within(left).await.map_err(NoTurn::of)?;
            }
            place.started_ns = None;
            // A hold may have come while this one waited. A permit is spent then: used later than
            // promised, it could meet others, and be more than the limit.
            if !self.lessons().holds(self.now_ns()) {
                return Ok(());
            }
        }
    }

    /// A sleep that ends early is followed by another.
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

    /// Nothing panics under this lock that leaves half a lesson.
    fn lessons(&self) -> MutexGuard<'_, Lessons> {
        self.lessons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NoTurn {
    fn of(error: AcquireError) -> Self {
        match error {
            AcquireError::TooLong(too_long) => Self::TooLong(too_long.wait()),
            other => Self::Limiter(other),
        }
    }
}

/// A request among those that wait. Dropped, it leaves them, and takes back a start that it has not used.
struct Place<'l> {
    layer: &'l PaceLayer,
    ticket: Ticket,
    started_ns: Option<u64>,
}

impl<'l> Place<'l> {
    fn new(layer: &'l PaceLayer) -> Option<Self> {
        let ticket = layer.lessons().join(layer.rules.max_waiters)?;
        Some(Self { layer, ticket, started_ns: None })
    }

    fn start(&mut self, now_ns: u64) -> Result<(), u64> {
        self.layer.lessons().start(now_ns, self.ticket)?;
        self.started_ns = Some(now_ns);
        Ok(())
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lessons = self.layer.lessons();
        lessons.leave(self.ticket);
        if let Some(start_ns) = self.started_ns {
            lessons.take_back(start_ns);
        }
    }
}

/// A request that has been sent; no more when this is dropped.
struct InFlight<'l> {
    layer: &'l PaceLayer,
}

impl<'l> InFlight<'l> {
    fn new(layer: &'l PaceLayer) -> Self {
        layer.lessons().begin();
        Self { layer }
    }

    fn learn(self, lesson: Lesson) {
        let spreads = self.layer.rules.spreads;
        if spreads || !matches!(lesson, Lesson::Spread { .. }) {
            self.layer.lessons().take(self.layer.now_ns(), lesson);
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.layer.lessons().end();
    }
}

/// A limiter, whatever its limit.
trait Line: Send + Sync {
    /// Waits for up to `longest`, in line with all others, and takes a permit. Dropped before, it
    /// leaves the line.
    fn turn_within(&self, longest: Duration) -> Turn<'_>;
}

type Turn<'l> = Pin<Box<dyn Future<Output = Result<(), AcquireError>> + Send + 'l>>;

impl<L, C> Line for AsyncLimiter<L, C>
where
    L: Concurrent + Send,
    C: Clock,
{
    fn turn_within(&self, longest: Duration) -> Turn<'_> {
        Box::pin(async move { self.acquire_within(1, longest).await.map(drop) })
    }
}

impl fmt::Debug for PaceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaceLayer")
            .field("has_limiter", &self.rules.limiter.is_some())
            .field("lessons", &*self.lessons())
            .finish_non_exhaustive()
    }
}

impl<E: fmt::Display> fmt::Display for PaceError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Limiter(error) => error.fmt(f),
            Self::TooLong { wait } => write!(f, "the request would wait for {wait:?}"),
            Self::QueueFull => f.write_str("as many requests wait already as may"),
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
