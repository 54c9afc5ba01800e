//! Header fields that report a limit's status to the client.
//!
//! * [`Dialect::Current`]: `RateLimit-Policy: "default";q=100;w=60` and
//!   `RateLimit: "default";r=50;t=30`, the fields of draft-ietf-httpapi-ratelimit-headers-11 and of
//!   its versions since 08.
//! * [`Dialect::Legacy`]: `X-RateLimit-Limit: 100`, `X-RateLimit-Remaining: 50` and
//!   `X-RateLimit-Reset: 30`, in seconds from now.
//!
//! `Retry-After` needs no dialect: every refusal that waiting can help has it, in whole seconds,
//! rounded up, never 0. The clients of this crate [read](crate::client) the fields of many vendors
//! besides these.
//!
//! A reset, and `t`, is the time until more permits are available than now. After a refusal, it is
//! the time until the same request passes, as in `Retry-After`. Seconds are rounded up.

mod draft;
mod numbers;
mod policy;
mod seconds;
mod text;
mod triples;
mod unit;

use std::time::Duration;

use http::header::{Entry, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};

pub(crate) use self::draft::read as read_draft;
pub(crate) use self::numbers::{Followed, Numbers};
pub use self::policy::{MAX_NAME_BYTES, PolicyError, QuotaPolicy};
use self::seconds::sf_integer;
pub(crate) use self::seconds::{retry_seconds, whole_seconds};
pub(crate) use self::text::{digits, field_text, go_duration, rfc3339, seconds};
pub(crate) use self::triples::{ANTHROPIC, LEGACY, OLDER, OPENAI, Triple};
pub use self::unit::QuotaUnit;

/// The dialect of the header fields that report the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit`: structured fields.
    Current,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, in seconds from now.
    Legacy,
}

/// The header fields to send: a policy, in one or more dialects.
///
/// ```
/// use std::time::Duration;
///
/// use rategate_tower::headers::{Dialect, Headers, QuotaPolicy};
///
/// let policy = QuotaPolicy::new("default", 100, Duration::from_secs(60))?;
/// let headers = Headers::new(policy).and(Dialect::Legacy);
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
    /// legacy dialect has one limit, and the fields with less remaining stay.
    pub fn write(&self, quota_status: QuotaStatus, headers: &mut HeaderMap) {
        self.write_of(&self.policy, quota_status, headers);
    }

    /// Writes the fields with another policy than the configured one.
    pub(crate) fn write_of(
        &self,
        policy: &QuotaPolicy,
        quota_status: QuotaStatus,
        headers: &mut HeaderMap,
    ) {
        let QuotaStatus { remaining, more_after } = quota_status;
        for dialect in &self.dialects {
            match dialect {
                Dialect::Current => {
                    let more_after = more_after.filter(|after| !after.is_zero());
                    draft::write(headers, policy.item(), policy.name(), remaining, more_after);
                }
                Dialect::Legacy => write_legacy(headers, policy, quota_status),
            }
        }
    }
}

/// The status of a client after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The number of permits that one more request could take.
    pub remaining: u64,
    /// The time until it could take more: zero if there never will be more, as with a full bucket,
    /// and `None` if it is not known.
    pub more_after: Option<Duration>,
}

impl QuotaStatus {
    /// Returns the time until the whole quota is available, if it comes back evenly.
    fn full_after(self, policy: &QuotaPolicy) -> Duration {
        let missing = u128::from(policy.quota().saturating_sub(self.remaining));
        let window = policy.window().unwrap_or_default();
        let ns = missing.saturating_mul(window.as_nanos());
        let ns = ns.div_ceil(policy.quota().max(1).into());
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
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

/// Writes the three fields of the legacy dialect, unless the present ones are stricter.
fn write_legacy(headers: &mut HeaderMap, policy: &QuotaPolicy, quota_status: QuotaStatus) {
    let remaining = sf_integer(quota_status.remaining);
    let [_, remaining_name, _] = &LEGACY;
    let there = headers.get(remaining_name).and_then(|value| value.to_str().ok()?.parse().ok());
    if there.is_some_and(|there: u64| there <= remaining) {
        return;
    }
    // A request for more than there can ever be has no time of its own, but the limit has.
    let more_after = quota_status.more_after.unwrap_or_else(|| quota_status.full_after(policy));
    let reset = sf_integer(whole_seconds(more_after));
    for (name, number) in LEGACY.into_iter().zip([sf_integer(policy.quota()), remaining, reset]) {
        // A full map cannot hold the field, which then is left out.
        let _ = headers.try_insert(name, HeaderValue::from(number));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderMap;

    use super::{Dialect, Headers, QuotaPolicy, QuotaStatus, write_retry_after};

    /// The largest integer of a structured field.
    const MAX: &str = "999999999999999";

    /// Returns the fields of layers of a name, a quota, what remains and the milliseconds until
    /// there is more, as lines in the order of their names.
    fn written(dialects: &[Dialect], layers: &[(&str, u64, u64, Option<u64>)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for &(name, quota, remaining, more_after_ms) in layers {
            let policy = QuotaPolicy::new(name, quota, Duration::from_secs(60)).unwrap();
            let more_after = more_after_ms.map(Duration::from_millis);
            let status = QuotaStatus { remaining, more_after };
            for &dialect in dialects {
                Headers::only(policy.clone(), dialect).write(status, &mut headers);
            }
        }
        let line =
            |(name, value): (_, &http::HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        let mut lines: Vec<String> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn golden_lines_of_both_dialects() {
        let draft = |q: &str, r: &str, t: &str| {
            vec![
                format!("ratelimit-policy: \"p\";q={q};w=60"),
                format!("ratelimit: \"p\";r={r}{t}"),
            ]
        };
        let legacy = |limit: &str, remaining: &str, reset: &str| {
            vec![
                format!("x-ratelimit-limit: {limit}"),
                format!("x-ratelimit-remaining: {remaining}"),
                format!("x-ratelimit-reset: {reset}"),
            ]
        };
        let table = [
            ((100, 50, Some(29_001)), draft("100", "50", ";t=30"), legacy("100", "50", "30")),
            // What will never be more has no time.
            ((100, 100, None), draft("100", "100", ""), legacy("100", "100", "0")),
            // Denied for good, as the request is larger than the limit, which itself recovers.
            ((100, 25, None), draft("100", "25", ""), legacy("100", "25", "45")),
            // Structured fields have integers of up to 15 digits.
            (
                (u64::MAX, u64::MAX, Some(u64::MAX)),
                draft(MAX, MAX, &format!(";t={MAX}")),
                legacy(MAX, MAX, MAX),
            ),
        ];
        for ((quota, remaining, more_after_ms), draft, legacy) in table {
            let layers = [("p", quota, remaining, more_after_ms)];
            assert_eq!(written(&[Dialect::Current], &layers), draft);
            assert_eq!(written(&[Dialect::Legacy], &layers), legacy);
            let both = [draft, legacy].concat();
            assert_eq!(written(&[Dialect::Current, Dialect::Legacy], &layers), both);
        }
    }

    #[test]
    fn layers_list_both_or_show_the_tighter() {
        let inner = ("inner", 10, 3, Some(1000));
        let outer = ("outer", 100, 60, Some(9000));
        assert_eq!(
            written(&[Dialect::Current, Dialect::Legacy], &[inner, outer]),
            [
                r#"ratelimit-policy: "inner";q=10;w=60"#,
                r#"ratelimit-policy: "outer";q=100;w=60"#,
                r#"ratelimit: "inner";r=3;t=1"#,
                r#"ratelimit: "outer";r=60;t=9"#,
                "x-ratelimit-limit: 10",
                "x-ratelimit-remaining: 3",
                "x-ratelimit-reset: 1",
            ]
        );
        let outermost = ("outermost", 7, 2, Some(5000));
        assert_eq!(
            written(&[Dialect::Legacy], &[inner, outer, outermost]),
            ["x-ratelimit-limit: 7", "x-ratelimit-remaining: 2", "x-ratelimit-reset: 5"]
        );
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
