//! HTTP: JSON requests, requests of proxies, health and the API's description.
//!
//! - `POST /v1/check` decides rules by name or by descriptor, and limits that come with the call.
//! - `/v1/auth` decides for a proxy, which evaluates only the status.
//! - `POST /json` decides what Envoy asks, as JSON.
//! - `GET /healthz` reports that the process runs, `GET /readyz` that it accepts calls.
//! - `GET /openapi.json` describes this API for programs.

mod answered;
mod auth;
mod body;
mod caller;
mod check_item;
mod check_request;
mod check_verb;
mod connection;
mod decide;
mod envoy;
mod guard;
mod host;
mod inline_limit;
mod invalid;
mod limit_fields;
mod options;
mod query;
mod refused;
mod values;
mod watched;

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use axum::{BoxError, Extension, Router};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use rategate::Clock;
use tonic::codegen::Service as _;

use self::auth::AuthRequest;
pub(crate) use self::body::{WITHIN, read};
pub use self::caller::Caller;
pub(crate) use self::caller::token_shown;
use self::check_item::Counter;
use self::check_request::CheckRequest;
pub(crate) use self::connection::is_grpc;
pub use self::connection::{ConnectionLimits, serve_connection};
pub(crate) use self::envoy::envoy_routes;
pub use self::guard::{Guard, OriginRefusal};
pub(crate) use self::host::check_host;
pub use self::options::{IsReady, Options, Proxies};
pub(crate) use self::query::parameter;
pub(crate) use self::refused::Refused;
use crate::engine::{Answer, Engine, EngineError};
use crate::net::Right;

/// The paths of a service, which answer whatever is sent. Clones share them.
#[derive(Clone, Debug)]
pub struct Api(Router);

/// What decides the requests of programs and proxies.
struct Checks<C: Clock> {
    engine: Engine<C>,
    options: Options,
}

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const JSON: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/json")];
/// The description of this API. Without the page there are no replays.
static OPENAPI: LazyLock<Bytes> = LazyLock::new(|| {
    let whole = include_str!("openapi.json");
    if cfg!(feature = "dashboard") {
        return Bytes::from_static(whole.as_bytes());
    }
    let mut document: serde_json::Value = serde_json::from_str(whole).unwrap_or_default();
    let paths = document.pointer_mut("/paths").and_then(serde_json::Value::as_object_mut);
    paths.and_then(|paths| paths.remove("/v1/simulate"));
    document.to_string().into()
});

impl Api {
    /// Creates the API over an engine.
    #[must_use]
    pub fn new<C: Clock + Clone + 'static>(engine: Engine<C>, options: Options) -> Self {
        Self::of(routes(engine, options))
    }

    /// Creates an API of these routes. All other requests receive a problem (RFC 9457).
    #[must_use]
    pub fn of(routes: Router) -> Self {
        let routes = routes.fallback(async || Refused::NotFound);
        Self(routes.method_not_allowed_fallback(async || Refused::Method))
    }

    /// Answers a request.
    pub async fn call<B>(&self, mut request: Request<B>, caller: &Caller) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        request.extensions_mut().insert(*caller);
        let response: Result<_, Infallible> = self.0.clone().call(request).await;
        let mut response = response.unwrap_or_else(|never| match never {});
        if response.status() == StatusCode::NO_CONTENT {
            // The router states a length of 0, which such a response does not have.
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        response
    }
}

/// Returns the routes of programs, proxies and load balancers.
pub(crate) fn routes<C: Clock + Clone + 'static>(engine: Engine<C>, options: Options) -> Router {
    let readiness = |ready: &'static str, unready: StatusCode| {
        let is_ready = Arc::clone(&options.ready);
        get(async move || if is_ready() { (StatusCode::OK, ready) } else { (unready, "not ready") })
    };
    Router::new()
        .route("/healthz", get(async || "OK"))
        .route("/health", get(async || "OK"))
        .route("/healthcheck", readiness("OK", StatusCode::INTERNAL_SERVER_ERROR))
        .route("/readyz", readiness("ready", StatusCode::SERVICE_UNAVAILABLE))
        .route("/openapi.json", get(async || (JSON, OPENAPI.clone())))
        .route("/v1/check", post(check::<C>))
        .route("/v1/auth", any(auth::<C>))
        .with_state(Arc::new(Checks { engine, options }))
}

async fn check<C: Clock + Clone + 'static>(
    State(checks): State<Arc<Checks<C>>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Result<Response, Refused> {
    caller.needs(Right::Ask)?;
    let Checks { engine, options } = &*checks;
    let (head, body) = request.into_parts();
    let wants_status = wants_status(&head)?;
    let body = read(body, options.max_body_bytes, options.body_within).await?;
    let check_request = CheckRequest::read(&body)?;
    caller.needs(check_request.verb.right())?;
    let outcome = checks.decide(&check_request).await?;
    let mut response = if wants_status && outcome.is_denial() {
        limit_fields::denied(&outcome.answer, StatusCode::TOO_MANY_REQUESTS)
    } else {
        answered::json(&outcome, engine.clock().now_ns())
    };
    if wants_status {
        let applied = HeaderValue::from_static("status=429");
        response.headers_mut().insert(PREFERENCE_APPLIED, applied);
        checks.write_limit_fields(&outcome, &check_request, response.headers_mut());
    }
    Ok((outcome.answer.refusal().map(Extension), response).into_response())
}

async fn auth<C: Clock + Clone + 'static>(
    State(checks): State<Arc<Checks<C>>>,
    Extension(caller): Extension<Caller>,
    request: Request<Body>,
) -> Result<Response, Refused> {
    caller.needs(Right::Ask)?;
    let (head, _) = request.into_parts();
    let client = || checks.options.proxies.name(caller.address, &head.headers);
    let AuthRequest { check_request, deny, pass } =
        AuthRequest::read(&head.uri, &head.headers, client)?;
    let outcome = match checks.decide(&check_request).await {
        // Proxies let calls pass that get an error in place of a decision.
        Err(Refused::EngineError(fault @ EngineError::TooManyReservations { .. }, _)) => {
            let reason = Extension(fault.refusal());
            let answer = Answer::or_denied(Err(fault), 1)?;
            return Ok((reason, limit_fields::denied(&answer, deny)).into_response());
        }
        outcome => outcome?,
    };
    let mut response = if outcome.answer.allowed {
        pass.into_response()
    } else {
        limit_fields::denied(&outcome.answer, deny)
    };
    checks.write_limit_fields(&outcome, &check_request, response.headers_mut());
    Ok((outcome.answer.refusal().map(Extension), response).into_response())
}

impl<C: Clock + Clone + 'static> Checks<C> {
    fn write_limit_fields(
        &self,
        outcome: &decide::Outcome,
        check_request: &CheckRequest,
        headers: &mut HeaderMap,
    ) {
        if self.options.fields.is_empty() {
            return;
        }
        let inline = |index: usize| match check_request.items.get(index).map(|item| &item.counter) {
            Some(Counter::Inline { limit, .. }) => Some(*limit),
            _ => None,
        };
        let now_ns = self.engine.clock().now_ns();
        limit_fields::write(now_ns, &self.options.fields, &outcome.answer, inline, headers);
    }
}

/// Returns `true` if denials are to have their own status: `?status=429`, or `Prefer: status=429`
/// (RFC 7240).
fn wants_status(head: &Parts) -> Result<bool, Refused> {
    let mut parameters = query::pairs(head.uri.query().unwrap_or_default());
    match (parameters.next(), parameters.next()) {
        (None, _) => {}
        (Some((name, value)), None) if *name == *b"status" && *value == *b"429" => return Ok(true),
        (Some((name, value)), None) if *name == *b"status" && *value == *b"200" => {
            return Ok(false);
        }
        _ => {
            let detail = "not understood; there are ?status=429 and ?status=200";
            return Err(Refused::invalid("?", detail));
        }
    }
    if head.headers.is_empty() {
        return Ok(false);
    }
    let preferences = head.headers.get_all(PREFER).into_iter();
    let mut preferences = preferences.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    Ok(preferences.any(|one| {
        let one = one.trim_ascii();
        one.eq_ignore_ascii_case(b"status=429") || one.eq_ignore_ascii_case(b"status=\"429\"")
    }))
}
