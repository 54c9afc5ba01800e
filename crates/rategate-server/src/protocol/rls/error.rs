//! The errors of requests without a decision.

use super::request::MalformedRequest;
use crate::engine::EngineError;
use crate::net::RefusalReason;

/// The reason why a request has no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RlsError {
    /// The request is invalid.
    #[error("{0}")]
    MalformedRequest(#[from] MalformedRequest),
    /// The rules admit no such time of a reservation.
    #[error("{0}")]
    OfRules(MalformedRequest),
    /// The engine cannot decide it.
    #[error("{0}")]
    EngineError(#[from] EngineError),
    /// The request credits permits, and the call does not show the token.
    #[error("the token is needed to credit permits")]
    NoToken,
    /// No reservation has the id.
    #[error(
        "`rategate.id`: no reservation has this id; it never had one, or ended long ago. Nothing \
         is counted; charge what was used"
    )]
    UnknownId,
    /// A store did not reply to a part of the end.
    #[error(
        "the store is unavailable, so not all is settled; send the same again: what is settled \
         counts once"
    )]
    Unavailable,
    /// The end of a reservation has settled some of its descriptors, and has no effect on others.
    #[error(
        "`rategate.id`: {settled} of the call's descriptors are settled, and counted once however \
         often this is sent. Nothing is counted of the others: {}. Charge what was used of those \
         alone, under another id",
        others.join(", ")
    )]
    PartlySettled {
        /// The number of descriptors that are settled.
        settled: usize,
        /// The others, by their index from 0, and why.
        others: Vec<String>,
    },
    /// The reservation has ended otherwise.
    #[error(
        "`rategate.verb`: the reservation has been {0} before, and stays so. Nothing is counted"
    )]
    Ended(&'static str),
}

impl RlsError {
    /// Names the part of the call that states the time of a reservation, if the error is about it.
    pub(super) fn named(self, ttl: impl FnOnce(String) -> MalformedRequest) -> Self {
        match self {
            Self::EngineError(error @ EngineError::Ttl { .. }) => {
                Self::OfRules(ttl(error.to_string()))
            }
            error => error,
        }
    }

    /// Returns the reason for which the call counts as refused.
    pub(crate) const fn refusal(&self) -> RefusalReason {
        match self {
            Self::MalformedRequest(_) => RefusalReason::Malformed,
            Self::NoToken => RefusalReason::NoToken,
            Self::EngineError(error) => error.refusal(),
            Self::OfRules(_)
            | Self::UnknownId
            | Self::Unavailable
            | Self::PartlySettled { .. }
            | Self::Ended(_) => RefusalReason::EngineError,
        }
    }
}
