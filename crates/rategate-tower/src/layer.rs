//! The layer for servers, and its service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, response};
use rategate::adaptive;
use rategate::deny::DenyList;
use rategate::distributed::Distributed;
use rategate::policy::Ledger;
use rategate::store::Store;
use rategate::{Clock, Keyed, Limiter, Share};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::future::{ResponseFuture, Waiting};
use crate::gate::{Gate, One, Pass};
use crate::headers::{Followed, Headers};
use crate::key::{Key, KeySource, LimitSource, NameSource};
use crate::refusal::{Answers, Form, Refusal};
use crate::rules::{Denied, OnMissingKey, Rules};

/// A layer that limits the requests that reach a service.
///
/// **One limit for all.** Clones of the layer, all services that it makes and all their clones
/// share the limiter, or the table. A server that makes a service per connection, as axum's does,
/// is limited as a whole.
///
/// The steps of each request, in order: the deny list if there is one, the key, the cost, the
/// decision, the wait if there is one, and the inner service or a refusal.
///
/// | I want | method |
/// |---|---|
/// | one limit for all requests | [`new`](Self::new) |
/// | one limit per client | [`keyed`](Self::keyed) |
/// | one limit per client, over several processes | [`distributed`](Self::distributed) |
/// | some requests to cost more, or nothing | [`cost`](Self::cost) |
/// | only some responses to count, such as failed log-ins | [`refund_when`](Self::refund_when) |
/// | some requests to be refused before others | [`share`](Self::share) |
/// | a limit that follows what the service bears | [`classify`](Self::classify) |
/// | requests over the limit to wait | [`wait_within`](Self::wait_within) |
/// | responses to report the limit's status | [`headers`](Self::headers) |
/// | another response than a problem | [`form`](Self::form), [`answer`](Self::answer) |
/// | other handling of requests without a key | [`missing`](Self::missing) |
/// | clients on a list to be refused | [`deny`](Self::deny) |
///
/// # Panics in user code
///
/// Keys and costs are determined before anything is taken, and without a lock. A panic there fails
/// only its own request.
///
/// # Example
///
/// ```
/// use std::net::SocketAddr;
/// use std::time::Duration;
///
/// use axum::extract::ConnectInfo;
/// use axum::{Router, routing::get};
/// use rategate::{Gcra, Keyed};
/// use rategate_tower::headers::{Headers, QuotaPolicy};
/// use rategate_tower::{RateLimitLayer, key};
///
/// // Ten a second for each client, and up to twenty at once after a silence.
/// let keyed = Keyed::new(Gcra::per_second(10).burst(20));
/// let peer = key::peer(|info: &ConnectInfo<SocketAddr>| info.0.ip());
/// let layer = RateLimitLayer::keyed(keyed, peer)
///     .headers(Headers::new(QuotaPolicy::new("burst", 20, Duration::from_secs(2))?));
///
/// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
/// let service = app.into_make_service_with_connect_info::<SocketAddr>();
/// # drop(service);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RateLimitLayer {
    rules: Arc<Rules>,
}

impl RateLimitLayer {
    /// Creates a layer with one limit for all requests.
    ///
    /// The limiter is a handle: keep a clone to [reconfigure](Limiter::reconfigure) or
    /// [close](Limiter::close) it while it is in use.
    #[must_use]
    pub fn new<C>(limiter: Limiter<C>) -> Self
    where
        C: Clock + 'static,
    {
        Self::of(Arc::new(One::new(limiter)), None)
    }

    /// Creates a layer with one limit per key of `source`.
    ///
    /// The table is a handle: keep a clone to [monitor](Keyed::overflows) it, and to
    /// [reconfigure](Keyed::reconfigure) it while it is in use. With a token bucket, a key takes
    /// some 30 bytes, and its requests are decided without a lock. A key has a limiter of two
    /// kilobytes only while one of its requests [waits](Self::wait_within), or is in flight and
    /// counted by its limit.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::keyed::{Capacity, Overflow};
    /// use rategate::{SlidingLog, Keyed};
    /// use rategate_tower::{RateLimitLayer, key};
    ///
    /// // At most a hundred requests in any minute per user; a full table refuses new users.
    /// let capacity = Capacity::for_keys(1_000_000).or_else(Overflow::Refuse);
    /// let policy = SlidingLog::new(100, Duration::from_secs(60)).compact();
    /// let keyed = Keyed::with_capacity(policy, capacity);
    /// let layer = RateLimitLayer::keyed(keyed.clone(), key::header("x-user".parse()?));
    /// assert!(keyed.is_empty());
    /// # drop(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn keyed<C>(keyed: Keyed<Key, C>, source: impl KeySource + 'static) -> Self
    where
        Ledger: Send,
        C: Clock + Clone + 'static,
    {
        Self::of(Arc::new(keyed), Some(LimitSource::Keys(Arc::new(source))))
    }

    /// Creates a layer with one limit per client of `source`, shared by all processes with the
    /// same store.
    ///
    /// The limiter is a handle: keep a clone to monitor its [health](Distributed::health) and its
    /// [counts](Distributed::counts). Its [builder](Distributed::builder) configures how requests
    /// are decided, and the fallback while the store is unavailable. A request that the fallback
    /// denies is refused with a 503.
    ///
    /// A request waits for the store without blocking its thread, at most as long as its budget.
    /// With [`wait_within`](Self::wait_within) it retries after a denial that waiting may help.
    /// There is no wait queue.
    ///
    /// Under a limit of permits in flight, a request holds them until its response has ended, and
    /// does not wait for them. They are [renewed](Distributed::keep) meanwhile. They end by
    /// themselves only if this process dies, or cannot reach the store for their full time. A
    /// [header](Self::headers) field states the remaining requests only where the limiter knows
    /// them.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use rategate::distributed::{Distributed, OnUnavailable};
    /// use rategate::store::MemoryStore;
    /// use rategate::Gcra;
    /// use rategate_tower::{RateLimitLayer, key};
    ///
    /// // For several machines, use a `RedisStore` of `rategate-redis`.
    /// let store = Arc::new(MemoryStore::new());
    /// let limiter = Distributed::builder(store)
    ///     .limit("user", Gcra::per_second(100).burst(50))
    ///     .on_unavailable(OnUnavailable::Admit)
    ///     .build()?;
    /// let layer = RateLimitLayer::distributed(limiter, key::header("x-user".parse()?));
    /// # drop(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn distributed<S, C>(limiter: Distributed<S, C>, source: impl NameSource + 'static) -> Self
    where
        S: Store,
        C: Clock + Clone + 'static,
    {
        Self::of(Arc::new(limiter), Some(LimitSource::Names(Arc::new(source))))
    }

    fn of(gate: Arc<dyn Gate>, source: Option<LimitSource>) -> Self {
        let answers = Answers::As(Form::default());
        let (missing, max_wait, cost, returns, headers) = (None, None, None, None, None);
        let rules = Rules {
            denied: None,
            gate,
            source,
            missing,
            has_reported: Arc::default(),
            max_wait,
            cost,
            share: None,
            returns,
            classify: None,
            headers,
            answers,
        };
        Self { rules: Arc::new(rules) }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }

    /// Refuses clients on a deny list, before anything is taken.
    ///
    /// `source` names the client of a request, and may differ from the source of the limit. A
    /// request without such a key is on no list. It is refused with a 400 if
    /// [`missing`](Self::missing) is [`OnMissingKey::Refuse`]. An
    /// [ambiguous](KeySource::is_ambiguous) request, such as one with a repeated header, is refused
    /// with a 400, unless `missing` lets it share or pass.
    ///
    /// The response is a 429 as for a request over the limit. It has the exact time until the
    /// entry ends, or until the limit lets the request pass if that is later. The limit is not
    /// charged, and a limit in a store is not queried. [`answer`](Self::answer) can turn the
    /// response into a 403.
    ///
    /// The list is a handle, which a lookup reads in some tens of nanoseconds without a lock. The
    /// application has to keep it up to date, such as by a thread with a
    /// [`DenyFile`](rategate::deny::DenyFile):
    ///
    /// ```no_run
    /// use http::{Response, StatusCode};
    /// use rategate::deny::{DenyFile, DenyList};
    /// use rategate::{Limiter, SlidingLog};
    /// use rategate_tower::{RateLimitLayer, Reason, key};
    ///
    /// # use std::net::SocketAddr;
    /// # use axum::extract::ConnectInfo;
    /// // The list of `rategate analyze --follow --gate deny.list`, whose names are addresses.
    /// let list = DenyList::new(100_000);
    /// let file = DenyFile::with_names("deny.list", list.clone(), |list, name| {
    ///     Some(list.id(&key::named_address(name)?))
    /// });
    /// std::thread::spawn(move || {
    ///     loop {
    ///         if let Err(error) = file.refresh() {
    ///             eprintln!("deny.list: {error}");
    ///         }
    ///         std::thread::sleep(std::time::Duration::from_secs(1));
    ///     }
    /// });
    ///
    /// let peer = key::peer(|info: &ConnectInfo<SocketAddr>| info.0.ip());
    /// let limiter = Limiter::new(SlidingLog::new(10_000, std::time::Duration::from_secs(1)));
    /// let layer = RateLimitLayer::new(limiter).deny(list, peer).answer(|refusal, _request| {
    ///     let mut response = Response::new(refusal.detail().to_owned());
    ///     *response.status_mut() = match refusal.reason() {
    ///         Reason::OnDenyList => StatusCode::FORBIDDEN,
    ///         _ => refusal.status(),
    ///     };
    ///     response
    /// });
    /// # drop(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deny(self, list: DenyList<Key>, source: impl KeySource + 'static) -> Self {
        self.with(|rules| rules.denied = Some(Denied { list, source: Arc::new(source) }))
    }

    /// Sets the number of permits that a request takes, by its head. The default is one.
    ///
    /// A request with cost 0 passes without being counted. A request whose cost exceeds the
    /// limit's capacity is refused with a 400.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.cost = Some(Arc::new(cost)))
    }

    /// Sets the share of the limit that a request may fill, by its head: load shedding by priority.
    /// The default is the whole.
    ///
    /// Requests in flight of all priorities count in a share. So as the service becomes busy,
    /// those with the smallest share are refused first, and the rest of the limit is left for the
    /// others. A share is a part of the limit as it is now, rounded up. A request whose share is
    /// full is refused at once: only those with the whole limit [wait](Self::wait_within).
    ///
    /// Give the most important requests the whole limit, and the others at least a quarter. Where
    /// requests with a share alone keep the service busy, a limit that follows measurements moves
    /// so that the share is what the service bears. In a share below a quarter no limit grows.
    ///
    /// This is for limits on requests in flight in this process, such as an
    /// [`AdaptiveConcurrency`](rategate::AdaptiveConcurrency). Under any other, a request with a
    /// smaller share is refused with a 500, for [`Reason::NoShares`](crate::Reason::NoShares).
    ///
    /// ```
    /// use rategate::{AdaptiveConcurrency, Limiter, Share};
    /// use rategate_tower::RateLimitLayer;
    ///
    /// // Crawlers leave two fifths of the limit to all others.
    /// let limiter = Limiter::new(AdaptiveConcurrency::new(2, 500));
    /// let layer = RateLimitLayer::new(limiter).share(|head| {
    ///     let is_crawler = head.headers.get("user-agent").is_some_and(|it| it == "crawler");
    ///     if is_crawler { Share::percent(60) } else { Share::WHOLE }
    /// });
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn share(self, share: impl Fn(&Parts) -> Share + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.share = Some(Arc::new(share)))
    }

    /// Refunds permits by the head of the response, for example so that only failed log-ins count.
    ///
    /// The permits are [held](Limiter::hold) until then, and come back as far as the limit would have
    /// had room for them without the request. A request without a response, because the service
    /// fails or the client disconnects, is not refunded.
    ///
    /// Under a limit that counts requests in flight, the permits return when the body has ended,
    /// as by [`Permit::abort`](rategate::Permit::abort).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Limiter, SlidingLog};
    /// use rategate_tower::RateLimitLayer;
    ///
    /// // Five failures in any minute.
    /// let limiter = Limiter::new(SlidingLog::new(5, Duration::from_secs(60)));
    /// let layer = RateLimitLayer::new(limiter).refund_when(|head| head.status.is_success());
    /// # drop(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn refund_when(
        self,
        returns: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.with(|rules| rules.returns = Some(Arc::new(returns)))
    }

    /// Sets what a response says about the load of the service, by its head.
    ///
    /// This is for an [`AdaptiveConcurrency`](rategate::AdaptiveConcurrency). The default takes the
    /// status codes 429, 503, 504 and 529, and a service that fails, for *dropped*, and all others
    /// for *served*. A client that disconnects before the head says nothing. The time counts to the
    /// end of the body.
    ///
    /// ```
    /// use http::StatusCode;
    /// use rategate::adaptive::Outcome;
    /// use rategate::{AdaptiveConcurrency, Limiter};
    /// use rategate_tower::RateLimitLayer;
    ///
    /// // As many requests at once as the service works on, and a few more.
    /// let limiter = Limiter::new(AdaptiveConcurrency::new(2, 500));
    /// let layer = RateLimitLayer::new(limiter).classify(|head| match head.status {
    ///     StatusCode::SERVICE_UNAVAILABLE => Outcome::Dropped,
    ///     // Served from a cache: it says nothing about the service.
    ///     StatusCode::NOT_MODIFIED => Outcome::Ignored,
    ///     _ => Outcome::Served,
    /// });
    /// # drop(layer);
    /// ```
    #[must_use]
    pub fn classify(
        self,
        classify: impl Fn(&response::Parts) -> adaptive::Outcome + Send + Sync + 'static,
    ) -> Self {
        self.with(|rules| rules.classify = Some(Arc::new(classify)))
    }

    /// Sets the handling of requests without a key.
    ///
    /// The default depends on the party that has left the key out:
    ///
    /// * The client, for example without an API key: the request shares a limit with all others
    ///   without one. A client that states more than one key, such as a header twice, is refused
    ///   with a 400, since the deny list could not recognize it.
    /// * The server, such as axum without `into_make_service_with_connect_info` behind a
    ///   [`peer`](crate::key::peer): the request is refused with a 500, and the log reports the
    ///   missing extension once, as an error of `tracing`. Otherwise indistinguishable clients
    ///   would share one limit, or a deny list would have no effect.
    ///
    /// The setting applies to the key of the limit and to that of the [deny list](Self::deny).
    #[must_use]
    pub fn missing(self, missing: OnMissingKey) -> Self {
        self.with(|rules| rules.missing = Some(missing))
    }

    /// Lets a request over the limit wait if its start comes within `max_wait`.
    ///
    /// A request with a later start is refused at once. `Retry-After` then states when the wait
    /// queue will be short enough for it. By default, or with `max_wait` of zero, requests do not
    /// wait.
    ///
    /// The wait queue is the limiter's, in FIFO order, and shared with all other waiters of the
    /// limiter. It is bounded by the permits that become available within `max_wait`, and by
    /// [`Limiter::bound_queue`], beyond which requests are refused with a 503. A request whose
    /// client disconnects leaves the queue if the server then drops the response's future, and has
    /// taken nothing. While a request waits, the inner service is kept ready for it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Gcra, Limiter};
    /// use rategate_tower::RateLimitLayer;
    ///
    /// // A hundred per second, evenly spaced; up to fifty wait.
    /// let limiter = Limiter::new(Gcra::per_second(100));
    /// let layer = RateLimitLayer::new(limiter).wait_within(Duration::from_millis(500));
    /// # drop(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wait_within(self, max_wait: Duration) -> Self {
        self.with(|rules| rules.max_wait = Some(max_wait).filter(|max_wait| !max_wait.is_zero()))
    }

    /// Reports the limit's status to clients, in every response. By default only refusals do, by
    /// `Retry-After`.
    ///
    /// The numbers of the [quota policy](crate::headers::QuotaPolicy) are sent until the limit is
    /// reconfigured, and then those of the limit.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        self.with(|rules| {
            let followed = Arc::new(Followed::new(rules.gate.changes()));
            rules.headers = Some((headers, followed));
        })
    }

    /// Sets the form of the response to refused clients.
    #[must_use]
    pub fn form(self, form: Form) -> Self {
        self.with(|rules| rules.answers = Answers::As(form))
    }

    /// Sets a closure that builds the response to refused clients. `Retry-After` and the
    /// [`headers`](Self::headers) are added to it.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use rategate::{Gcra, Limiter};
    /// use rategate_tower::RateLimitLayer;
    ///
    /// let limiter = Limiter::new(Gcra::per_second(1000).burst(100));
    /// let layer = RateLimitLayer::new(limiter).answer(|refusal, _request| {
    ///     let mut response = Response::new(format!("sorry: {}", refusal.detail()));
    ///     *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    ///     response
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn answer(
        self,
        answer: impl Fn(&Refusal, &Parts) -> Response<String> + Send + Sync + 'static,
    ) -> Self {
        self.with(|rules| rules.answers = Answers::By(Arc::new(answer)))
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, rules: Arc::clone(&self.rules) }
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(f)
    }
}

/// A service behind a [`RateLimitLayer`].
///
/// Its errors are those of the inner service: a refusal is a response.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S, I, O> Service<Request<I>> for RateLimit<S>
where
    S: Service<Request<I>, Response = Response<O>> + Clone,
{
    type Response = Response<ResponseBody<O>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, I>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        let (head, body) = request.into_parts();
        match self.rules.decide(&head) {
            Pass::Now(outcome) => {
                ResponseFuture::decided(outcome, &mut self.inner, &self.rules, (head, body))
            }
            Pass::Later(pending) => {
                // The ready service is the one to call. Its clone becomes ready for the next
                // request.
                let next = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, next);
                let rules = Arc::clone(&self.rules);
                ResponseFuture::waiting(pending, Waiting { service, rules, head, body })
            }
        }
    }
}
