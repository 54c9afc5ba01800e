//! Reasons for which calls are refused before anything is decided.

use super::TokenShown;

/// The reason for which a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// It needs the token, and shows none.
    NoToken,
    /// It needs the token, and shows another one.
    WrongToken,
    /// Its bytes are no call of the protocol, or no question.
    Malformed,
    /// It is longer than it may be.
    TooLong,
    /// Its connection sent too much that asks for nothing.
    TooMuch,
    /// It is denied because there is no room to count it: of keys, or of limits that come with calls.
    NoRoom,
    /// The question has no answer: no such rule, no configuration, no store.
    Fault,
    /// It had no answer in the time that its caller, or the service, gave it.
    Late,
    /// Its connection came to no TLS: a client without the right certificate, or one that does not trust this one's.
    Handshake,
}

impl RefusalReason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::NoToken,
        Self::WrongToken,
        Self::Malformed,
        Self::TooLong,
        Self::TooMuch,
        Self::NoRoom,
        Self::Fault,
        Self::Late,
        Self::Handshake,
    ];

    /// The reason for a call that shows the token so: one that shows any, and is refused for want of it, has shown a wrong one, or too
    /// many before.
    pub(super) const fn of(self, shown: TokenShown) -> Self {
        match (self, shown) {
            (Self::NoToken, TokenShown::Wrong | TokenShown::Right) => Self::WrongToken,
            (reason, _) => reason,
        }
    }

    /// The name in metrics and the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::WrongToken => "wrong_token",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::TooMuch => "too_much",
            Self::NoRoom => "no_room",
            Self::Fault => "fault",
            Self::Late => "late",
            Self::Handshake => "handshake",
        }
    }
}
