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
mod shapes;
mod validate;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Uri};
use tokio::sync::Semaphore;

use self::shapes::{Config, Overview, Tops};
#[cfg(feature = "dashboard")]
use super::dashboard;
use super::record::Record;
use super::{Observe, View, metrics};
use crate::engine::EngineError;
use crate::net::Right;
use crate::protocol::http::{Caller, Refused, parameter};

/// The maximum length of a request's body, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 65_536;
/// The default number of keys that `/v1/top` returns.
const TOP: usize = 20;
/// The maximum number of concurrent streams of events.
const MAX_STREAMS: usize = 32;

/// The routes for operators.
#[derive(Clone, Debug)]
pub struct Admin {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) observe: Arc<Observe>,
    view: Arc<dyn View>,
    streams: Arc<Semaphore>,
    #[cfg(feature = "dashboard")]
    pub(super) replays: Arc<Semaphore>,
    readings: Semaphore,
    is_closing: AtomicBool,
}

impl Admin {
    /// Creates the routes over an engine and its observer.
    #[must_use]
    pub fn new(observe: Arc<Observe>, view: Arc<dyn View>) -> Self {
        let shared = Shared {
            observe,
            view,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            #[cfg(feature = "dashboard")]
            replays: Arc::new(Semaphore::new(1)),
            readings: Semaphore::new(1),
            is_closing: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Ends streams of events with their next event, since the service is about to stop.
    pub fn close(&self) {
        self.shared.is_closing.store(true, Ordering::Relaxed);
    }

    /// Returns the routes.
    pub fn routes(&self) -> Router {
        let reads = Router::new()
            .route("/metrics", get(scrape))
            .route("/v1/rules", get(rules))
            .route("/v1/top", get(top))
            .route("/v1/keys/{*name}", get(inspect::key))
            .route("/v1/config", get(config))
            .route("/v1/explain", post(inspect::explain))
            .route("/v1/events", get(events::call))
            .route_layer(from_fn_with_state(Right::Ask, needs));
        // They take time.
        let works = Router::new().route("/v1/config/validate", post(validate::call));
        #[cfg(feature = "dashboard")]
        let works = works.route("/v1/simulate", post(dashboard::simulate));
        let works = works.route_layer(from_fn_with_state(Right::Admin, needs));
        let routes = reads.merge(works).layer(map_response(uncached));
        #[cfg(feature = "dashboard")]
        let routes = routes.merge(dashboard::page());
        routes.with_state(Arc::clone(&self.shared))
    }
}

/// Refuses requests without the right.
async fn needs(
    State(right): State<Right>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Result<Response, Refused> {
    caller.needs(right)?;
    Ok(next.run(request).await)
}

/// Adds header fields against caching and content sniffing.
async fn uncached(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

impl Shared {
    /// Returns the record of a rule.
    pub(super) fn record(&self, rule: &str) -> Result<Arc<Record>, Refused> {
        self.observe.record(rule).ok_or_else(|| {
            let name = rule.chars().take(256).collect::<String>().into();
            EngineError::NoSuchRule { name, known: "/v1/rules has those with figures".into() }
                .into()
        })
    }
}

async fn scrape(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let text = metrics::render(&shared.observe, &shared.view);
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text)
}

async fn rules(State(shared): State<Arc<Shared>>, address: Uri) -> Result<Json<Overview>, Refused> {
    let record = parameter(&address, "rule").map(|rule| shared.record(&rule)).transpose()?;
    Ok(Json(Overview::of(&shared.observe, &*shared.view, record.as_deref(), true)))
}

async fn top(State(shared): State<Arc<Shared>>, address: Uri) -> Result<Json<Tops>, Refused> {
    let missing = || Refused::invalid("?rule", "no `rule`; write /v1/top?rule=NAME");
    let record = shared.record(&parameter(&address, "rule").ok_or_else(missing)?)?;
    let most = parameter(&address, "most").map_or(Ok(TOP), |most| most.parse());
    let most = most.map_err(|_| Refused::invalid("?most", "not a number"))?;
    Ok(Json(Tops::of(&record, most)))
}

async fn config(State(shared): State<Arc<Shared>>) -> Json<Config> {
    Json(Config::of(shared.view.rules().as_deref(), shared.observe.status()))
}
