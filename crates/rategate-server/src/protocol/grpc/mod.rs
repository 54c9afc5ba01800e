//! gRPC: Envoy's rate limit service and its quota service, Kuadrant's, health (`grpc.health.v1`)
//! and reflection.
//!
//! A call consists of its head (`head`), messages and a final `status`. Two drivers
//! carry calls. [`Rls::call`] answers requests of a listener that serves HTTP/1.1 and HTTP/2 for
//! other services, too. [`Rls::serve`] owns the connections of a listener for gRPC only, with its
//! own minimal HTTP/2 (`http2`).

mod head;
mod health;
mod http2;
mod quota;
mod reflection;
mod service;
mod status;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rategate_protocol::grpc::{BadFrame, Code, Status};

use self::head::Method;
pub use self::health::Health;
pub(crate) use self::service::no_token;
use self::status::Failure;
use crate::engine::QuotaTerms;
use crate::net::{Access, RefusalReason, Right, TokenShown};
use crate::protocol::rls::{self, Decide, LaterAnswer, Options, RlsAnswer, RlsDecided};

/// The bounds of calls.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The maximum length of a message, in bytes.
    pub max_message_bytes: usize,
    /// The longest time that a call's message may take to arrive, unless the caller states a
    /// shorter one.
    pub max_wait: Duration,
    /// The maximum number of concurrent calls of one connection.
    pub max_streams: u32,
    /// The maximum size of a head's fields, as HTTP/2 counts it.
    pub max_head_bytes: usize,
    /// The times of assignments.
    pub quota: QuotaTerms,
    /// The options of replies.
    pub options: Options,
}

/// The gRPC services. Clones share them.
#[derive(Debug)]
pub struct Rls<D> {
    inner: Arc<Inner<D>>,
}

#[derive(Debug)]
struct Inner<D> {
    engine: D,
    access: Access,
    health: Health,
    settings: Settings,
}

impl<D: Decide> Rls<D> {
    /// Creates the services over an engine.
    pub fn new(engine: D, access: Access, health: Health, settings: Settings) -> Self {
        Self { inner: Arc::new(Inner { engine, access, health, settings }) }
    }

    /// Returns `true` if a call that shows the token as `token` may credit permits.
    fn may_credit(&self, token: TokenShown, token_required: bool) -> bool {
        self.inner.access.permits(Right::Credit, token, token_required).is_ok()
    }

    /// Answers the only message of a call, at once if possible. Returns the reason for which the
    /// call counts as refused, if it does.
    fn unary(
        &self,
        method: Method,
        may_credit: bool,
        message: &[u8],
        out: &mut BytesMut,
    ) -> Result<Option<RefusalReason>, Unary> {
        if method == Method::Check {
            let checked = self.inner.health.check(message, out);
            return checked.map(|()| None).map_err(|status| Unary::Failed(status.into()));
        }
        let Method::Rls(method) = method else {
            let status = Status::new(Code::Unimplemented, "the method has no single reply");
            return Err(Unary::Failed(status.into()));
        };
        let options = &self.inner.settings.options;
        match method.answer(&self.inner.engine, message, options, may_credit) {
            Ok(RlsDecided::Now(answer)) => {
                self.write(&answer, out);
                Ok(answer.refusal())
            }
            Ok(RlsDecided::Later(later)) => Err(Unary::Later(later)),
            Err(error) => Err(Unary::Failed(error.into())),
        }
    }

    /// Answers a call whose bytes are not a message. A request over the size limit is denied:
    /// proxies copy header fields of their clients into it, and let calls pass on errors.
    fn bad_frame(&self, method: Method, bad: BadFrame, out: &mut BytesMut) -> Result<(), Status> {
        let is_too_long = matches!(bad, BadFrame::TooLong { .. } | BadFrame::LongHead { .. });
        let unread = match method {
            Method::Rls(method) if is_too_long => method.unread(),
            _ => None,
        };
        match unread {
            Some(denial) => {
                self.write(&denial, out);
                Ok(())
            }
            None => Err(bad.into()),
        }
    }

    fn write(&self, answer: &RlsAnswer, out: &mut BytesMut) {
        rls::write_framed(answer, &self.inner.settings.options, out);
    }
}

/// The reason why a call has no reply at once.
enum Unary {
    /// The call fails.
    Failed(Failure),
    /// The decision waits for a store.
    Later(LaterAnswer),
}

impl Default for Settings {
    /// Returns bounds of 64 KiB for a message, 10 s for its arrival, 256 concurrent calls, and
    /// 16 KiB for a head, and the default times of assignments.
    fn default() -> Self {
        Self {
            max_message_bytes: 64 << 10,
            max_wait: Duration::from_secs(10),
            max_streams: 256,
            max_head_bytes: 16 << 10,
            quota: QuotaTerms::default(),
            options: Options::default(),
        }
    }
}

impl<D> Clone for Rls<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}
