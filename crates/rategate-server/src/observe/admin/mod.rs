//! What whoever runs the service asks it: figures, keys, rules, what if; and the page that shows them.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the page |
//! | `GET /metrics` | figures for Prometheus |
//! | `GET /v1/rules` (`?rule=`) | each rule now; all about one, with its last quarter of an hour |
//! | `GET /v1/top?rule=` (`&most=`) | the keys that stand out |
//! | `GET /v1/keys/{rule}/{key}` | what a key would be told now, and when it is free |
//! | `GET /v1/config` | rules as configured, with their digest |
//! | `POST /v1/config/validate` | whether a configuration would be taken, and what is wrong with it |
//! | `POST /v1/explain` | which rule a descriptor comes under |
//! | `POST /v1/simulate` | recorded arrivals, put to another limit |
//! | `GET /v1/events` (`?rule=`) | what `/v1/rules` says, each second, as server-sent events |
//!
//! Nothing here changes anything.

mod body;
mod look;
mod page;
mod reply;
mod shapes;
mod simulate;
mod validate;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use hyper::body::Body as HttpBody;
use tokio::sync::Semaphore;

use self::body::Place;
pub use self::body::{Body, Events};
use self::reply::{Problem, json, text};
use self::shapes::{Config, Overview, Tops};
use super::metrics::{Library, render};
use super::{Observe, View};
use crate::protocol::body::read;

/// The longest body of a request.
const MOST_BODY_BYTES: usize = 65_536;
/// How long one may take once it makes us wait.
const BODY_WITHIN: Duration = Duration::from_secs(5);
/// How many keys `/v1/top` tells if not said otherwise; and the most.
const TOP: usize = 20;

/// What whoever asks may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// See figures, keys and the configuration.
    pub read: bool,
    /// Have arrivals replayed or a configuration read, which takes time.
    pub simulate: bool,
}

/// Answers these requests.
#[derive(Clone, Debug)]
pub struct Admin {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    observe: Arc<Observe>,
    view: Arc<dyn View>,
    library: Library,
    streams: Arc<AtomicUsize>,
    replays: Arc<Semaphore>,
    readings: Semaphore,
    is_closing: AtomicBool,
}

impl Rights {
    /// All.
    pub const ALL: Self = Self { read: true, simulate: true };
    /// To look on.
    pub const READ: Self = Self { read: true, simulate: false };
    /// None: the page itself is shown, and asks for a token.
    pub const NONE: Self = Self { read: false, simulate: false };
}

impl Admin {
    /// Answers about an engine and what was seen of it.
    #[must_use]
    pub fn new(observe: Arc<Observe>, view: Arc<dyn View>) -> Self {
        let shared = Shared {
            observe,
            view,
            library: Library::new(),
            streams: Arc::default(),
            replays: Arc::new(Semaphore::new(1)),
            readings: Semaphore::new(1),
            is_closing: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Whether a request is for [`call`](Self::call).
    #[must_use]
    pub fn owns(path: &str) -> bool {
        let exact = [
            "/metrics",
            "/v1/rules",
            "/v1/top",
            "/v1/config",
            "/v1/config/validate",
            "/v1/explain",
            "/v1/simulate",
            "/v1/events",
        ];
        exact.contains(&path) || path.starts_with("/v1/keys/") || page::find(path).is_some()
    }

    /// Streams of events end with their next event: the service is about to.
    pub fn close(&self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
    }

    /// Answers a request, if it is [for this](Self::owns): status 404 if not.
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
        let asks = matches!(*request.method(), Method::GET | Method::HEAD);
        if let Some(asset) = page::find(&path) {
            return if asks { Ok(asset.response()) } else { Err(Problem::method("GET, HEAD")) };
        }
        let is_post = matches!(&*path, "/v1/config/validate" | "/v1/explain" | "/v1/simulate");
        match (is_post, request.method() == Method::POST, asks) {
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
        let most =
            if path == "/v1/config/validate" { validate::MOST_BYTES } else { MOST_BODY_BYTES };
        let (head, body) = request.into_parts();
        let body = read(body, most, BODY_WITHIN).await.map_err(Problem::unread)?;
        let Shared { observe, view, replays, readings, .. } = &*self.shared;
        match &*path {
            "/v1/config/validate" => validate::call(readings, &head.headers, &body).await,
            "/v1/explain" => look::explain(&**view, &body).await,
            _ => simulate::call(observe, replays, &body).await,
        }
    }

    async fn show(&self, path: &str, query: &str) -> Result<Response<Body>, Problem> {
        let Shared { observe, view, library, .. } = &*self.shared;
        let rule = reply::field(query, "rule");
        match path {
            "/metrics" => Ok(text(
                "text/plain; version=0.0.4; charset=utf-8",
                render(observe, &**view, library),
            )),
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
                let rule = rule.ok_or_else(|| Problem::bad("say which rule: /v1/top?rule=NAME"))?;
                let record = observe.record(&rule).ok_or_else(|| Problem::no_rule(&rule))?;
                let most = reply::field(query, "most").map_or(Some(TOP), |most| most.parse().ok());
                let most = most.ok_or_else(|| Problem::bad("`most` is no number"))?;
                json(&Tops::of(&record, most))
            }
            "/v1/config" => json(&Config::of(view.rules().as_deref(), observe.status())),
            "/v1/events" => self.events(rule),
            _ => match path.strip_prefix("/v1/keys/") {
                Some(rest) => look::key(&**view, rest).await,
                None => Err(Problem::not_found()),
            },
        }
    }

    fn events(&self, rule: Option<String>) -> Result<Response<Body>, Problem> {
        let place = Place::take(&self.shared.streams).ok_or_else(Problem::busy)?;
        let shared = Arc::clone(&self.shared);
        let body = Body::events(place, move || {
            if shared.is_closing.load(Ordering::Relaxed) {
                return None;
            }
            let overview = Overview::of(&shared.observe, &*shared.view, rule.as_deref(), false);
            serde_json::to_string(&overview).ok()
        });
        Ok(reply::events(body))
    }
}
