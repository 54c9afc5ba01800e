//! Header fields that report a limit's status to the client.
//!
//! * [`Dialect::Current`]: `RateLimit-Policy: "default";q=100;w=60` and
//!   `RateLimit: "default";r=50;t=30`.
//! * [`Dialect::Older`]: `RateLimit-Limit: 100`, `RateLimit-Remaining: 50`, `RateLimit-Reset: 30`.
//! * [`Dialect::Legacy`]: the older fields with the prefix `X-`; the reset in seconds, or as Unix
//!   time.
//! * [`Dialect::Envoy`]: the legacy fields, with `X-RateLimit-Limit: 100, 100;w=60`.
//! * [`Dialect::OpenAi`]: `x-ratelimit-limit-tokens: 90000`, `x-ratelimit-remaining-tokens: 45000`,
//!   `x-ratelimit-reset-tokens: 30s`.
//! * [`Dialect::Anthropic`]: `anthropic-ratelimit-tokens-limit`, `-remaining` and `-reset`, the
//!   reset as `2025-08-21T12:41:00Z`.
//!
//! The current dialect is that of draft-ietf-httpapi-ratelimit-headers-11, and of its versions
//! since 08. The older dialect is that of versions up to 06. `Retry-After` needs no dialect: every
//! refusal that waiting can help has it, in whole seconds, rounded up, never 0.
//!
//! A reset, and `t`, is the time until more permits are available than now. After a refusal, it is
//! the time until the same request passes, as in `Retry-After`. Seconds are rounded up. In the
//! dialects of OpenAI and Anthropic a reset is the time until the whole quota is available, as
//! their clients expect. Where that is not known, the quota comes back evenly over the window, as
//! in a token bucket.

mod draft;
mod numbers;
mod policy;
mod seconds;
mod text;
mod triples;

use std::time::{Duration, SystemTime};

use http::header::{Entry, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};

pub(crate) use self::draft::read as read_draft;
pub(crate) use self::numbers::{Followed, Numbers};
pub use self::policy::{MAX_NAME_BYTES, PolicyError, QuotaPolicy, QuotaUnit};
pub(crate) use self::seconds::{retry_seconds, whole_seconds};
use self::seconds::{sf_integer, unix_seconds};
pub(crate) use self::text::{digits, field_text, go_duration, rfc3339, seconds};
use self::text::{go_text, rfc3339_text};
pub(crate) use self::triples::{ANTHROPIC, LEGACY, OLDER, OPENAI, Triple};

/// The dialect of the header fields that report the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit`: structured fields.
    Current,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, in seconds from now.
    Older,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    Legacy(Reset),
    /// The legacy fields as Envoy writes them, after the draft's version 03: the limit with its
    /// window, `X-RateLimit-Limit: 100, 100;w=60`, and the reset in seconds from now.
    Envoy,
    /// The fields of OpenAI, for a limit of requests or of tokens: `x-ratelimit-limit-tokens`,
    /// `-remaining-tokens`, and `-reset-tokens` as in Go, `6m0s`. A limit in another unit has no
    /// such fields.
    OpenAi,
    /// The fields of Anthropic, for a limit of requests or of any tokens:
    /// `anthropic-ratelimit-tokens-limit`, `-remaining`, and `-reset` as an instant of RFC 3339. A
    /// limit in another unit has no such fields.
    Anthropic,
}

/// The unit of `X-RateLimit-Reset`. Services use both, so their clients have to know which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Seconds from now.
    Delta,
    /// Seconds since 1970, by this machine's clock.
    Unix,
}

/// The header fields to send: a policy, in one or more dialects.
///
/// ```
/// use std::time::Duration;
///
/// use rategate_tower::headers::{Dialect, Headers, QuotaPolicy, Reset};
///
/// let policy = QuotaPolicy::new("default", 100, Duration::from_secs(60))?;
/// let headers = Headers::new(policy).and(Dialect::Legacy(Reset::Unix));
/// # Ok::<(), rategate_tower::headers::PolicyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Headers {
    policy: QuotaPolicy,
    dialects: Vec<Dialect>,
}

impl Headers {
    /// Creates the fields of the current draft.
    #[must_use]
    pub fn new(policy: QuotaPolicy) -> Self {
        Self::only(policy, Dialect::Current)
    }

    /// Creates the fields of one dialect.
    #[must_use]
    pub fn only(policy: QuotaPolicy, dialect: Dialect) -> Self {
        Self { policy, dialects: vec![dialect] }
    }

    /// Adds the fields of another dialect.
    #[must_use]
    pub fn and(mut self, dialect: Dialect) -> Self {
        if !self.dialects.contains(&dialect) {
            self.dialects.push(dialect);
        }
        self
    }

    pub(crate) const fn policy(&self) -> &QuotaPolicy {
        &self.policy
    }

    /// Writes the fields. If an inner layer has written some, the current dialect lists both. The
    /// other dialects have one limit, and the fields with less remaining stay.
    pub fn write(&self, quota_status: QuotaStatus, now: SystemTime, headers: &mut HeaderMap) {
        self.write_of(&self.policy, quota_status, now, headers);
    }

    /// Writes the fields with another policy than the configured one.
    pub(crate) fn write_of(
        &self,
        policy: &QuotaPolicy,
        quota_status: QuotaStatus,
        now: SystemTime,
        headers: &mut HeaderMap,
    ) {
        let limit = sf_integer(policy.quota());
        // A request for more than there can ever be has no time of its own, but the limit has.
        let more_after = quota_status.more_after.unwrap_or_else(|| quota_status.full_after(policy));
        let delta = || HeaderValue::from(sf_integer(whole_seconds(more_after)));
        let full_after = || quota_status.full_after(policy);
        let text = |text: String| HeaderValue::try_from(text).ok();
        let vendor = |fields: &[(QuotaUnit, Triple)], reset: Option<HeaderValue>| {
            let ours = fields.iter().find(|(unit, _)| *unit == policy.quota_unit());
            ours.map(|(_, names)| names.clone()).zip(reset)
        };
        for dialect in &self.dialects {
            let fields = match dialect {
                Dialect::Current => {
                    let QuotaStatus { remaining, more_after, .. } = quota_status;
                    draft::write(headers, policy.item(), policy.name(), remaining, more_after);
                    None
                }
                Dialect::Older => Some((OLDER, delta())),
                Dialect::Legacy(Reset::Delta) | Dialect::Envoy => Some((LEGACY, delta())),
                Dialect::Legacy(Reset::Unix) => {
                    Some((LEGACY, HeaderValue::from(sf_integer(unix_seconds(now, more_after)))))
                }
                Dialect::OpenAi => vendor(&OPENAI, text(go_text(full_after()))),
                Dialect::Anthropic => vendor(&ANTHROPIC, text(rfc3339_text(now, full_after()))),
            };
            let Some((names, reset)) = fields else { continue };
            let limit = match (dialect, policy.window()) {
                (Dialect::Envoy, Some(window)) => {
                    text(format!("{limit}, {limit};w={}", sf_integer(whole_seconds(window))))
                }
                _ => Some(HeaderValue::from(limit)),
            };
            if let Some(limit) = limit {
                triple(headers, names, sf_integer(quota_status.remaining), [limit, reset]);
            }
        }
    }
}

/// The status of a client after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The number of permits that one more request could take.
    pub remaining: u64,
    /// The time until it could take more. `None` if there never will be more, as with a full
    /// bucket.
    pub more_after: Option<Duration>,
    /// The time until the whole quota is available. `None` where that is not known: it then comes
    /// back evenly over the window, if there is one.
    pub full_after: Option<Duration>,
}

impl QuotaStatus {
    /// Returns the time until the whole quota is available, as known or by the window.
    fn full_after(self, policy: &QuotaPolicy) -> Duration {
        let missing = u128::from(policy.quota().saturating_sub(self.remaining));
        let window = policy.window().unwrap_or_default();
        let ns = missing.saturating_mul(window.as_nanos());
        let ns = ns.div_ceil(policy.quota().max(1).into());
        let evenly = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        self.full_after.unwrap_or(evenly).max(self.more_after.unwrap_or_default())
    }
}

/// Writes `Retry-After` in whole seconds, rounded up and at least one, unless the field is
/// present.
pub fn write_retry_after(retry_after: Duration, headers: &mut HeaderMap) {
    if let Ok(Entry::Vacant(vacant)) = headers.try_entry(RETRY_AFTER) {
        // A full map cannot hold the field, which then is left out.
        let _ = vacant.try_insert(HeaderValue::from(retry_seconds(retry_after)));
    }
}

/// Writes the three fields, unless the present ones are stricter.
fn triple(
    headers: &mut HeaderMap,
    names: Triple,
    remaining: u64,
    [limit, reset]: [HeaderValue; 2],
) {
    let [_, remaining_name, _] = &names;
    let there = headers.get(remaining_name).and_then(|value| value.to_str().ok()?.parse().ok());
    if there.is_some_and(|there: u64| there <= remaining) {
        return;
    }
    for (name, value) in names.into_iter().zip([limit, HeaderValue::from(remaining), reset]) {
        // A full map cannot hold the field, which then is left out.
        let _ = headers.try_insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::HeaderMap;

    use super::{Dialect, Headers, QuotaPolicy, QuotaStatus, QuotaUnit, Reset, write_retry_after};

    fn policy(name: &str, quota: u64) -> QuotaPolicy {
        QuotaPolicy::new(name, quota, Duration::from_secs(60)).unwrap()
    }

    fn quota_status(remaining: u64, more_after_ms: u64) -> QuotaStatus {
        let more_after = Some(Duration::from_millis(more_after_ms));
        QuotaStatus { remaining, more_after, full_after: None }
    }

    fn at(since: Duration) -> SystemTime {
        SystemTime::UNIX_EPOCH.checked_add(since).unwrap()
    }

    /// Returns the fields as lines, in the order of their names.
    fn lines(headers: &HeaderMap) -> Vec<String> {
        let line =
            |(name, value): (_, &http::HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        let mut lines: Vec<String> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    fn written(dialects: &[Dialect], quota_status: QuotaStatus) -> Vec<String> {
        let mut headers = HeaderMap::new();
        let now = at(Duration::from_millis(1_700_000_000_500));
        for &dialect in dialects {
            Headers::only(policy("default", 100), dialect).write(quota_status, now, &mut headers);
        }
        lines(&headers)
    }

    #[test]
    fn golden_lines_of_every_dialect() {
        let quota_status = quota_status(50, 29_001);
        assert_eq!(
            written(&[Dialect::Current], quota_status),
            [r#"ratelimit-policy: "default";q=100;w=60"#, r#"ratelimit: "default";r=50;t=30"#]
        );
        assert_eq!(
            written(&[Dialect::Older], quota_status),
            ["ratelimit-limit: 100", "ratelimit-remaining: 50", "ratelimit-reset: 30"]
        );
        assert_eq!(
            written(&[Dialect::Legacy(Reset::Delta)], quota_status),
            ["x-ratelimit-limit: 100", "x-ratelimit-remaining: 50", "x-ratelimit-reset: 30"]
        );
        assert_eq!(
            written(&[Dialect::Envoy], quota_status),
            [
                "x-ratelimit-limit: 100, 100;w=60",
                "x-ratelimit-remaining: 50",
                "x-ratelimit-reset: 30"
            ]
        );
        // 1 700 000 000.5 + 29.001, rounded up.
        assert_eq!(
            written(&[Dialect::Legacy(Reset::Unix)], quota_status),
            [
                "x-ratelimit-limit: 100",
                "x-ratelimit-remaining: 50",
                "x-ratelimit-reset: 1700000030"
            ]
        );
    }

    /// The reset of a vendor's fields is that of the whole quota: a half of a minute's.
    #[test]
    fn golden_lines_of_vendors() {
        let written = |dialect, unit| {
            let policy = policy("default", 100).unit(unit);
            let mut headers = HeaderMap::new();
            let now = at(Duration::from_millis(1_755_780_000_500));
            Headers::only(policy, dialect).write(quota_status(50, 600), now, &mut headers);
            lines(&headers)
        };
        assert_eq!(
            written(Dialect::OpenAi, QuotaUnit::Requests),
            [
                "x-ratelimit-limit-requests: 100",
                "x-ratelimit-remaining-requests: 50",
                "x-ratelimit-reset-requests: 30s"
            ]
        );
        assert_eq!(
            written(Dialect::Anthropic, QuotaUnit::OutputTokens),
            [
                "anthropic-ratelimit-output-tokens-limit: 100",
                "anthropic-ratelimit-output-tokens-remaining: 50",
                "anthropic-ratelimit-output-tokens-reset: 2025-08-21T12:40:31Z"
            ]
        );
        for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
            assert_eq!(written(dialect, QuotaUnit::ContentBytes), [""; 0]);
        }
        // A reset that is known counts as it is.
        let known =
            QuotaStatus { full_after: Some(Duration::from_secs(7)), ..quota_status(9, 600) };
        let mut headers = HeaderMap::new();
        let policy_of_requests = Headers::only(policy("default", 100), Dialect::OpenAi);
        policy_of_requests.write(known, at(Duration::ZERO), &mut headers);
        assert_eq!(headers["x-ratelimit-reset-requests"], "7s");
        // After a refusal the wait of the request counts if it is longer.
        let status = quota_status(100, 360_000);
        let mut headers = HeaderMap::new();
        let tokens = policy("default", 100).unit(QuotaUnit::Tokens);
        Headers::only(tokens, Dialect::OpenAi).write(status, at(Duration::ZERO), &mut headers);
        assert_eq!(headers["x-ratelimit-reset-tokens"], "6m0s");
    }

    #[test]
    fn what_will_never_be_more_has_no_time() {
        let full = QuotaStatus { remaining: 100, more_after: None, full_after: None };
        assert_eq!(
            written(&[Dialect::Current], full),
            [r#"ratelimit-policy: "default";q=100;w=60"#, r#"ratelimit: "default";r=100"#]
        );
        assert_eq!(written(&[Dialect::Older], full)[2], "ratelimit-reset: 0");
        // Denied for good, as the request is larger than the limit, which itself recovers.
        let full_after = Some(Duration::from_secs(45));
        let larger = QuotaStatus { remaining: 0, more_after: None, full_after };
        assert_eq!(written(&[Dialect::Older], larger)[2], "ratelimit-reset: 45");
        let unix = written(&[Dialect::Legacy(Reset::Unix)], larger);
        assert_eq!(unix[2], "x-ratelimit-reset: 1700000046");
    }

    /// Structured fields have integers of up to 15 digits.
    #[test]
    fn numbers_saturate() {
        let more_after = Some(Duration::MAX);
        let max = QuotaStatus { remaining: u64::MAX, more_after, full_after: None };
        let now = at(Duration::from_secs(u64::MAX >> 2));
        let mut headers = HeaderMap::new();
        for dialect in [Dialect::Current, Dialect::Older, Dialect::Legacy(Reset::Unix)] {
            Headers::only(policy("p", u64::MAX), dialect).write(max, now, &mut headers);
        }
        let max = "999999999999999";
        assert_eq!(
            lines(&headers),
            [
                format!("ratelimit-limit: {max}"),
                format!("ratelimit-policy: \"p\";q={max};w=60"),
                format!("ratelimit-remaining: {max}"),
                format!("ratelimit-reset: {max}"),
                format!("ratelimit: \"p\";r={max};t={max}"),
                format!("x-ratelimit-limit: {max}"),
                format!("x-ratelimit-remaining: {max}"),
                format!("x-ratelimit-reset: {max}"),
            ]
        );
    }

    #[test]
    fn layers_list_both_or_show_the_tighter() {
        let mut headers = HeaderMap::new();
        let now = SystemTime::UNIX_EPOCH;
        let of = |name, quota| Headers::new(policy(name, quota)).and(Dialect::Older);
        of("inner", 10).write(quota_status(3, 1000), now, &mut headers);
        of("outer", 100).write(quota_status(60, 9000), now, &mut headers);
        assert_eq!(
            lines(&headers),
            [
                "ratelimit-limit: 10",
                r#"ratelimit-policy: "inner";q=10;w=60"#,
                r#"ratelimit-policy: "outer";q=100;w=60"#,
                "ratelimit-remaining: 3",
                "ratelimit-reset: 1",
                r#"ratelimit: "inner";r=3;t=1"#,
                r#"ratelimit: "outer";r=60;t=9"#,
            ]
        );
        of("outermost", 7).write(quota_status(2, 5000), now, &mut headers);
        assert_eq!(headers["ratelimit-limit"], "7");
        assert_eq!(headers["ratelimit-remaining"], "2");
    }

    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        let of = |wait| {
            let mut headers = HeaderMap::new();
            write_retry_after(wait, &mut headers);
            headers["retry-after"].to_str().unwrap().to_owned()
        };
        assert_eq!(of(Duration::ZERO), "1");
        assert_eq!(of(Duration::from_nanos(1)), "1");
        assert_eq!(of(Duration::from_secs(1)), "1");
        assert_eq!(of(Duration::new(1, 1)), "2");
        assert_eq!(of(Duration::from_millis(59_001)), "60");
        assert_eq!(of(Duration::MAX), "999999999999999");
    }
}
