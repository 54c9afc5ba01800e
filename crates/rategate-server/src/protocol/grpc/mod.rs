//! gRPC: Envoy's rate limit service, health (`grpc.health.v1`) and reflection.
//!
//! A call's head says what is called (`head`), its bytes are messages (`frame`), and how it ends is a `status`. Two drivers
//! carry that: [`Rls::call`] answers requests of a listener that speaks HTTP/1.1 and HTTP/2 for others too, and
//! [`Rls::serve`] owns the connections of a listener that is for gRPC alone, with an HTTP/2 of its own
//! (`http2`) that does without all that such calls never need.

mod body;
mod frame;
mod head;
mod health;
mod http2;
mod reflection;
mod service;
mod status;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;

pub use self::body::Body;
use self::frame::BadFrame;
use self::head::Method;
pub use self::head::is_grpc;
pub use self::health::Health;
pub(crate) use self::service::no_token;
use self::status::Status;
use crate::engine::{Answer, Decided};
use crate::net::{Access, RefusalReason, Right, TokenShown};
use crate::protocol::rls::{self, Ask, Decide, Options, Wrong};

/// Bounds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest message, in bytes.
    pub most_message: usize,
    /// How long a call's message may take to come, where the caller says nothing shorter.
    pub most_wait: Duration,
    /// The most calls at once of one connection.
    pub most_streams: u32,
    /// The most that the fields of a head may count together, as HTTP/2 counts them.
    pub most_head: usize,
    /// What answers tell besides.
    pub options: Options,
}

/// The services. Clones are of the same.
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
    /// Services that ask an engine.
    pub fn new(engine: D, access: Access, health: Health, settings: Settings) -> Self {
        Self { inner: Arc::new(Inner { engine, access, health, settings }) }
    }

    /// Whether a call that shows the token so may give permits back.
    fn may_credit(&self, token: TokenShown, token_required: bool) -> bool {
        self.inner.access.permits(Right::Credit, token, token_required).is_ok()
    }

    /// Answers the only message of a call: at once if it can. Returns the reason for which the call counts as refused, if it does.
    fn unary(
        &self,
        method: Method,
        may_credit: bool,
        message: &[u8],
        out: &mut BytesMut,
    ) -> Result<Option<RefusalReason>, Unary> {
        if method == Method::Check {
            let checked = self.inner.health.check(message, out);
            return checked.map(|()| None).map_err(Unary::Failed);
        }
        let ask = Ask::read(message);
        if matches!(ask, Err(Wrong::TooMany { .. })) {
            self.write(&Answer::uncounted_denial(), out);
            return Ok(Some(RefusalReason::TooLong));
        }
        if !may_credit && ask.as_ref().is_ok_and(Ask::credits) {
            return Err(Unary::Failed(Status::no_token()));
        }
        let decided = ask.and_then(|ask| rls::ask(&self.inner.engine, &ask));
        match decided.map_err(|wrong| Unary::Failed(wrong.into()))? {
            Decided::Now(answer) => {
                let answer = rls::or_denied(answer);
                let answer = answer.map_err(|fault| Unary::Failed(fault.into()))?;
                self.write(&answer, out);
                Ok(answer.refusal())
            }
            later @ Decided::Later(_) => Err(Unary::Later(later)),
        }
    }

    /// Answers a call whose bytes are no message. A question that is too long is denied: proxies put header fields of their clients
    /// there, and let pass what they get an error for.
    fn bad_frame(&self, method: Method, bad: BadFrame, out: &mut BytesMut) -> Result<(), Status> {
        let is_too_long = matches!(bad, BadFrame::TooLong { .. } | BadFrame::LongHead { .. });
        if method != Method::ShouldRateLimit || !is_too_long {
            return Err(bad.into());
        }
        self.write(&Answer::uncounted_denial(), out);
        Ok(())
    }

    fn write(&self, answer: &Answer, out: &mut BytesMut) {
        rls::write_framed(answer, self.inner.settings.options, out);
    }
}

/// Why a call has no answer at once.
#[derive(Debug)]
enum Unary {
    /// It never has one.
    Failed(Status),
    /// A store is asked.
    Later(Decided),
}

impl Default for Settings {
    /// Messages of 64 KiB, which come within 10 s; 256 calls at once, with heads of 16 KiB.
    fn default() -> Self {
        Self {
            most_message: 64 << 10,
            most_wait: Duration::from_secs(10),
            most_streams: 256,
            most_head: 16 << 10,
            options: Options::default(),
        }
    }
}

impl<D> Clone for Rls<D> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}
