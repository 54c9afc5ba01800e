//! The API for operators: figures, keys, rules, simulations, and the page that shows them.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the page, with the feature `dashboard` |
//! | `GET /metrics` | figures for Prometheus |
//! | `GET /v1/rules` (`?rule=`) | the figures of each rule; of one, its last quarter of an hour |
//! | `GET /v1/top?rule=` (`&most=`) | the keys with the most permits and denials |
//! | `GET /v1/keys/{rule}/{key}` | the status of a key |
//! | `GET /v1/config` | rules as configured, with their digest |
//! | `POST /v1/config/validate` | the problems of a configuration |
//! | `POST /v1/explain` | the rule that a descriptor comes under |
//! | `POST /v1/simulate` | a replay of recorded arrivals against another limit, with the page |
//! | `GET /v1/events` (`?rule=`) | the answers of `/v1/rules`, each second, as server-sent events |
//!
//! Nothing here changes anything.

mod events;
mod inspect;
pub(super) mod reply;
mod shapes;
mod validate;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response};
use hyper::body::Body as HttpBody;
use tokio::sync::Semaphore;

use self::events::{Events, StreamPermit};
use self::reply::{Problem, full, json};
use self::shapes::{Config, Overview, Tops};
#[cfg(feature = "dashboard")]
use super::dashboard;
use super::{Observe, View, metrics};
use crate::protocol::body::{self, Body, read};

/// The maximum length of a request's body, in bytes.
const MAX_BODY_BYTES: usize = 65_536;
/// The default number of keys that `/v1/top` returns.
const TOP: usize = 20;

/// The rights of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The right to read figures, keys and the configuration.
    pub read: bool,
    /// The right to replay arrivals and to validate configurations, which takes time.
    pub simulate: bool,
}

/// The handler of these requests.
#[derive(Clone, Debug)]
pub struct Admin {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    observe: Arc<Observe>,
    view: Arc<dyn View>,
    streams: Arc<AtomicUsize>,
    #[cfg(feature = "dashboard")]
    replays: Arc<Semaphore>,
    readings: Semaphore,
    is_closing: AtomicBool,
}

impl Rights {
    /// All rights.
    pub const ALL: Self = Self { read: true, simulate: true };
    /// The right to read only.
    pub const READ: Self = Self { read: true, simulate: false };
    /// No rights: the page itself is served, and requests a token.
    pub const NONE: Self = Self { read: false, simulate: false };
}

impl Admin {
    /// Creates a handler for an engine and its observer.
    #[must_use]
    pub fn new(observe: Arc<Observe>, view: Arc<dyn View>) -> Self {
        let shared = Shared {
            observe,
            view,
            streams: Arc::default(),
            #[cfg(feature = "dashboard")]
            replays: Arc::new(Semaphore::new(1)),
            readings: Semaphore::new(1),
            is_closing: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns `true` if a request is for [`call`](Self::call).
    #[must_use]
    pub fn owns(path: &str) -> bool {
        let exact = [
            "/metrics",
            "/v1/rules",
            "/v1/top",
            "/v1/config",
            "/v1/config/validate",
            "/v1/explain",
            "/v1/events",
        ];
        #[cfg(feature = "dashboard")]
        if path == "/v1/simulate" || dashboard::find(path).is_some() {
            return true;
        }
        exact.contains(&path) || path.starts_with("/v1/keys/")
    }

    /// Ends streams of events with their next event, since the service is about to stop.
    pub fn close(&self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
    }

    /// Answers a request, with status 404 if it is not [for this handler](Self::owns).
    pub async fn call<B>(&self, request: Request<B>, rights: Rights) -> Response<Body>
    where
        B: HttpBody<Data = Bytes>,
    {
        self.answer(request, rights).await.unwrap_or_else(|problem| problem.response())
    }

    async fn answer<B>(
        &self,
        request: Request<B>,
        rights: Rights,
    ) -> Result<Response<Body>, Problem>
    where
        B: HttpBody<Data = Bytes>,
    {
        let path = request.uri().path().to_owned();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        #[cfg(feature = "dashboard")]
        if let Some(asset) = dashboard::find(&path) {
            return if is_read { Ok(asset.response()) } else { Err(Problem::method("GET, HEAD")) };
        }
        let is_post = matches!(&*path, "/v1/config/validate" | "/v1/explain" | "/v1/simulate");
        match (is_post, request.method() == Method::POST, is_read) {
            (true, true, _) | (false, _, true) => {}
            (true, false, _) => return Err(Problem::method("POST")),
            (false, _, false) => return Err(Problem::method("GET, HEAD")),
        }
        let takes_time = matches!(&*path, "/v1/config/validate" | "/v1/simulate");
        let may = if takes_time { rights.simulate } else { rights.read };
        if !may {
            return Err(Problem::unauthorized());
        }
        if !is_post {
            return self.show(&path, request.uri().query().unwrap_or_default()).await;
        }
        let max = if path == "/v1/config/validate" { validate::MAX_BYTES } else { MAX_BODY_BYTES };
        let (head, body) = request.into_parts();
        let body = read(body, max, body::WITHIN).await.map_err(Problem::unread)?;
        let Shared { view, readings, .. } = &*self.shared;
        match &*path {
            "/v1/config/validate" => validate::call(readings, &head.headers, &body).await,
            "/v1/explain" => inspect::explain(&**view, &body).await,
            #[cfg(feature = "dashboard")]
            "/v1/simulate" => {
                let Shared { observe, replays, .. } = &*self.shared;
                dashboard::simulate(observe, replays, &body).await
            }
            _ => Err(Problem::not_found()),
        }
    }

    async fn show(&self, path: &str, query: &str) -> Result<Response<Body>, Problem> {
        let Shared { observe, view, .. } = &*self.shared;
        let rule = reply::field(query, "rule");
        match path {
            "/metrics" => Ok(full(metrics::CONTENT_TYPE, metrics::render(observe, view))),
            "/v1/rules" => {
                let overview = Overview::of(observe, &**view, rule.as_deref(), true);
                if overview.detail.is_none()
                    && let Some(rule) = rule
                {
                    return Err(Problem::no_rule(&rule));
                }
                json(&overview)
            }
            "/v1/top" => {
                let rule =
                    rule.ok_or_else(|| Problem::bad("no `rule`; write /v1/top?rule=NAME"))?;
                let record = observe.record(&rule).ok_or_else(|| Problem::no_rule(&rule))?;
                let max = reply::field(query, "most").map_or(Some(TOP), |max| max.parse().ok());
                let max = max.ok_or_else(|| Problem::bad("`most` is not a number"))?;
                json(&Tops::of(&record, max))
            }
            "/v1/config" => json(&Config::of(view.rules().as_deref(), observe.status())),
            "/v1/events" => self.events(rule),
            _ => match path.strip_prefix("/v1/keys/") {
                Some(rest) => inspect::key(&**view, rest).await,
                None => Err(Problem::not_found()),
            },
        }
    }

    fn events(&self, rule: Option<String>) -> Result<Response<Body>, Problem> {
        if let Some(rule) =
            rule.as_deref().filter(|rule| self.shared.observe.record(rule).is_none())
        {
            return Err(Problem::no_rule(rule));
        }
        let permit = StreamPermit::take(&self.shared.streams).ok_or_else(Problem::busy)?;
        let shared = Arc::clone(&self.shared);
        let events = Events::new(permit, move || {
            if shared.is_closing.load(Ordering::Relaxed) {
                return None;
            }
            let overview = Overview::of(&shared.observe, &*shared.view, rule.as_deref(), false);
            serde_json::to_string(&overview).ok()
        });
        Ok(reply::events(Body::stream(events)))
    }
}
