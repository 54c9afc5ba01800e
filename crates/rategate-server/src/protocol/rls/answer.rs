//! Answers of the engine on their way to a reply.

use std::pin::Pin;

use rategate_protocol::rls::Metadata;

use super::error::RlsError;
use super::metadata;
use super::reply::Form;
use crate::engine::{Answer, Decided, EngineError};
use crate::net::RefusalReason;

/// An answer of the engine, with the form and the dynamic metadata of its reply.
#[derive(Debug)]
pub(crate) struct RlsAnswer {
    pub(crate) answer: Answer,
    pub(super) metadata: Option<Metadata>,
    pub(super) form: Form,
    /// The reason for which it was denied without a decision, unless the parts of the answer say
    /// it.
    refusal: Option<RefusalReason>,
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
        Self { answer, metadata, form: Form::RateLimit, refusal: None }
    }

    /// Creates an answer whose reply has a form of its own.
    pub(super) fn of_form(answer: Answer, form: Form) -> Self {
        Self { form, ..Self::new(answer, None) }
    }

    /// Creates the denial of a request that is not read.
    pub(crate) fn unread(form: Form) -> Self {
        let refusal = Some(RefusalReason::TooLong);
        Self { refusal, ..Self::of_form(Answer::uncounted_denial(), form) }
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
    pub(crate) fn or_denied(
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

/// Waits for the decision, which a store may delay. The reply states `requested`.
///
/// # Errors
///
/// [`RlsError`].
pub(crate) async fn answered(
    decided: Decided<Answer, RlsError>,
    requested: Option<Metadata>,
) -> Result<RlsAnswer, RlsError> {
    RlsAnswer::or_denied(decided.answer().await, requested)
}
