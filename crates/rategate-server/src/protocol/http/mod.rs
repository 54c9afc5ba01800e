//! The HTTP API: JSON requests, requests of proxies, health and the API's description.
//!
//! - `POST /v1/check` decides rules by name or by descriptor, and limits that come with the call.
//! - `/v1/auth` decides for a proxy, which evaluates only the status.
//! - `GET /healthz` reports that the process runs, `GET /readyz` that it accepts calls.
//! - `GET /openapi.json` describes this API for programs.

mod answered;
mod auth;
mod check_item;
mod check_request;
mod check_verb;
mod connection;
mod decide;
mod guard;
mod host;
mod inline_limit;
mod invalid;
mod json;
mod limit_fields;
mod options;
mod problem;
pub(crate) mod query;
mod surrogates;
mod watched;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Body as HttpBody;
use rategate::{Clock, MonotonicClock};

use self::auth::AuthRequest;
use self::check_item::Counter;
use self::check_request::CheckRequest;
pub(crate) use self::connection::is_grpc;
pub use self::connection::{ConnectionLimits, serve_connection};
pub use self::guard::{Guard, OriginRefusal};
pub(crate) use self::host::refuse as refuse_host;
pub use self::options::{IsReady, Options, Proxies};
use self::problem::Refused;
use super::body::{Body, counted, read, text, typed};
use crate::engine::{Answer, Engine, EngineError};
use crate::net::{Access, Right, TokenShown};

/// The sender of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The peer's address; `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// `true` if every request needs the token, and not only those that change something.
    pub token_required: bool,
}

/// The HTTP API. Clones share it.
pub struct Api<C: Clock = MonotonicClock> {
    engine: Engine<C>,
    options: Arc<Options>,
}

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
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

impl<C: Clock + Clone + 'static> Api<C> {
    /// Creates the API over an engine.
    #[must_use]
    pub fn new(engine: Engine<C>, options: Options) -> Self {
        Self { engine, options: Arc::new(options) }
    }

    /// Answers a request. An invalid request receives a problem (RFC 9457), so there is always a
    /// response.
    pub async fn call<B>(&self, request: Request<B>, caller: &Caller) -> Response<Body>
    where
        B: HttpBody<Data = Bytes>,
    {
        let (head, body) = request.into_parts();
        let response = match head.uri.path() {
            "/v1/check" => self.check(&head, body, caller).await,
            "/v1/auth" => self.auth(&head, caller).await,
            "/healthz" | "/health" => get(&head, || text(StatusCode::OK, "OK")),
            "/healthcheck" => self.readiness(&head, "OK", StatusCode::INTERNAL_SERVER_ERROR),
            "/readyz" => self.readiness(&head, "ready", StatusCode::SERVICE_UNAVAILABLE),
            "/openapi.json" => get(&head, || with_type(OPENAPI.clone())),
            _ => Err(Refused::NotFound),
        };
        response.unwrap_or_else(|refused| refused.response())
    }

    /// Answers `ready` if the service is ready for calls, and `unready` with its own text if not.
    fn readiness(&self, head: &Parts, ready: &'static str, unready: StatusCode) -> Answered {
        let is_ready = || (self.options.ready)();
        get(
            head,
            || if is_ready() { text(StatusCode::OK, ready) } else { text(unready, "not ready") },
        )
    }

    async fn check<B>(&self, head: &Parts, body: B, caller: &Caller) -> Answered
    where
        B: HttpBody<Data = Bytes>,
    {
        self.post(head, caller)?;
        let wants_status = wants_status(head)?;
        let body = self.read(body).await?;
        let mut mended = Vec::new();
        let check_request = surrogates::read(&body, &mut mended, CheckRequest::read)?;
        self.options.admit(&head.headers, check_request.verb.right(), caller.token_required)?;
        let outcome = self.decide(&check_request).await?;
        let mut response = if wants_status && outcome.is_denial() {
            limit_fields::denied(&outcome.answer, StatusCode::TOO_MANY_REQUESTS)
        } else {
            with_type(answered::json(&outcome, self.engine.clock().now_ns()))
        };
        if wants_status {
            let applied = HeaderValue::from_static("status=429");
            response.headers_mut().insert(PREFERENCE_APPLIED, applied);
            self.write_limit_fields(&outcome, &check_request, response.headers_mut());
        }
        Ok(counted(response, outcome.answer.refusal()))
    }

    async fn auth(&self, head: &Parts, caller: &Caller) -> Answered {
        self.options.admit(&head.headers, Right::Ask, caller.token_required)?;
        let client = || self.options.proxies.name(caller.address, &head.headers);
        let AuthRequest { check_request, deny, pass } =
            AuthRequest::read(&head.uri, &head.headers, client)?;
        let outcome = match self.decide(&check_request).await {
            // Proxies let calls pass that get an error in place of a decision.
            Err(Refused::EngineError(fault @ EngineError::TooManyReservations { .. }, _)) => {
                let reason = fault.refusal();
                let answer = Answer::or_denied(Err(fault), 1);
                let answer = answer.map_err(|fault| Refused::EngineError(fault, String::new()))?;
                return Ok(counted(limit_fields::denied(&answer, deny), Some(reason)));
            }
            outcome => outcome?,
        };
        let mut response = if outcome.answer.allowed {
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = pass;
            response
        } else {
            limit_fields::denied(&outcome.answer, deny)
        };
        self.write_limit_fields(&outcome, &check_request, response.headers_mut());
        Ok(counted(response, outcome.answer.refusal()))
    }

    fn write_limit_fields(
        &self,
        outcome: &decide::Outcome,
        check_request: &CheckRequest<'_>,
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

    /// Checks that a request uses `POST` and is permitted.
    fn post(&self, head: &Parts, caller: &Caller) -> Result<(), Refused> {
        if head.method != Method::POST {
            return Err(Refused::Method("POST"));
        }
        self.options.admit(&head.headers, Right::Ask, caller.token_required)
    }

    async fn read<B>(&self, body: B) -> Result<Bytes, Refused>
    where
        B: HttpBody<Data = Bytes>,
    {
        let max = self.options.max_body_bytes;
        let bytes = read(body, max, self.options.body_within).await;
        bytes.map_err(|why| Refused::Unread(why, max))
    }
}

/// A response, or a refusal that becomes one.
type Answered = Result<Response<Body>, Refused>;

fn get(head: &Parts, answer: impl FnOnce() -> Response<Body>) -> Answered {
    match head.method {
        Method::GET | Method::HEAD => Ok(answer()),
        _ => Err(Refused::Method("GET, HEAD")),
    }
}

fn with_type(json: Bytes) -> Response<Body> {
    typed("application/json", json)
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
            return Err(invalid::Invalid::at("?", detail).into());
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

/// Returns the token that the single `Authorization` field shows.
pub(crate) fn token_shown(access: &Access, headers: &HeaderMap) -> TokenShown {
    let mut values = headers.get_all(AUTHORIZATION).into_iter();
    match (values.next(), values.next()) {
        (None, _) => TokenShown::Nothing,
        (Some(value), None) => access.shown_by(value.as_bytes()),
        _ => TokenShown::Invalid,
    }
}

impl<C: Clock> Clone for Api<C> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), options: Arc::clone(&self.options) }
    }
}

impl<C: Clock> fmt::Debug for Api<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("options", &self.options).finish_non_exhaustive()
    }
}
