//! The units of quotas.

/// The unit of a quota, and of what remains of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuotaUnit {
    /// Requests.
    #[default]
    Requests,
    /// Bytes of content.
    ContentBytes,
    /// Requests at the same time.
    ConcurrentRequests,
    /// Tokens of a language model, of the prompt and of the reply together.
    Tokens,
    /// Tokens of the prompt.
    InputTokens,
    /// Tokens of the reply.
    OutputTokens,
}

impl QuotaUnit {
    pub(super) const ALL: [Self; 6] = [
        Self::Requests,
        Self::ContentBytes,
        Self::ConcurrentRequests,
        Self::Tokens,
        Self::InputTokens,
        Self::OutputTokens,
    ];

    /// Returns the name in the draft's `qu`: the first three are registered.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::ContentBytes => "content-bytes",
            Self::ConcurrentRequests => "concurrent-requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input-tokens",
            Self::OutputTokens => "output-tokens",
        }
    }

    /// Returns the unit of a name in the draft's `qu`, if it is known.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }
}
