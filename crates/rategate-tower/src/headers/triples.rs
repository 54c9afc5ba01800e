//! The names of the fields that come in threes: a quota, what remains of it, and the reset.

use http::HeaderName;

use super::QuotaUnit;

/// The names of a limit's quota, remaining number and reset.
pub(crate) type Triple = [HeaderName; 3];

macro_rules! triple {
    ($before:literal, $between:literal, $after:literal) => {
        [
            HeaderName::from_static(concat!($before, "limit", $between, $after)),
            HeaderName::from_static(concat!($before, "remaining", $between, $after)),
            HeaderName::from_static(concat!($before, "reset", $between, $after)),
        ]
    };
}

/// The fields of the draft's versions up to 06.
pub(crate) const OLDER: Triple = triple!("ratelimit-", "", "");

/// The fields from before any draft, as GitHub sends them.
pub(crate) const LEGACY: Triple = triple!("x-ratelimit-", "", "");

/// The fields of OpenAI's "Rate limits" guide, section "Rate limits in headers".
pub(crate) const OPENAI: [(QuotaUnit, Triple); 2] = [
    (QuotaUnit::Requests, triple!("x-ratelimit-", "-", "requests")),
    (QuotaUnit::Tokens, triple!("x-ratelimit-", "-", "tokens")),
];

/// The fields of Anthropic's "Rate limits" page, section "Response headers".
pub(crate) const ANTHROPIC: [(QuotaUnit, Triple); 4] = [
    (QuotaUnit::Requests, triple!("anthropic-ratelimit-requests-", "", "")),
    (QuotaUnit::Tokens, triple!("anthropic-ratelimit-tokens-", "", "")),
    (QuotaUnit::InputTokens, triple!("anthropic-ratelimit-input-tokens-", "", "")),
    (QuotaUnit::OutputTokens, triple!("anthropic-ratelimit-output-tokens-", "", "")),
];
