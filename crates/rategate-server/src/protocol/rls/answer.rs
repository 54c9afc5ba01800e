//! Answers of the engine on their way to a reply.

use super::decide::Decide;
use super::error::RlsError;
use super::metadata;
use super::reply::Options;
use super::request::{MalformedRequest, RlsRequest};
use super::translate::ask;
use crate::engine::{Answer, EngineError};
use crate::net::RefusalReason;
use crate::rule::Metadata;

/// An answer of the engine, with the dynamic metadata of its reply.
#[derive(Debug)]
pub(crate) struct RlsAnswer {
    pub(crate) answer: Answer,
    pub(super) metadata: Option<Metadata>,
    /// The reason for which it was denied without a decision, unless the parts of the answer say
    /// it.
    refusal: Option<RefusalReason>,
}

/// Answers a request, once a store has replied if one counts it. A credit needs `may_credit`.
///
/// # Errors
///
/// [`RlsError`].
pub(crate) async fn answer(
    engine: &(impl Decide + ?Sized),
    request: Result<RlsRequest<'_>, MalformedRequest>,
    options: &Options,
    may_credit: bool,
) -> Result<RlsAnswer, RlsError> {
    let request = match request {
        // The part that makes it long may come from a client, and callers let a request pass when
        // they receive an error.
        Err(MalformedRequest::TooMany { .. }) => return Ok(RlsAnswer::unread()),
        request => request?,
    };
    if !may_credit && request.credits() {
        return Err(RlsError::NoToken);
    }
    let requested = options.requested(&request);
    let decided = ask(engine, &request, options)?;
    RlsAnswer::or_denied(decided.answer().await, requested)
}

impl RlsAnswer {
    /// Creates an answer to a request, of which the reply states `requested`.
    fn new(answer: Answer, requested: Option<Metadata>) -> Self {
        let metadata = requested.map(|mut metadata| {
            metadata::add_rules(&mut metadata, &answer);
            metadata
        });
        Self { answer, metadata, refusal: None }
    }

    /// Creates the denial of a request that is not read.
    pub(crate) fn unread() -> Self {
        let refusal = Some(RefusalReason::TooLong);
        Self { refusal, ..Self::new(Answer::uncounted_denial(), None) }
    }

    /// Returns the reason for which the call counts as refused, if it does.
    pub(crate) fn refusal(&self) -> Option<RefusalReason> {
        self.refusal.or_else(|| self.answer.refusal())
    }

    /// Creates the denial of a request that cannot be counted, since a table is full or too many
    /// reservations are known; without a status for each descriptor. The reply states `requested`.
    ///
    /// # Errors
    ///
    /// Any other error, unchanged.
    fn or_denied(
        answer: Result<Answer, RlsError>,
        requested: Option<Metadata>,
    ) -> Result<Self, RlsError> {
        let (answer, refusal) = match answer {
            Err(RlsError::EngineError(error)) => {
                let is_of_ids = matches!(error, EngineError::TooManyReservations { .. });
                let refusal = is_of_ids.then(|| error.refusal());
                (Answer::or_denied(Err(error), 0)?, refusal)
            }
            answer => (answer?, None),
        };
        Ok(Self { refusal, ..Self::new(answer, requested) })
    }
}
