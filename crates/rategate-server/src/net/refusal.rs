//! Reasons for refusing calls before any decision.

use super::TokenShown;

/// The reason for which a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The call needs the token and shows none.
    NoToken,
    /// The call needs the token and shows a wrong one.
    InvalidToken,
    /// The bytes are not a call of the protocol, or not a valid request.
    Malformed,
    /// The call is longer than the limit.
    TooLong,
    /// The connection sent too many frames that request nothing.
    TooMuch,
    /// The call is denied because a table of keys, or of limits that come with calls, is full.
    NoCapacity,
    /// The call has no answer because as many reservations are known as may be.
    TooManyReservations,
    /// The request cannot be answered: there is no such rule, no configuration, or no store.
    EngineError,
    /// The call had no reply within the time that its caller or the service allows.
    Late,
    /// There is no such path, or it has other methods.
    NotServed,
    /// The TLS handshake failed: the client has no accepted certificate, or does not trust the
    /// server's.
    Handshake,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::NoToken,
        Self::InvalidToken,
        Self::Malformed,
        Self::TooLong,
        Self::TooMuch,
        Self::NoCapacity,
        Self::TooManyReservations,
        Self::EngineError,
        Self::Late,
        Self::NotServed,
        Self::Handshake,
    ];

    /// Returns the reason for a call that shows the token as `shown`. A call that is refused for
    /// want of the token but shows one has shown a wrong one, or too many before.
    pub(super) const fn of(self, shown: TokenShown) -> Self {
        match (self, shown) {
            (Self::NoToken, TokenShown::Invalid | TokenShown::Right) => Self::InvalidToken,
            (reason, _) => reason,
        }
    }

    /// Returns the name in metrics and the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::InvalidToken => "invalid_token",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::TooMuch => "too_much",
            Self::NoCapacity => "table_full",
            Self::TooManyReservations => "too_many_reservations",
            Self::EngineError => "fault",
            Self::Late => "late",
            Self::NotServed => "not_served",
            Self::Handshake => "handshake",
        }
    }
}
