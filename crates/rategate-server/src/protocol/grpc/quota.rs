//! Streams of Envoy's quota service: reports in, assignments out.
//!
//! A session reads no socket and sets no timer. Both drivers pass it what arrived, ask when it is
//! due without an arrival, and send its replies.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rategate_protocol::grpc::{self, Code, Status, prefixed};
use rategate_protocol::rlqs::{UsageReport, put_action};

use super::Rls;
use crate::engine::{EngineError, Quotas};
use crate::protocol::rls::Decide;

/// The session of one stream.
#[derive(Default)]
pub(super) struct QuotaSession {
    /// The domain and its assignments, once the first report has named it.
    begun: Option<(Box<str>, Box<dyn Quotas>)>,
}

/// The reply to a report.
pub(super) struct QuotaReply {
    /// The framed message; empty if nothing is due.
    pub(super) bytes: Bytes,
    /// `true` if a bucket found no capacity.
    pub(super) lacks_capacity: bool,
}

impl QuotaSession {
    /// Returns `true` once a report has named the domain.
    pub(super) const fn is_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Returns the time until a reply may be due, even if nothing arrives.
    pub(super) fn wait(&self) -> Duration {
        self.begun.as_ref().map_or(Duration::MAX, |(_, quotas)| quotas.wait())
    }

    /// Returns the reply to the first message of `bytes`, if the message is complete.
    pub(super) fn next<D: Decide>(
        &mut self,
        rls: &Rls<D>,
        bytes: &mut BytesMut,
    ) -> Result<Option<QuotaReply>, Status> {
        match grpc::length(bytes, rls.inner.settings.max_message_bytes)? {
            Some(length) if length <= bytes.len() => {
                let message = bytes.split_to(length);
                self.answer(rls, message.get(grpc::PREFIX..).unwrap_or_default()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Returns what is due without a report: a framed message, or nothing.
    pub(super) fn due(&mut self) -> Result<Bytes, Status> {
        let Some((_, quotas)) = &mut self.begun else { return Ok(Bytes::new()) };
        Ok(actions_of(&mut **quotas)?)
    }

    fn answer<D: Decide>(&mut self, rls: &Rls<D>, message: &[u8]) -> Result<QuotaReply, Status> {
        let report = UsageReport::read(message)?;
        let (domain, quotas) = match &mut self.begun {
            Some(begun) => begun,
            begun => {
                if report.domain.is_empty() {
                    let why = "the first report of a stream has to name a domain";
                    return Err(Status::new(Code::InvalidArgument, why));
                }
                let quotas = rls.inner.engine.quotas(report.domain, rls.inner.settings.quota);
                let none = || Status::new(Code::Unimplemented, "nothing is assigned here");
                begun.insert((report.domain.into(), quotas.ok_or_else(none)?))
            }
        };
        if !report.domain.is_empty() && report.domain != &**domain {
            let why = "a stream has one domain: reports of another need a stream of their own";
            return Err(Status::new(Code::InvalidArgument, why));
        }
        let mut lacks_capacity = false;
        for usage in &report.usages {
            lacks_capacity |= !quotas.report(&usage.bucket, usage.allowed, usage.denied)?;
        }
        Ok(QuotaReply { bytes: actions_of(&mut **quotas)?, lacks_capacity })
    }
}

/// Returns all actions that are due as a framed message, or nothing.
fn actions_of(quotas: &mut dyn Quotas) -> Result<Bytes, EngineError> {
    let mut actions = BytesMut::new();
    quotas.actions(&mut |bucket, action| {
        put_action(&mut actions, bucket.iter().copied(), action);
    })?;
    let mut out = BytesMut::new();
    if !actions.is_empty() {
        prefixed(&mut out, |out| out.extend_from_slice(&actions));
    }
    Ok(out.freeze())
}

impl std::fmt::Debug for QuotaSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let domain = self.begun.as_ref().map(|(domain, _)| domain);
        f.debug_struct("QuotaSession").field("domain", &domain).finish_non_exhaustive()
    }
}
