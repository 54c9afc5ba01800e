//! Routes requests of HTTP and gRPC listeners: gRPC by content type and path, the admin API and
//! page by path, everything else to the API.

use std::sync::Arc;

use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use rategate::MonotonicClock;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::engine::Engine;
use crate::net::{Access, Attempts, Drain, Peer, Protocol, RefusalReason, Right, TokenShown};
use crate::observe::Observe;
use crate::observe::admin::{Admin, Rights};
use crate::protocol::body::{self, Body, Unread, counted, read, text, typed};
use crate::protocol::grpc::{Grpc, no_token};
use crate::protocol::http::{
    Api, Caller, ConnectionLimits, Guard, OriginRefusal, is_grpc, refuse_host, serve_connection,
    token_shown,
};
use crate::protocol::rls;

/// The services of an HTTP listener. Clones share them.
#[derive(Clone)]
pub(super) struct Web {
    services: Arc<WebServices>,
    guard: Guard,
    /// `true` if the listener serves gRPC and nothing else.
    only_grpc: bool,
}

pub(super) struct WebServices {
    pub(super) engine: Engine<MonotonicClock>,
    pub(super) api: Api<MonotonicClock>,
    pub(super) grpc: Grpc,
    pub(super) admin: Admin,
    pub(super) access: Access,
    pub(super) observe: Arc<Observe>,
    pub(super) limits: ConnectionLimits,
    pub(super) max_body_bytes: usize,
    /// The options of replies to Envoy.
    pub(super) options: rls::Options,
}

impl Web {
    pub(super) fn new(services: WebServices) -> Self {
        Self { services: Arc::new(services), guard: Guard::default(), only_grpc: false }
    }

    /// Returns these services for a listener that serves gRPC and nothing else.
    pub(super) fn only_grpc(&self) -> Self {
        Self { only_grpc: true, ..self.clone() }
    }

    /// Returns these services with a guard that keeps pages of other sites out.
    pub(super) fn behind(&self, guard: Guard) -> Self {
        Self { guard, ..self.clone() }
    }

    /// Answers a request, and counts it if it is refused.
    async fn answer(
        self,
        request: Request<Incoming>,
        caller: Caller,
        attempts: Attempts,
    ) -> Response<Body> {
        let shown = token_shown(&self.services.access, request.headers());
        let attempt = attempts.begin(shown);
        if !attempt.pause.is_zero() {
            tokio::time::sleep(attempt.pause).await;
        }
        let response = if attempt.may_proceed() {
            self.route(request, shown, caller).await
        } else if is_grpc(&request) {
            no_token()
        } else {
            refused(StatusCode::UNAUTHORIZED, "show the token\n")
        };
        let pause = attempt.end(response.extensions().get::<RefusalReason>().copied());
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        response
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        shown: TokenShown,
        caller: Caller,
    ) -> Response<Body> {
        let services = &*self.services;
        if self.only_grpc && !is_grpc(&request) {
            let response = text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "this listener serves gRPC\n");
            return counted(response, Some(RefusalReason::Malformed));
        }
        if let Some(refused) = refuse_host(&request) {
            return refused;
        }
        if let Err(origin_refusal) = self.guard.admit(&request, &caller) {
            return services.refuse_origin(origin_refusal);
        }
        if is_grpc(&request) {
            return services.grpc.call(request, shown, caller.token_required).await;
        }
        let path = request.uri().path();
        if Admin::owns(path) {
            let rights = services.rights(shown, &caller);
            return services.admin.call(request, rights).await;
        }
        if path == "/json" {
            return services.json(request, shown, caller).await;
        }
        services.api.call(request, &caller).await
    }
}

impl WebServices {
    /// Refuses a request that a page of another site made a browser send.
    #[cold]
    fn refuse_origin(&self, origin_refusal: OriginRefusal) -> Response<Body> {
        match origin_refusal {
            OriginRefusal::Page => self.observe.status().other_site(),
            OriginRefusal::Name => self.observe.status().other_host(),
        }
        tracing::debug!(?origin_refusal, "a page of another site is refused");
        origin_refusal.response()
    }

    /// Returns the rights of a call to the admin API.
    fn rights(&self, shown: TokenShown, caller: &Caller) -> Rights {
        let may = |right| self.access.permits(right, shown, caller.token_required).is_ok();
        Rights { read: may(Right::Ask), simulate: may(Right::Admin) }
    }

    /// Answers Envoy's request as JSON.
    async fn json(
        &self,
        request: Request<Incoming>,
        shown: TokenShown,
        caller: Caller,
    ) -> Response<Body> {
        if request.method() != Method::POST {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "use POST\n");
            response.headers_mut().insert("allow", HeaderValue::from_static("POST"));
            return counted(response, Some(RefusalReason::NotServed));
        }
        let may = |right| self.access.permits(right, shown, caller.token_required).is_ok();
        if !may(Right::Ask) {
            return refused(StatusCode::UNAUTHORIZED, "show the token\n");
        }
        let may_credit = may(Right::Credit);
        let answer = match read(request.into_body(), self.max_body_bytes, body::WITHIN).await {
            Ok(body) => rls::json(&body, &self.engine, &self.options, may_credit).await,
            Err(Unread::TooLong) => rls::too_long(&self.options),
            Err(Unread::TooSlow | Unread::BrokenOff) => {
                return refused(StatusCode::BAD_REQUEST, "the body is incomplete, or late\n");
            }
        };
        let status = StatusCode::from_u16(answer.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let response = if matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED) {
            refused(status, answer.body)
        } else {
            let mut response = typed("application/json", answer.body);
            *response.status_mut() = status;
            response
        };
        counted(response, answer.refusal)
    }
}

impl Protocol for Web {
    async fn serve<S>(self, stream: S, peer: Peer, drain: Drain)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let caller = Caller {
            address: peer.address.map(|address| address.ip()),
            token_required: peer.token_required,
        };
        let limits = self.services.limits;
        let attempts = peer.attempts;
        let ending = attempts.clone();
        let answer = move |request: Request<Incoming>| {
            #[cfg(feature = "otlp")]
            let span = crate::engine::CallerSpan::of(request.headers());
            let answer = self.clone().answer(request, caller, attempts.clone());
            #[cfg(feature = "otlp")]
            let answer = crate::engine::within(span, answer);
            answer
        };
        let end = async {
            tokio::select! {
                () = drain.begun() => {}
                () = ending.over() => {}
            }
        };
        if let Some(reason) = serve_connection(stream, limits, end, answer).await {
            ending.refused(reason);
        }
    }

    fn capacity_rejection(&self) -> &'static [u8] {
        b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
          content-length: 0\r\n\r\n"
    }
}

/// Builds the response to a call that is malformed or not permitted.
fn refused(status: StatusCode, why: impl Into<Body>) -> Response<Body> {
    let mut response = text(status, why);
    let reason = if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        RefusalReason::NoToken
    } else {
        RefusalReason::Malformed
    };
    counted(response, Some(reason))
}
