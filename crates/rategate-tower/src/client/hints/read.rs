//! The limits that servers report, in the fields of several vendors. Every function is total: any
//! bytes give a value or nothing.

use std::time::{Duration, SystemTime};

use http::header::{AGE, DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{DEFAULT_BACKOFF, Refill, ServerLimit};
use crate::headers::{
    ANTHROPIC, LEGACY, OLDER, OPENAI, QuotaUnit, Triple, digits, field_text, go_duration,
    read_draft, rfc3339, seconds,
};

/// The maximum number of limits of a response.
pub(in crate::client) const MAX_LIMITS: usize = 32;

/// The values from which a reset is a Unix time in seconds, and in milliseconds. As seconds from
/// now, the first would be 31 years.
const UNIX_FROM: u64 = 1_000_000_000;
const UNIX_MS_FROM: u64 = 1_000_000_000_000;

/// The kind of requests that a limit of GitHub's is for (GitHub Docs, "Rate limits for the REST
/// API").
const RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");

/// The hold after a refusal of GitHub's that does not say: the same page asks for a minute.
const GITHUB_BACKOFF: Duration = Duration::from_secs(60);

/// The requests in Shopify's leaky bucket, and its size: `32/40` (shopify.dev, "REST Admin API rate
/// limits").
const CALL_LIMIT: HeaderName = HeaderName::from_static("x-shopify-shop-api-call-limit");

/// The time in which a full bucket of Shopify's is empty. The page has 2 requests a second for a
/// bucket of 40, and ten times both.
const CALL_LIMIT_DRAINS: Duration = Duration::from_secs(20);

/// The fields of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) struct Signals {
    pub(in crate::client) retry_after: Option<Duration>,
    /// The hold after a 429 without a time.
    pub(in crate::client) backoff: Duration,
    pub(in crate::client) limits: Vec<ServerLimit>,
}

impl Signals {
    /// Reads the fields. `now` is the client's clock, used unless the response states the
    /// server's.
    pub(in crate::client) fn read(headers: &HeaderMap, now: SystemTime) -> Self {
        let now = headers.get(DATE).and_then(date).unwrap_or(now);
        let is_github = headers.contains_key(RESOURCE);
        // What a cache stored says nothing of the present.
        let is_stored = numbers(headers, &AGE).any(|age| age > 0);
        let mut limits = if is_stored { Vec::new() } else { limits(headers, now) };
        limits.truncate(MAX_LIMITS);
        let retry_after = values(headers, &RETRY_AFTER).filter_map(|text| wait(text, now)).max();
        let backoff = if is_github { GITHUB_BACKOFF } else { DEFAULT_BACKOFF };
        Self { retry_after, backoff, limits }
    }
}

fn limits(headers: &HeaderMap, now: SystemTime) -> Vec<ServerLimit> {
    let of_draft = read_draft(headers).into_iter().filter_map(|item| {
        // What remains without a time means nothing.
        let (remaining, reset) = (item.remaining?, item.reset?);
        Some(ServerLimit {
            name: [item.name, item.partition].concat().into(),
            unit: item.unit,
            quota: item.quota,
            window: item.window,
            remaining,
            reset,
            refill: Refill::AtReset,
        })
    });
    let mut limits: Vec<ServerLimit> = of_draft.collect();
    let requests = QuotaUnit::Requests;
    limits.extend(triple(headers, (requests, &OLDER), Refill::AtReset, now));
    let resource = values(headers, &RESOURCE).next();
    let legacy = triple(headers, (requests, &LEGACY), Refill::AtReset, now);
    limits.extend(legacy.map(|limit| match resource {
        Some(resource) => ServerLimit { name: resource.into(), ..limit },
        None => limit,
    }));
    for (unit, names) in OPENAI.iter().chain(&ANTHROPIC) {
        limits.extend(triple(headers, (*unit, names), Refill::Gradual, now));
    }
    limits.extend(values(headers, &CALL_LIMIT).filter_map(call_limit));
    limits
}

/// Reads the three fields of a limit. Of several lines the strictest counts.
fn triple(
    headers: &HeaderMap,
    (unit, [quota, remaining, reset]): (QuotaUnit, &Triple),
    refill: Refill,
    now: SystemTime,
) -> Option<ServerLimit> {
    Some(ServerLimit {
        name: remaining.as_str().into(),
        unit: Some(unit),
        quota: numbers(headers, quota).min(),
        window: None,
        remaining: numbers(headers, remaining).min()?,
        reset: values(headers, reset).filter_map(|text| time_until(text, now)).max()?,
        refill,
    })
}

/// Reads the requests in a leaky bucket and its size, `32/40`.
fn call_limit(text: &str) -> Option<ServerLimit> {
    let (used, quota) = text.split_once('/')?;
    let (used, quota) = (digits(used)?, digits(quota)?);
    let drains_ns = CALL_LIMIT_DRAINS.as_nanos().saturating_mul(used.min(quota).into());
    let drains_ns = drains_ns.checked_div(quota.into())?;
    Some(ServerLimit {
        name: CALL_LIMIT.as_str().into(),
        unit: Some(QuotaUnit::Requests),
        quota: Some(quota),
        window: None,
        remaining: quota.saturating_sub(used),
        reset: Duration::from_nanos(u64::try_from(drains_ns).unwrap_or(u64::MAX)),
        refill: Refill::Gradual,
    })
}

/// Reads `Retry-After`: seconds, with a fraction in some services, or a date.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    // A date in the past means no wait.
    let until =
        || Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default());
    seconds(first(text)).or_else(until)
}

/// Reads a reset in any form: seconds from now, seconds or milliseconds since 1970, a duration of
/// Go, or an instant of RFC 3339. No text has two of these forms.
fn time_until(text: &str, now: SystemTime) -> Option<Duration> {
    let text = first(text);
    if let Some(time) = seconds(text) {
        let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        return Some(match time.as_secs() {
            ms @ UNIX_MS_FROM.. => Duration::from_millis(ms).saturating_sub(since_1970),
            UNIX_FROM.. => time.saturating_sub(since_1970),
            _ => time,
        });
    }
    let until = || Some(rfc3339(text)?.duration_since(now).unwrap_or_default());
    go_duration(text).or_else(until)
}

fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(field_text(value)?).ok()
}

fn values<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    headers.get_all(name).into_iter().filter_map(field_text)
}

/// Reads the numbers at the starts of the lines, rounded down: some servers send fractions.
fn numbers(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = u64> {
    values(headers, name).filter_map(|text| Some(seconds(first(text))?.as_secs()))
}

/// Returns the first part of a value such as `100, 100;w=60`.
fn first(text: &str) -> &str {
    text.split([',', ';']).next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderValue};

    use super::{MAX_LIMITS, Signals, time_until};

    #[test]
    fn resets_are_read_in_any_form() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_755_780_000);
        let until = |text| time_until(text, now).map(|time| time.as_millis());
        let table = [
            ("30", Some(30_000)),
            ("1.01", Some(1010)),
            ("30, 30;w=60", Some(30_000)),
            ("1755780042", Some(42_000)),
            ("1755780042500", Some(42_500)),
            ("1755779999", Some(0)),
            ("6m0s", Some(360_000)),
            ("2025-08-21T12:40:30.5Z", Some(30_500)),
            ("2025-08-21T12:39:00Z", Some(0)),
            ("soon", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(until(text), expected, "{text}");
        }
    }

    /// Reads seeded random sequences of the bytes that fields consist of.
    #[test]
    fn any_bytes_give_a_value_or_nothing() {
        let pieces: Vec<&str> =
            r#"" \ ; , = r t r= ;t= pk : 0 1 999999999999999 . - limit GMT w=60"#
                .split(' ')
                .chain(
                    "18446744073709551615 remaining= reset= é \u{80} / h ms 2025-08-21".split(' '),
                )
                .chain(["T12:40:59", "+05:30", " ", "\t"])
                .chain(["Tue, 14 Nov 2023 22:13:50 GMT", "Tue, 31 Feb 9999 25:61:61 GMT"])
                .collect();
        let names = [
            "ratelimit",
            "ratelimit-policy",
            "ratelimit-remaining",
            "ratelimit-reset",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "x-ratelimit-resource",
            "x-ratelimit-limit-tokens",
            "x-ratelimit-remaining-tokens",
            "x-ratelimit-reset-tokens",
            "anthropic-ratelimit-requests-limit",
            "anthropic-ratelimit-requests-remaining",
            "anthropic-ratelimit-requests-reset",
            "x-shopify-shop-api-call-limit",
            "retry-after",
            "date",
            "age",
        ];
        let mut random = fastrand::Rng::with_seed(1);
        let (mut understood, rounds) = (0, 20_000);
        for _ in 0..rounds {
            let mut headers = HeaderMap::new();
            for name in names {
                let mut bytes = Vec::new();
                for _ in 0..random.usize(..12) {
                    if random.u8(..8) == 0 {
                        bytes.push(random.u8(..));
                    } else {
                        bytes.extend(random.choice(&pieces).unwrap().bytes());
                    }
                }
                if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                    headers.append(name, value);
                }
            }
            let signals = Signals::read(&headers, SystemTime::UNIX_EPOCH);
            let is_understood = !signals.limits.is_empty() || signals.retry_after.is_some();
            understood += usize::from(is_understood);
        }
        assert!(understood > rounds / 50, "the storm hits the mark sometimes: {understood}");
    }

    #[test]
    fn a_long_value_is_not_read() {
        let mut headers = HeaderMap::new();
        let long = format!("7{}", ";".repeat(8192));
        headers.insert("retry-after", HeaderValue::from_str(&long).unwrap());
        assert_eq!(Signals::read(&headers, SystemTime::UNIX_EPOCH).retry_after, None);
        let many = r#""a";r=1;t=1,"#.repeat(600);
        headers.insert("ratelimit", HeaderValue::from_str(&many).unwrap());
        for _ in 0..40 {
            headers.append("ratelimit", HeaderValue::from_static(r#""b";r=1;t=1"#));
            headers.append("x-shopify-shop-api-call-limit", HeaderValue::from_static("1/40"));
        }
        let signals = Signals::read(&headers, SystemTime::UNIX_EPOCH);
        assert_eq!(signals.limits.len(), MAX_LIMITS);
    }

    #[test]
    fn a_stored_response_has_no_limits() {
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit", HeaderValue::from_static(r#""a";r=1;t=1"#));
        for (age, limits) in [("0", 1), ("7", 0), ("old", 1)] {
            headers.insert("age", HeaderValue::from_static(age));
            let signals = Signals::read(&headers, SystemTime::UNIX_EPOCH);
            assert_eq!(signals.limits.len(), limits, "{age}");
        }
    }
}
