//! The layer for servers, and the service that it makes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::{HeaderMap, Request, Response, response};
use rategate::deny::DenyList;
use rategate::distributed::Distributed;
use rategate::store::Store;
use rategate::{Clock, Concurrent, Keyed, Ledger, Limiter, Twinned};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::future::{ResponseFuture, Waiting};
use crate::gate::{Ask, Gate, One, Outcome, Pass, Told, refused};
use crate::headers::{Followed, Headers, write_retry_after};
use crate::key::{Key, KeySource, LimitSource, NameSource};
use crate::refusal::{Answers, Form, Reason, Refusal};

/// Limits the requests that reach a service.
///
/// **One limit for all.** Clones of the layer, all services that it makes and all their clones share
/// the limiter, or the table. A server that makes a service for each connection, as
/// axum's does, is limited as a whole.
///
/// For each request, in this order: the deny list if there is one, the key, the cost, the decision, the wait if there
/// is one, and the service within, or an answer without it.
///
/// | I want | verb |
/// |---|---|
/// | one limit for all requests | [`new`](Self::new) |
/// | one for each client | [`keyed`](Self::keyed) |
/// | one for each client, over several processes | [`distributed`](Self::distributed) |
/// | some requests to count for more, or not at all | [`cost`](Self::cost) |
/// | only some responses to count, such as failed log-ins | [`refund_when`](Self::refund_when) |
/// | requests to wait for their turn | [`wait_within`](Self::wait_within) |
/// | to tell clients where they stand | [`headers`](Self::headers) |
/// | another answer than a problem | [`form`](Self::form), [`answer`](Self::answer) |
/// | something else for requests without a key | [`missing`](Self::missing) |
/// | to turn away who is on a list | [`deny`](Self::deny) |
///
/// # Panics in user code
///
/// Keys and costs are asked for before anything is taken, and no lock is held meanwhile. One that
/// panics fails that request alone.
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
/// let keyed = Keyed::new(Gcra::new("10/s".parse()?, 20)?);
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

/// A choice of what becomes of a request that has no key, for the limit or for the deny list.
///
/// Where none is made, the request shares a limit if the client has left the key out, is refused with a 400 if it has
/// given [more than one](KeySource::is_ambiguous), and with a 500 if the [server](KeySource::lacks) has left it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// It shares a key, and so a limit, with all others that have none. It is on no deny list.
    Share,
    /// It is refused with a 400.
    Refuse,
    /// It passes, unlimited, and is on no deny list. Only for keys that a client cannot leave out.
    Pass,
}

/// How many permits a request takes.
type Cost = Arc<dyn Fn(&Parts) -> u64 + Send + Sync>;

/// Whether a response gives back what its request has taken.
type Returns = Arc<dyn Fn(&response::Parts) -> bool + Send + Sync>;

/// Who is not let in, and whose requests are whose.
#[derive(Clone)]
struct Denied {
    list: DenyList<Key>,
    source: Arc<dyn KeySource>,
}

/// What all services of a layer share.
#[derive(Clone)]
pub(crate) struct Rules {
    denied: Option<Denied>,
    gate: Arc<dyn Gate>,
    source: Option<LimitSource>,
    /// What is chosen for requests without a key.
    missing: Option<Missing>,
    /// Whether the log says already what the server lacks.
    has_reported: Arc<AtomicBool>,
    longest_wait: Option<Duration>,
    cost: Option<Cost>,
    returns: Option<Returns>,
    headers: Option<(Headers, Arc<Followed>)>,
    answers: Answers,
}

impl RateLimitLayer {
    /// One limit for all requests.
    ///
    /// The limiter is a handle: keep a clone to [reconfigure](Limiter::reconfigure) or
    /// [close](Limiter::close) it while it is in use.
    #[must_use]
    pub fn new<L, C>(limiter: Limiter<L, C>) -> Self
    where
        L: Concurrent + Send + 'static,
        C: Clock + 'static,
    {
        Self::of(Arc::new(One::new(limiter)), None)
    }

    /// One limit for each key that `source` names.
    ///
    /// The table is a handle: keep a clone to [look](Keyed::overflows) at it, and to
    /// [reconfigure](Keyed::reconfigure) it while it is in use. A key takes some 30 bytes with a token
    /// bucket, whose requests are decided without a lock; only one that [waits](Self::wait_within), or has
    /// requests in flight that its limit counts, has a limiter of two kilobytes as long as that lasts.
    ///
    /// ```
    /// use rategate::{CompactLog, Keyed, Overflow, Room};
    /// use rategate_tower::{RateLimitLayer, key};
    ///
    /// // At most a hundred requests in any minute for each user; newcomers to a full table get a 503.
    /// let room = Room::for_keys(1_000_000).or_else(Overflow::Refuse);
    /// let keyed = Keyed::with_room(CompactLog::new(100, 60_000_000_000)?, room);
    /// let layer = RateLimitLayer::keyed(keyed.clone(), key::header("x-user".parse()?));
    /// assert!(keyed.is_empty());
    /// # drop(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn keyed<P, C>(keyed: Keyed<Key, P, C>, source: impl KeySource + 'static) -> Self
    where
        P: Twinned + Send + Sync + 'static,
        P::State: Send,
        Ledger<P>: Send,
        C: Clock + Clone + 'static,
    {
        Self::of(Arc::new(keyed), Some(LimitSource::Keys(Arc::new(source))))
    }

    /// One limit for each client that `source` names, which all processes with the same store keep together.
    ///
    /// The limiter is a handle: keep a clone to see its [health](Distributed::health) and its
    /// [counts](Distributed::counts). How a request is decided, and what becomes of it while the store does not
    /// answer, is said when the limiter is [built](Distributed::builder). A request that is denied then for want
    /// of the store is refused with a 503.
    ///
    /// A request waits for the store, as long as its budget says at most, without blocking its thread. With
    /// [`wait_within`](Self::wait_within) it asks again when a denial says that it may help; there is no line. With
    /// a limit of permits in flight it holds them until its response has ended, and does not wait for them: they are
    /// [renewed](Distributed::keep) meanwhile, and end by themselves only if this process dies or cannot reach the store for
    /// the time that they are held. A [header](Self::headers) field says how many requests remain only where the limiter knows.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use rategate::distributed::{Distributed, WhenGone};
    /// use rategate::store::MemoryStore;
    /// use rategate::Gcra;
    /// use rategate_tower::{RateLimitLayer, key};
    ///
    /// // Over several machines it is a `RedisStore` of `rategate-redis`.
    /// let store = Arc::new(MemoryStore::new());
    /// let limiter = Distributed::builder(store)
    ///     .limit("user", Gcra::new("100/s".parse()?, 50)?)
    ///     .when_gone(WhenGone::Admit)
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
        let (missing, longest_wait, cost, returns, headers) = (None, None, None, None, None);
        let rules = Rules {
            denied: None,
            gate,
            source,
            missing,
            has_reported: Arc::default(),
            longest_wait,
            cost,
            returns,
            headers,
            answers,
        };
        Self { rules: Arc::new(rules) }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }

    /// Turns away clients on a deny list, before anything is taken: `source` says whose a request is, and need
    /// not be that of the limit. A request without such a key is on no list, and is refused with a 400 where
    /// [`missing`](Self::missing) is to [refuse](Missing::Refuse). One that is [ambiguous](KeySource::is_ambiguous), such
    /// as by a header that comes twice, is refused with a 400, unless `missing` is to share or to pass.
    ///
    /// The answer is that of a request over the limit, a 429, with the exact time until the entry ends, or until the limit
    /// lets the request pass if that is later; it takes nothing from the limit. A limit in a store is not asked for it. [`answer`](Self::answer) can make a 403 of it. The list is a handle, consulted in some
    /// tens of nanoseconds without a lock; somebody has to keep it up to date, such as a thread with a
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
    /// let limiter = Limiter::new(SlidingLog::new(10_000, 1_000_000_000)?);
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

    /// How many permits a request takes, judged by its head. One if not given.
    ///
    /// A request that costs nothing passes without being counted. One that costs more than could ever
    /// pass at once is refused with a 400.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.cost = Some(Arc::new(cost)))
    }

    /// Gives permits back by the head of the response: so that only failed log-ins count, say, or
    /// nothing that the service itself could not do.
    ///
    /// They go back as by [`Limiter::refund`]: as far as the limit is then at least as full as if
    /// they had never been taken, so of a bucket, after a long response, perhaps in part. A request
    /// that has no response, because the service fails or the client goes away, has cost what it cost.
    ///
    /// Of a limit that counts requests in flight they come back when the body has ended, as by
    /// [`Permit::forgo`](rategate::Permit::forgo).
    ///
    /// ```
    /// use rategate::{Limiter, SlidingLog};
    /// use rategate_tower::RateLimitLayer;
    ///
    /// // Five failures in any minute.
    /// let limiter = Limiter::new(SlidingLog::new(5, 60_000_000_000)?);
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

    /// Chooses what becomes of a request without a key.
    ///
    /// Without a choice it depends on who has left the key out. The client, such as one without an API key: the
    /// request shares a limit with all others without one. A client that gives more than one, such as a header twice, is
    /// refused with a 400: the deny list could not know it. The server, such as axum without
    /// `into_make_service_with_connect_info` behind a [`peer`](crate::key::peer): the request is refused with a 500,
    /// and the log says once what is lacking, as an error of `tracing`. Clients that cannot be told apart would
    /// otherwise share one limit, or a deny list would be without effect.
    ///
    /// The choice holds for the key of the limit and for that of the [deny list](Self::deny).
    #[must_use]
    pub fn missing(self, missing: Missing) -> Self {
        self.with(|rules| rules.missing = Some(missing))
    }

    /// Lets a request over the limit wait in line for its turn, if that comes within `longest`. One
    /// whose turn would come later is refused at once; `Retry-After` then says when the line will be
    /// short enough for it. Without this, or with no time to wait, nobody waits.
    ///
    /// The line is the limiter's, in the order of asking, and shared with all who wait for it
    /// elsewhere. It is bounded by what passes within `longest`, and by
    /// [`Limiter::bound_queue`], beyond which requests are refused with a 503. A request whose client
    /// goes away leaves it, as far as the server drops the response's future then, and has taken
    /// nothing. While it waits, the service within is kept ready for it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rategate::{Gcra, Limiter};
    /// use rategate_tower::RateLimitLayer;
    ///
    /// // A hundred a second, evenly; up to fifty wait.
    /// let limiter = Limiter::new(Gcra::new("100/s".parse()?, 1)?);
    /// let layer = RateLimitLayer::new(limiter).wait_within(Duration::from_millis(500));
    /// # drop(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wait_within(self, longest: Duration) -> Self {
        self.with(|rules| rules.longest_wait = Some(longest).filter(|longest| !longest.is_zero()))
    }

    /// Tells clients where they stand, in every response. Without it there is `Retry-After`, in
    /// refusals alone.
    ///
    /// The numbers of the [quota policy](crate::headers::QuotaPolicy) are told until the limit is reconfigured, and then those of
    /// the limit.
    #[must_use]
    pub fn headers(self, headers: Headers) -> Self {
        self.with(|rules| {
            let followed = Arc::new(Followed::new(rules.gate.changes()));
            rules.headers = Some((headers, followed));
        })
    }

    /// What refused clients are answered.
    #[must_use]
    pub fn form(self, form: Form) -> Self {
        self.with(|rules| rules.answers = Answers::As(form))
    }

    /// An answer of one's own to refused clients. `Retry-After` and the [`headers`](Self::headers) are
    /// added to it.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    /// use rategate::{Gcra, Limiter};
    /// use rategate_tower::RateLimitLayer;
    ///
    /// let limiter = Limiter::new(Gcra::new("1000/s".parse()?, 100)?);
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
/// Its errors are those of the service within: a refusal is a response.
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
            Pass::Later(turn) => {
                // The service that is ready is the one to call; its clone gets ready for the next.
                let next = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, next);
                let rules = Arc::clone(&self.rules);
                ResponseFuture::waiting(turn, Waiting { service, rules, head, body })
            }
        }
    }
}

impl Rules {
    fn decide(&self, head: &Parts) -> Pass {
        let listed_for = match self.listed_for(head) {
            Ok(listed_for) => listed_for,
            Err(reason) => return Pass::Now(refused(reason)),
        };
        let ask = self.ask(head);
        if let Some(wait) = listed_for {
            // Both have to let it pass.
            let limit = ask.ok().and_then(|(ask, _)| self.gate.wait(ask));
            let refusal = Refusal::new(Reason::OnDenyList, Some(wait).max(limit));
            return Pass::Now(Outcome::Refused(refusal, None));
        }
        match ask {
            Ok((ask, name)) => self.gate.pass(ask, name),
            Err(outcome) => Pass::Now(outcome),
        }
    }

    /// For how long the client of a request is on the deny list.
    fn listed_for(&self, head: &Parts) -> Result<Option<Duration>, Reason> {
        let Some(denied) = &self.denied else { return Ok(None) };
        match denied.source.key(head) {
            Some(key) => Ok(denied.list.denied_for(&key)),
            None => self.without_key(&*denied.source, head).map(|()| None),
        }
    }

    /// What the limit is asked, about the key of which name, or what becomes of a request for which it is not.
    fn ask(&self, head: &Parts) -> Result<(Ask, Vec<u8>), Outcome> {
        let mut client = None;
        if let Some(source) = &self.source {
            client = source.client(head);
            if client.is_none() {
                self.without_key(source.keys(), head).map_err(refused)?;
                if self.missing == Some(Missing::Pass) {
                    return Err(Outcome::Passed(None, None));
                }
            }
        }
        let (key, name) = client.unwrap_or_else(|| (Key::nobody(), Vec::new()));
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        if cost == 0 {
            // What takes nothing leaves no trace: no key, no place in a table.
            return Err(Outcome::Passed(None, None));
        }
        let (longest_wait, tells) = (self.longest_wait, self.headers.is_some());
        let may_return = self.returns.is_some();
        Ok((Ask { key, cost, longest_wait, tells, may_return }, name))
    }

    /// Lets a request without a key go on, or says why it is refused: for the limit and for the deny list alike.
    fn without_key(&self, source: &dyn KeySource, head: &Parts) -> Result<(), Reason> {
        match self.missing {
            Some(Missing::Share | Missing::Pass) => Ok(()),
            _ if source.is_ambiguous(head) => Err(Reason::AmbiguousKey),
            Some(Missing::Refuse) => Err(Reason::NoKey),
            None if self.lacks(source, head) => Err(Reason::KeyNotProvided),
            None => Ok(()),
        }
    }

    /// Returns whether it is the server's mistake that a request has no key. The log says so once.
    fn lacks(&self, source: &dyn KeySource, head: &Parts) -> bool {
        let lacking = source.lacks(head);
        if let Some(extension) = lacking
            && !self.has_reported.swap(true, Ordering::Relaxed)
        {
            tracing::error!(
                extension,
                "requests have no extension `{extension}`, which tells clients apart, and are answered with 500; \
                 the server has to add it before the rate limit layer (axum adds `ConnectInfo` by \
                 `into_make_service_with_connect_info`), or `RateLimitLayer::missing` has to say what becomes of them"
            );
        }
        lacking.is_some()
    }

    pub(crate) fn returns(&self, head: &response::Parts) -> bool {
        self.returns.as_ref().is_some_and(|returns| returns(head))
    }

    pub(crate) fn answer(
        &self,
        refusal: Refusal,
        told: Option<Told>,
        head: &Parts,
    ) -> Response<String> {
        let refusal = match &self.headers {
            Some((headers, _)) => refusal.under(headers.policy().name()),
            None => refusal,
        };
        let mut response = self.answers.answer(&refusal, head);
        if let Some(wait) = refusal.retry_after() {
            write_retry_after(wait, response.headers_mut());
        }
        if let Some(told) = told {
            self.tell(told, response.headers_mut());
        }
        response
    }

    /// Writes where the client stands.
    pub(crate) fn tell(&self, told: Told, to: &mut HeaderMap) {
        let Some((headers, followed)) = &self.headers else { return };
        let (gate, given) = (&self.gate, headers.policy());
        let tier = || gate.tier(&told.key);
        let newer = followed.policy(gate.changes(), given, tier, |tier| gate.numbers(tier));
        let policy = newer.as_deref().unwrap_or(given);
        headers.write_of(policy, told.standing, SystemTime::now(), to);
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("denied", &self.denied.as_ref().map(|denied| &denied.list))
            .field("is_keyed", &self.source.is_some())
            .field("missing", &self.missing)
            .field("longest_wait", &self.longest_wait)
            .field("headers", &self.headers.as_ref().map(|(headers, _)| headers))
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}
