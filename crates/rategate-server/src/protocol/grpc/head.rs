//! The head of a call: its method, deadline and encoding, and the check that it is gRPC.

use std::time::Duration;

use rategate_protocol::grpc::{Code, Status, Timeout, is_compressed, is_grpc};

use super::status::reason;
use crate::net::{Access, RefusalReason, Right, TokenShown};
use crate::protocol::rls::RlsMethod;

/// The relevant content of a request's head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) is_post: bool,
    pub(crate) is_grpc: bool,
    /// The token that the call shows.
    pub(crate) token: TokenShown,
    pub(crate) method: Option<Method>,
    pub(crate) is_compressed: bool,
    pub(crate) timeout: Timeout,
    /// The span of the caller, unless the reader of the head enters it itself.
    #[cfg(feature = "otlp")]
    pub(crate) span: Option<crate::engine::CallerSpan>,
}

/// A callable method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// A method that decides.
    Rls(RlsMethod),
    Check,
    Watch,
    Reflect,
    StreamQuotas,
}

/// The reason why a call does not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request is not gRPC. It receives this HTTP status.
    Http(u16),
    /// The gRPC call is refused with this status.
    Grpc(Status),
}

impl Refusal {
    /// Returns the reason for which the call counts as refused, if it does.
    pub(crate) const fn reason(&self) -> Option<RefusalReason> {
        match self {
            Self::Http(_) => Some(RefusalReason::Malformed),
            Self::Grpc(status) => reason(status),
        }
    }
}

/// The full name of Envoy's rate limit service.
pub(crate) const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// The full name of Kuadrant's.
pub(crate) const KUADRANT: &str = "kuadrant.service.ratelimit.v1.RateLimitService";
/// The full name of the rate limit quota service.
pub(crate) const QUOTA_SERVICE: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";

/// The full name of the health service.
pub(crate) const HEALTH: &str = "grpc.health.v1.Health";

impl Head {
    /// Reads the head of an HTTP request.
    pub(crate) fn of(request: &http::request::Parts, access: &Access) -> Self {
        let field = |name| request.headers.get(name).map(http::HeaderValue::as_bytes);
        Self {
            is_post: request.method == http::Method::POST,
            is_grpc: field("content-type").is_some_and(is_grpc),
            token: field("authorization")
                .map_or(TokenShown::Nothing, |field| access.shown_by(field)),
            method: Method::of(request.uri.path().as_bytes()),
            is_compressed: field("grpc-encoding").is_some_and(is_compressed),
            timeout: field("grpc-timeout").map_or(Timeout::Absent, Timeout::of),
            // The code that holds all fields has entered the span already.
            #[cfg(feature = "otlp")]
            span: None,
        }
    }

    /// Returns the method, and the caller's timeout if stated. `required` is `true` if every call
    /// has to show the token.
    pub(crate) fn call(
        &self,
        access: &Access,
        required: bool,
    ) -> Result<(Method, Option<Duration>), Refusal> {
        if !self.is_post {
            return Err(Refusal::Http(405));
        }
        if !self.is_grpc {
            return Err(Refusal::Http(415));
        }
        let refused = |code, message| Err(Refusal::Grpc(Status::new(code, message)));
        let Some(method) = self.method else {
            return refused(Code::Unimplemented, "there is no such method");
        };
        // Orchestrators check the health of servers without a token.
        if access.permits(Right::Ask, self.token, required).is_err()
            && !matches!(method, Method::Check | Method::Watch)
        {
            return Err(Refusal::Grpc(Status::no_token()));
        }
        if self.is_compressed {
            let message = "messages are not compressed here: grpc-encoding has to be identity";
            return refused(Code::Unimplemented, message);
        }
        match self.timeout {
            Timeout::Nonsense => refused(Code::InvalidArgument, "grpc-timeout is no time"),
            Timeout::Of(timeout) => Ok((method, Some(timeout))),
            Timeout::Absent => Ok((method, None)),
        }
    }
}

impl Method {
    /// Returns `true` for a method that answers many messages.
    pub(crate) const fn is_conversation(self) -> bool {
        matches!(self, Self::Reflect | Self::StreamQuotas)
    }

    /// Returns the method of a path.
    pub(crate) fn of(path: &[u8]) -> Option<Self> {
        match path {
            b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
                Some(Self::Rls(RlsMethod::ShouldRateLimit))
            }
            b"/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit" => {
                Some(Self::Rls(RlsMethod::CheckRateLimit))
            }
            b"/kuadrant.service.ratelimit.v1.RateLimitService/Report" => {
                Some(Self::Rls(RlsMethod::Report))
            }
            b"/kuadrant.service.ratelimit.v1.RateLimitService/Reserve" => {
                Some(Self::Rls(RlsMethod::Reserve))
            }
            b"/kuadrant.service.ratelimit.v1.RateLimitService/Commit" => {
                Some(Self::Rls(RlsMethod::Commit))
            }
            b"/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas" => {
                Some(Self::StreamQuotas)
            }
            b"/grpc.health.v1.Health/Check" => Some(Self::Check),
            b"/grpc.health.v1.Health/Watch" => Some(Self::Watch),
            b"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => {
                Some(Self::Reflect)
            }
            _ => None,
        }
    }
}
