//! Answers requests of HTTP and gRPC listeners: gRPC by content type and path, everything else by
//! the routes of HTTP.

use std::pin::Pin;
use std::sync::Arc;

use axum::Extension;
use axum::response::{IntoResponse as _, Response};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::net::{Access, Attempts, Drain, Peer, Protocol, RefusalReason};
use crate::observe::Observe;
use crate::protocol::grpc::{Grpc, no_token};
use crate::protocol::http::{
    Api, Caller, ConnectionLimits, Guard, OriginRefusal, Refused, check_host, is_grpc,
    serve_connection, token_shown,
};

/// The services of an HTTP listener. Clones share them.
#[derive(Clone)]
pub(super) struct Web {
    services: Arc<WebServices>,
    guard: Guard,
    /// `true` if the listener serves gRPC and nothing else.
    only_grpc: bool,
}

pub(super) struct WebServices {
    pub(super) api: Api,
    pub(super) grpc: Grpc,
    pub(super) access: Access,
    pub(super) observe: Arc<Observe>,
    pub(super) limits: ConnectionLimits,
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
        mut caller: Caller,
        attempts: Attempts,
    ) -> Response {
        let access = &self.services.access;
        let shown = token_shown(access, request.headers());
        caller.rights = access.rights(shown, caller.token_required);
        let attempt = attempts.begin(shown);
        if !attempt.pause.is_zero() {
            tokio::time::sleep(attempt.pause).await;
        }
        let response = if attempt.may_proceed() {
            self.route(request, &caller).await.unwrap_or_else(Refused::into_response)
        } else if is_grpc(&request) {
            no_token()
        } else {
            Refused::Token.into_response()
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
        caller: &Caller,
    ) -> Result<Response, Refused> {
        let WebServices { api, grpc, .. } = &*self.services;
        let is_grpc = is_grpc(&request);
        if self.only_grpc && !is_grpc {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            let reason = Extension(RefusalReason::Malformed);
            return Ok((status, reason, "this listener serves gRPC\n").into_response());
        }
        if self.services.limits.are_exceeded_by(&request) {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            let too_long = || (status, Extension(RefusalReason::TooLong)).into_response();
            return Ok(grpc.too_long(&request).unwrap_or_else(too_long));
        }
        check_host(&request)?;
        if let Err(origin_refusal) = self.guard.admit(&request, caller) {
            self.services.note_origin(origin_refusal);
            return Err(origin_refusal.into());
        }
        Ok(if is_grpc {
            grpc.call(request, caller.rights).await
        } else {
            api.call(request, caller).await
        })
    }
}

impl WebServices {
    /// Records a request that a page of another site made a browser send.
    #[cold]
    fn note_origin(&self, origin_refusal: OriginRefusal) {
        match origin_refusal {
            OriginRefusal::Page => self.observe.status().other_site(),
            OriginRefusal::Name => self.observe.status().other_host(),
        }
        tracing::debug!(?origin_refusal, "a page of another site is refused");
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
            ..Caller::default()
        };
        let limits = self.services.limits;
        let attempts = peer.attempts;
        let ending = attempts.clone();
        let answer = move |request: Request<Incoming>| -> Pin<Box<dyn Future<Output = _> + Send>> {
            #[cfg(feature = "otlp")]
            let caller_context = crate::engine::caller(request.headers());
            // Boxed, because it takes some kilobytes, and hyper moves it several times.
            let answer = Box::pin(self.clone().answer(request, caller, attempts.clone()));
            #[cfg(feature = "otlp")]
            if let Some(context) = caller_context {
                return Box::pin(opentelemetry::context::FutureExt::with_context(answer, context));
            }
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
