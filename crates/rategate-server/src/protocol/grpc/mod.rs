//! gRPC: Envoy's rate limit service, and health checks (`grpc.health.v1`), by tonic.

mod health;
mod status;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::{IntoResponse as _, Response};
use axum::{BoxError, Extension};
use http::header::CONTENT_TYPE;
use http::{Method, Request};
use tonic::codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride};
use tonic::codegen::{Service as _, tokio_stream};
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tonic_prost::ProstCodec;

pub use self::health::Health;
use self::status::reason;
use crate::messages::rls::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer, SERVICE_NAME,
};
use crate::messages::rls::{RateLimitRequest, RateLimitResponse};
use crate::net::{RefusalReason, Right, Rights};
use crate::protocol::rls::{self, Decide, Options, RlsAnswer, RlsRequest};

/// The bounds of calls.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The maximum length of a message, in bytes.
    pub max_message_bytes: usize,
    /// The longest time from a call's head to the head of its reply.
    pub max_wait: Duration,
    /// The options of replies.
    pub options: Options,
}

/// The gRPC services. Clones share them.
#[derive(Clone)]
pub struct Grpc(Arc<Services>);

struct Services {
    engine: Box<dyn Decide + Send + Sync>,
    health: HealthServer<HealthService>,
    settings: Settings,
}

/// A call of Envoy's rate limit service.
struct RlsCall {
    services: Arc<Services>,
    may_credit: bool,
    /// The reason for which it counts as refused.
    refusal: OnceLock<RefusalReason>,
}

fn is_of_rls<B>(request: &Request<B>) -> bool {
    request.uri().path().strip_prefix('/').is_some_and(|path| path.starts_with(SERVICE_NAME))
}

impl Grpc {
    /// Creates the services over an engine.
    pub fn new<D>(engine: D, health: &Health, settings: Settings) -> Self
    where
        D: Decide + Send + Sync + 'static,
    {
        let health = health.server(settings.max_message_bytes);
        Self(Arc::new(Services { engine: Box::new(engine), health, settings }))
    }

    /// Answers a request of a caller with these rights.
    ///
    /// Dropping the future cancels the call. Nothing is taken then unless the message was
    /// complete.
    pub async fn call<B>(&self, request: Request<B>, rights: Rights) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError> + Send,
    {
        if request.method() != Method::POST {
            return refused(Status::unimplemented("gRPC is called by POST"));
        }
        let path = request.uri().path();
        // Orchestrators check the health of servers without a token.
        if !rights.has(Right::Ask) && !health::is_method(path) {
            return no_token();
        }
        // The two services are told apart here and not by a router, which boxes bodies and
        // replies once more. Each of them refuses the methods that it does not have.
        let is_of_rls = is_of_rls(&request);
        let call = Arc::new(RlsCall {
            services: Arc::clone(&self.0),
            may_credit: rights.has(Right::Credit),
            refusal: OnceLock::new(),
        });
        let Settings { max_message_bytes, max_wait, .. } = self.0.settings;
        let response = if is_of_rls {
            RateLimitServiceServer::from_arc(Arc::clone(&call))
                .max_decoding_message_size(max_message_bytes)
                .call(request)
        } else {
            self.0.health.clone().call(request)
        };
        let Ok(Ok(response)) = tokio::time::timeout(max_wait, response).await else {
            return refused(Status::deadline_exceeded("the call took too long"));
        };
        let status = Status::from_header_map(response.headers());
        if is_of_rls && status.as_ref().is_some_and(|it| it.code() == Code::OutOfRange) {
            return self.denied();
        }
        let reason = call.refusal.get().copied().or_else(|| reason(status?.code()));
        (reason.map(Extension), response.map(Body::new)).into_response()
    }

    /// Denies a request that is too long, if it asks for a limit: proxies copy header fields of
    /// their clients into it, and let calls pass on errors.
    pub(crate) fn too_long<B>(&self, request: &Request<B>) -> Option<Response> {
        is_of_rls(request).then(|| self.denied())
    }

    fn denied(&self) -> Response {
        let denial = rls::response(&RlsAnswer::unread(), &self.0.settings.options);
        let codec = &mut ProstCodec::<RateLimitResponse, RateLimitRequest>::default();
        let message = EncodeBody::new_server(
            codec.encoder(),
            tokio_stream::once(Ok(denial)),
            None,
            SingleMessageCompressionOverride::default(),
            None,
        );
        let kind = [(CONTENT_TYPE, tonic::metadata::GRPC_CONTENT_TYPE)];
        (Extension(RefusalReason::TooLong), kind, Body::new(message)).into_response()
    }
}

#[tonic::async_trait]
impl RateLimitService for RlsCall {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let Services { engine, settings: Settings { options, .. }, .. } = &*self.services;
        let question = RlsRequest::of(request.get_ref());
        let answer = rls::answer(&**engine, question, options, self.may_credit).await;
        let refusal = match &answer {
            Ok(answer) => answer.refusal(),
            Err(error) => Some(error.refusal()),
        };
        if let Some(reason) = refusal {
            // A call is answered once.
            let _ = self.refusal.set(reason);
        }
        Ok(tonic::Response::new(rls::response(&answer?, options)))
    }
}

/// Builds the response to a call that does not show the token.
pub(crate) fn no_token() -> Response {
    refused(Status::unauthenticated("a token is needed: authorization: Bearer ..."))
}

fn refused(status: Status) -> Response {
    (reason(status.code()).map(Extension), status.into_http::<Body>()).into_response()
}

impl fmt::Debug for Grpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grpc").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl Default for Settings {
    /// Returns bounds of 64 KiB for a message, and 10 s for a call.
    fn default() -> Self {
        Self {
            max_message_bytes: 64 << 10,
            max_wait: Duration::from_secs(10),
            options: Options::default(),
        }
    }
}
