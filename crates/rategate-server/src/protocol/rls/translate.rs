//! Translation of Envoy's requests into requests to the engine.

use std::pin::Pin;

use rategate::Clock;
use rategate_protocol::rls::{MalformedRequest, Metadata, RlsRequest};
use smallvec::SmallVec;

use super::metadata;
use super::reply::Options;
use crate::engine::{
    Answer, Decided, Engine, EngineError, Item, QuotaTerms, Quotas, Request, Target, Verb,
};
use crate::net::RefusalReason;

/// A decider of requests: the engine, or a stand-in for tests.
pub trait Decide {
    /// Decides a request.
    fn decide(&self, request: &Request<'_>) -> Decided;

    /// Returns `true` if denied requests count in the limits where they would fit.
    fn counts_denied(&self) -> bool {
        false
    }

    /// Begins the assignments of a stream for a domain, if any are made.
    fn quotas(&self, _domain: &str, _terms: QuotaTerms) -> Option<Box<dyn Quotas>> {
        None
    }
}

impl<C: Clock + Clone + 'static> Decide for Engine<C> {
    fn decide(&self, request: &Request<'_>) -> Decided {
        Self::decide(self, request)
    }

    fn counts_denied(&self) -> bool {
        self.settings().count_denied
    }

    fn quotas(&self, domain: &str, terms: QuotaTerms) -> Option<Box<dyn Quotas>> {
        Some(Self::quotas(self, domain, terms))
    }
}

/// The reason why a request has no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RlsError {
    /// The request is invalid.
    #[error("{0}")]
    MalformedRequest(#[from] MalformedRequest),
    /// The engine cannot decide it.
    #[error("{0}")]
    EngineError(#[from] EngineError),
}

impl RlsError {
    /// Returns the reason for which the call counts as refused.
    pub(crate) const fn refusal(&self) -> RefusalReason {
        match self {
            Self::MalformedRequest(_) => RefusalReason::Malformed,
            Self::EngineError(_) => RefusalReason::EngineError,
        }
    }
}

/// An answer of the engine with the dynamic metadata of its reply.
#[derive(Debug)]
pub(crate) struct RlsAnswer {
    pub(crate) answer: Answer,
    pub(super) metadata: Option<Metadata>,
}

/// An answer that arrives after a store has replied.
pub(crate) type LaterAnswer = Pin<Box<dyn Future<Output = Result<RlsAnswer, RlsError>> + Send>>;

impl RlsAnswer {
    /// Creates an answer to a request, of which the reply states `requested`.
    pub(crate) fn new(answer: Answer, requested: Option<Metadata>) -> Self {
        let metadata = requested.map(|mut metadata| {
            metadata::add_rules(&mut metadata, &answer);
            metadata
        });
        Self { answer, metadata }
    }

    /// Creates the denial of a request that is not read.
    pub(crate) fn unread() -> Self {
        Self::new(Answer::uncounted_denial(), None)
    }
}

/// Submits a request to the engine. The parts of the reply match the descriptors, in their order.
///
/// # Errors
///
/// [`RlsError::MalformedRequest`] at once. Errors of the engine are in [`Decided`].
pub fn ask(
    engine: &impl Decide,
    ask: &RlsRequest<'_>,
    options: &Options,
) -> Result<Decided, MalformedRequest> {
    if ask.domain.is_empty() {
        return Err(MalformedRequest::NoDomain);
    }
    if ask.descriptors.is_empty() {
        return Err(MalformedRequest::NoDescriptors);
    }
    let items: SmallVec<[Item<'_>; 2]> = items(ask, options.quota).collect();
    Ok(engine.decide(&Request {
        verb: Verb::Take,
        items: &items,
        counts_denied: engine.counts_denied(),
    }))
}

fn items<'a>(ask: &'a RlsRequest<'_>, quota: bool) -> impl Iterator<Item = Item<'a>> {
    let hits = u64::from(ask.hits.max(1));
    ask.descriptors.iter().map(move |descriptor| Item {
        target: Target::Descriptor {
            domain: ask.domain,
            entries: &descriptor.entries,
            limit: descriptor.limit,
        },
        permits: descriptor.hits.unwrap_or(hits),
        refund: descriptor.refund,
        quota,
    })
}

/// Waits for the decision, which a store may delay. The reply states `requested`.
///
/// # Errors
///
/// [`RlsError`].
pub(crate) async fn answered(
    decided: Decided,
    requested: Option<Metadata>,
) -> Result<RlsAnswer, RlsError> {
    Ok(RlsAnswer::new(or_denied(decided.answer().await)?, requested))
}

/// Denies a request that a full table cannot count, without a status for each descriptor.
pub(crate) fn or_denied(answer: Result<Answer, EngineError>) -> Result<Answer, EngineError> {
    Answer::or_denied(answer, 0)
}
