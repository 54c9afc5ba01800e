//! Translation of Envoy's requests into requests to the engine.

use rategate::Clock;
use rategate_protocol::rls::{MalformedRequest, RlsRequest};
use smallvec::SmallVec;

use crate::engine::{Answer, Decided, Engine, EngineError, Item, Request, Target, Verb};
use crate::net::RefusalReason;

/// A decider of requests: the engine, or a stand-in for tests.
pub trait Decide {
    /// Decides a request.
    fn decide(&self, request: &Request<'_>) -> Decided;

    /// Returns `true` if denied requests count in the limits where they would fit.
    fn counts_denied(&self) -> bool {
        false
    }
}

impl<C: Clock + Clone + 'static> Decide for Engine<C> {
    fn decide(&self, request: &Request<'_>) -> Decided {
        Self::decide(self, request)
    }

    fn counts_denied(&self) -> bool {
        self.settings().count_denied
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

/// Submits a request to the engine. The parts of the reply match the descriptors, in their order.
///
/// # Errors
///
/// [`RlsError::MalformedRequest`] at once. Errors of the engine are in [`Decided`].
pub fn ask(engine: &impl Decide, ask: &RlsRequest<'_>) -> Result<Decided, MalformedRequest> {
    if ask.domain.is_empty() {
        return Err(MalformedRequest::NoDomain);
    }
    if ask.descriptors.is_empty() {
        return Err(MalformedRequest::NoDescriptors);
    }
    let items: SmallVec<[Item<'_>; 2]> = items(ask).collect();
    Ok(engine.decide(&Request {
        verb: Verb::Take,
        items: &items,
        counts_denied: engine.counts_denied(),
    }))
}

fn items<'a>(ask: &'a RlsRequest<'_>) -> impl Iterator<Item = Item<'a>> {
    let hits = u64::from(ask.hits.max(1));
    ask.descriptors.iter().map(move |descriptor| Item {
        target: Target::Descriptor {
            domain: ask.domain,
            entries: &descriptor.entries,
            limit: descriptor.limit,
        },
        permits: descriptor.hits.unwrap_or(hits),
        refund: descriptor.refund,
        quota: false,
    })
}

/// Waits for the decision, which a store may delay.
///
/// # Errors
///
/// [`RlsError`].
pub(crate) async fn answered(
    decided: Result<Decided, MalformedRequest>,
) -> Result<Answer, RlsError> {
    Ok(or_denied(decided?.answer().await)?)
}

/// Denies a request that a full table cannot count, without a status for each descriptor.
pub(crate) fn or_denied(answer: Result<Answer, EngineError>) -> Result<Answer, EngineError> {
    Answer::or_denied(answer, 0)
}
