//! `POST /json`: Envoy's request as JSON, answered as `envoyproxy/ratelimit` does.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use rategate::Clock;

use super::body::{WITHIN, read};
use super::caller::Caller;
use super::refused::Refused;
use crate::engine::Engine;
use crate::net::Right;
use crate::protocol::rls::{self, JsonAnswer, Options};

struct Envoy<C: Clock> {
    engine: Engine<C>,
    options: Options,
    max_body_bytes: usize,
}

/// Returns the route.
pub(crate) fn envoy_routes<C: Clock + Clone + 'static>(
    engine: Engine<C>,
    options: Options,
    max_body_bytes: usize,
) -> Router {
    let envoy = Envoy { engine, options, max_body_bytes };
    Router::new().route("/json", post(json::<C>)).with_state(Arc::new(envoy))
}

async fn json<C: Clock + Clone + 'static>(
    State(envoy): State<Arc<Envoy<C>>>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, Refused> {
    caller.needs(Right::Ask)?;
    let Envoy { engine, options, max_body_bytes } = &*envoy;
    let answer = match read(body, *max_body_bytes, WITHIN).await {
        Ok(body) => rls::json(&body, engine, options, caller.rights.has(Right::Credit)).await,
        Err(Refused::TooLong(_)) => rls::too_long(options),
        Err(refused) => return Err(refused),
    };
    let JsonAnswer { status, body, refusal } = answer;
    let (status, kind) = match status {
        401 => return Err(Refused::Token),
        400 => (StatusCode::BAD_REQUEST, "text/plain; charset=utf-8"),
        429 => (StatusCode::TOO_MANY_REQUESTS, "application/json"),
        _ => (StatusCode::OK, "application/json"),
    };
    Ok((status, [(CONTENT_TYPE, kind)], refusal.map(Extension), body).into_response())
}
