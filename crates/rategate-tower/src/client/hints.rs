//! The hints of a response for a client's next requests.

pub(super) mod read;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use rategate::adaptive::Outcome;

use self::read::Signals;
use crate::headers::QuotaUnit;

/// The default of the longest time that a server can make a client hold.
pub const MAX_HOLD: Duration = Duration::from_secs(3600);

/// The hold after a 429 without a time, or with the time 0. Some servers send 0 when less than a
/// second is left.
pub const DEFAULT_BACKOFF: Duration = Duration::from_secs(1);

/// The hints of a response for a client's next requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerHints {
    /// The time in which nothing should be sent; zero if there is none.
    pub hold: Duration,
    /// Set if the server refused the request and did not say until when: the hold is
    /// [`DEFAULT_BACKOFF`].
    pub is_guess: bool,
    /// The limits under which the response was sent.
    pub limits: Vec<ServerLimit>,
}

/// A limit as a server reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimit {
    /// The name of the policy or of GitHub's resource; without one, that of a header field.
    pub name: Box<str>,
    /// The unit of the numbers; `None` for one that is not known.
    pub unit: Option<QuotaUnit>,
    /// The number that is available at most.
    pub quota: Option<u64>,
    /// The time for which the quota is, where the server says so.
    pub window: Option<Duration>,
    /// The number that was available when the response was sent.
    pub remaining: u64,
    /// The time until the limit is reset.
    pub reset: Duration,
    /// The way in which more becomes available.
    pub refill: Refill,
}

/// The way in which more of a limit becomes available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// Not before the reset.
    AtReset,
    /// Evenly until the reset, when the quota is full, as in a token bucket.
    Gradual,
}

impl ServerLimit {
    /// Creates a limit of requests, of which more becomes available at the reset.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, remaining: u64, reset: Duration) -> Self {
        let (unit, refill) = (Some(QuotaUnit::Requests), Refill::AtReset);
        Self { name: name.into(), unit, quota: None, window: None, remaining, reset, refill }
    }

    /// Returns the time until `amount` is available, or the whole quota, if none is taken before.
    #[must_use]
    pub fn opens_after(&self, amount: u64) -> Duration {
        let missing = amount.saturating_sub(self.remaining);
        let used = self.quota.map_or(0, |quota| quota.saturating_sub(self.remaining));
        match self.refill {
            _ if missing == 0 => Duration::ZERO,
            Refill::Gradual if missing < used => {
                let ns = self.reset.as_nanos().saturating_mul(missing.into());
                Duration::from_nanos(u64::try_from(ns.div_ceil(used.into())).unwrap_or(u64::MAX))
            }
            _ => self.reset,
        }
    }

    /// Returns `true` for a limit of a language model's tokens.
    #[must_use]
    pub const fn counts_tokens(&self) -> bool {
        use QuotaUnit::{InputTokens, OutputTokens, Tokens};
        matches!(self.unit, Some(Tokens | InputTokens | OutputTokens))
    }
}

/// Returns the hints of a response's status and header fields.
///
/// The hold is the strictest of these:
///
/// * After a 429, 403 or 503: `Retry-After`, in seconds or as a date. Without it, the reset of an
///   exhausted limit. A 429 without either: a minute if it is GitHub's, else [`DEFAULT_BACKOFF`].
/// * After any other status: the time until an exhausted limit has something again. `Retry-After`
///   has another meaning there, and is ignored. An exhausted limit of tokens is no hold, because
///   it depends on what the next request takes: see [`ServerLimit::opens_after`].
///
/// The limits are those of these fields:
///
/// | service | fields | reset |
/// |---|---|---|
/// | any, by the IETF draft, version 11 | `RateLimit`, `RateLimit-Policy` | seconds |
/// | any, by its versions up to 06 | `RateLimit-*` | seconds |
/// | GitHub and others | `X-RateLimit-*`, `X-RateLimit-Resource` | seconds since 1970 |
/// | OpenAI | `x-ratelimit-*-requests`, `x-ratelimit-*-tokens` | `6m0s`, as in Go |
/// | Anthropic | `anthropic-ratelimit-*-*` for requests, and tokens in all | RFC 3339 |
/// | | the same for `input-tokens` and `output-tokens` | RFC 3339 |
/// | Shopify | `X-Shopify-Shop-Api-Call-Limit: 32/40` | a full bucket drains in 20 s |
///
/// The last three are token buckets: they refill evenly until the reset. A reset may have any of
/// these forms under any name. Numbers are seconds from now, or seconds or milliseconds since 1970,
/// recognized by their size. A response from a cache, with a positive `Age`, has no limits.
///
/// Dates are compared with the response's own `Date` if it has one, so that the clocks of client
/// and server need not agree. Otherwise they are compared with `now`.
///
/// Any bytes give hints. Fields that cannot be parsed are treated as absent. No hold is longer
/// than `max_hold`. A limit whose reset is further away is listed only if it is exhausted, with
/// `max_hold` as its reset.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use http::{HeaderMap, HeaderValue, StatusCode};
/// use rategate_tower::client::{MAX_HOLD, parse_hints};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("ratelimit", HeaderValue::from_static(r#""default";r=50;t=30"#));
/// let hints = parse_hints(StatusCode::OK, &headers, SystemTime::now(), MAX_HOLD);
/// assert_eq!((hints.hold, hints.limits[0].remaining), (Duration::ZERO, 50));
///
/// headers.insert("retry-after", HeaderValue::from_static("7"));
/// let hints = parse_hints(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now(), MAX_HOLD);
/// assert_eq!(hints.hold, Duration::from_secs(7));
/// ```
#[must_use]
pub fn parse_hints(
    status: StatusCode,
    headers: &HeaderMap,
    now: SystemTime,
    max_hold: Duration,
) -> ServerHints {
    let Signals { retry_after, backoff, mut limits } = Signals::read(headers, now);
    let is_over_limit = status == StatusCode::TOO_MANY_REQUESTS;
    let is_refusal =
        is_over_limit || matches!(status, StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE);
    let retry_after = retry_after.filter(|_| is_refusal);
    let exhausted = || limits.iter().filter(|limit| limit.remaining == 0);
    let mut is_guess = false;
    let hold = if is_refusal {
        let min_hold = if is_over_limit { backoff } else { Duration::ZERO };
        let requested = retry_after.or_else(|| exhausted().map(|limit| limit.reset).max());
        let named = requested.filter(|requested| !requested.is_zero());
        is_guess = named.is_none() && min_hold == DEFAULT_BACKOFF;
        named.unwrap_or(min_hold)
    } else {
        let waits = exhausted().filter(|limit| !limit.counts_tokens());
        waits.map(|limit| limit.opens_after(1)).max().unwrap_or_default()
    };
    limits.retain_mut(|limit| {
        if limit.remaining == 0 {
            // `Retry-After` takes precedence over a reset.
            let is_precise = limit.refill == Refill::AtReset;
            let latest = retry_after.filter(|_| is_precise).unwrap_or(max_hold);
            limit.reset = limit.reset.min(latest).min(max_hold);
        }
        limit.window = limit.window.map(|window| window.min(max_hold));
        !limit.reset.is_zero() && limit.reset <= max_hold
    });
    ServerHints { hold: hold.min(max_hold), is_guess, limits }
}

impl ServerHints {
    /// Returns how the request ended, for a limiter that follows refusals.
    ///
    /// A 429, 503 or 529 is a refusal, and so is a 403 that says how long to hold.
    #[must_use]
    pub fn outcome(&self, status: StatusCode) -> Outcome {
        let is_refused = match status.as_u16() {
            429 | 503 | 529 => true,
            403 => !self.hold.is_zero(),
            _ => false,
        };
        if is_refused { Outcome::Dropped } else { Outcome::Served }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

    use super::{DEFAULT_BACKOFF, MAX_HOLD, Refill, ServerHints, ServerLimit, parse_hints};
    use crate::headers::QuotaUnit;

    const UNIX_NOW: u64 = 1_700_000_000;

    /// Returns the hold in milliseconds, and each limit's remaining number and reset.
    fn hints(status: u16, fields: &[(&str, &str)]) -> (u128, Vec<(u64, u128)>) {
        let ServerHints { hold, limits, .. } = all_hints(status, fields);
        let brief = |limit: &ServerLimit| (limit.remaining, limit.reset.as_millis());
        (hold.as_millis(), limits.iter().map(brief).collect())
    }

    fn all_hints(status: u16, fields: &[(&str, &str)]) -> ServerHints {
        let now = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(UNIX_NOW)).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        parse_hints(StatusCode::from_u16(status).unwrap(), &headers, now, MAX_HOLD)
    }

    /// A status, fields, and the expected hold in seconds.
    type Case = (u16, &'static [(&'static str, &'static str)], f64);

    #[test]
    fn refusals() {
        const DATE: &str = "Tue, 14 Nov 2023 22:13:50 GMT"; // UNIX_NOW + 30 s
        let (default, max) = (DEFAULT_BACKOFF.as_secs_f64(), MAX_HOLD.as_secs_f64());
        let table: [Case; 24] = [
            (429, &[("retry-after", "7")], 7.0),
            (503, &[("retry-after", "7")], 7.0),
            (429, &[("retry-after", "2.5")], 2.5),
            (429, &[("retry-after", DATE)], 30.0),
            // The server's own clock takes precedence over the client's.
            (429, &[("retry-after", DATE), ("date", "Tue, 14 Nov 2023 22:13:48 GMT")], 2.0),
            (429, &[("retry-after", "Tue, 14 Nov 2000 22:13:50 GMT")], default),
            (429, &[("retry-after", "0")], default),
            (429, &[("retry-after", "soon")], default),
            (429, &[], default),
            (503, &[], 0.0),
            (503, &[("retry-after", "0")], 0.0),
            // Absurd values cannot hold a client for longer than its own maximum.
            (429, &[("retry-after", "99999999999999999999")], max),
            (429, &[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")], max),
            // Retry-After takes precedence over a reset.
            (429, &[("ratelimit", r#""p";r=0;t=60"#), ("retry-after", "5")], 5.0),
            (429, &[("ratelimit", r#""p";r=0;t=60"#)], 60.0),
            (429, &[("ratelimit", r#""p";r=9;t=60"#)], default),
            (429, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000042")], 42.0),
            // GitHub refuses with a 403 too, which is no refusal without a time.
            (403, &[("retry-after", "7")], 7.0),
            (403, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000042")], 42.0),
            (403, &[("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "1700000042")], 0.0),
            (403, &[], 0.0),
            (429, &[("x-ratelimit-resource", "core")], 60.0),
            (429, &[("x-ratelimit-resource", "core"), ("retry-after", "7")], 7.0),
            // A bucket has permits again before it is full, but then the request was refused.
            (429, &[("x-shopify-shop-api-call-limit", "40/40")], 20.0),
        ];
        for (status, fields, expected) in table {
            let hold = all_hints(status, fields).hold.as_secs_f64();
            assert_eq!(hold.to_bits(), expected.to_bits(), "{status} {fields:?}: {hold}");
        }
        let both = &[("ratelimit", r#""p";r=0;t=60"#), ("retry-after", "5")];
        assert_eq!(hints(429, both).1, [(0, 5000)], "the reset of the limit too");
    }

    /// Fields, the expected hold in milliseconds, and the limits.
    type Passed = (&'static [(&'static str, &'static str)], u128, &'static [(u64, u128)]);

    #[test]
    fn responses_that_passed() {
        let table: [Passed; 15] = [
            (&[], 0, &[]),
            (&[("retry-after", "7")], 0, &[]),
            (&[("ratelimit", r#""default";r=50;t=30"#)], 0, &[(50, 30_000)]),
            (&[("ratelimit", r#""default";r=0;t=30"#)], 30_000, &[(0, 30_000)]),
            (&[("ratelimit", r#""default";r=0"#)], 0, &[]),
            (&[("ratelimit", r#""default";r=50;t=0"#)], 0, &[]),
            (
                &[("ratelimit", r#""burst";r=10;t=1, "daily";r=120;t=60"#)],
                0,
                &[(10, 1000), (120, 60_000)],
            ),
            (
                &[("ratelimit", r#""a";r=0;t=5"#), ("ratelimit", r#""b";r=0;t=9"#)],
                9000,
                &[(0, 5000), (0, 9000)],
            ),
            (&[("ratelimit-remaining", "3"), ("ratelimit-reset", "6")], 0, &[(3, 6000)]),
            (
                &[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1700000006")],
                0,
                &[(3, 6000)],
            ),
            (&[("x-ratelimit-remaining", "3")], 0, &[]),
            // A day's quota is not spread over the day.
            (&[("ratelimit", r#""daily";r=999;t=86400"#)], 0, &[]),
            (&[("ratelimit", r#""daily";r=0;t=86400"#)], 3_600_000, &[(0, 3_600_000)]),
            // Of a bucket one is back before the whole.
            (&[("x-shopify-shop-api-call-limit", "40/40")], 500, &[(0, 20_000)]),
            // Tokens depend on the next request; a unit that is not known holds every request.
            (
                &[
                    ("ratelimit-policy", r#""tpm";q=9;w=60;qu="tokens", "x";q=9;qu="smiles""#),
                    ("ratelimit", r#""tpm";r=0;t=30, "x";r=0;t=2"#),
                ],
                2000,
                &[(0, 30_000), (0, 2000)],
            ),
        ];
        for (fields, hold, limits) in table {
            assert_eq!(hints(200, fields), (hold, limits.to_vec()), "{fields:?}");
        }
    }

    /// Responses as the vendors document them, and each limit: name, unit, quota, remaining number,
    /// reset in milliseconds, and whether it refills evenly.
    const RESPONSES: [(&str, &[&str]); 6] = [
        // GitHub Docs, "Rate limits for the REST API".
        (
            "x-ratelimit-limit: 5000\nx-ratelimit-remaining: 4987\nx-ratelimit-used: 13\n\
             x-ratelimit-reset: 1700001800\nx-ratelimit-resource: core",
            &["core Requests 5000 4987 1800000 AtReset"],
        ),
        // OpenAI, "Rate limits", section "Rate limits in headers".
        (
            "x-ratelimit-limit-requests: 60\nx-ratelimit-limit-tokens: 150000\n\
             x-ratelimit-remaining-requests: 59\nx-ratelimit-remaining-tokens: 149984\n\
             x-ratelimit-reset-requests: 1s\nx-ratelimit-reset-tokens: 6m0s",
            &[
                "x-ratelimit-remaining-requests Requests 60 59 1000 Gradual",
                "x-ratelimit-remaining-tokens Tokens 150000 149984 360000 Gradual",
            ],
        ),
        // Anthropic, "Rate limits", section "Response headers". Whole seconds count as their end.
        (
            "date: Tue, 14 Nov 2023 22:13:20 GMT\n\
             anthropic-ratelimit-requests-limit: 1000\n\
             anthropic-ratelimit-requests-remaining: 999\n\
             anthropic-ratelimit-requests-reset: 2023-11-14T22:13:20Z\n\
             anthropic-ratelimit-input-tokens-limit: 80000\n\
             anthropic-ratelimit-input-tokens-remaining: 20000\n\
             anthropic-ratelimit-input-tokens-reset: 2023-11-14T22:14:05Z\n\
             anthropic-ratelimit-output-tokens-limit: 16000\n\
             anthropic-ratelimit-output-tokens-remaining: 16000\n\
             anthropic-ratelimit-output-tokens-reset: 2023-11-14T22:13:20Z\n\
             anthropic-ratelimit-tokens-limit: 96000\n\
             anthropic-ratelimit-tokens-remaining: 36000\n\
             anthropic-ratelimit-tokens-reset: 2023-11-14T22:14:05Z",
            &[
                "anthropic-ratelimit-requests-remaining Requests 1000 999 1000 Gradual",
                "anthropic-ratelimit-tokens-remaining Tokens 96000 36000 46000 Gradual",
                "anthropic-ratelimit-input-tokens-remaining InputTokens 80000 20000 46000 Gradual",
                "anthropic-ratelimit-output-tokens-remaining OutputTokens 16000 16000 1000 Gradual",
            ],
        ),
        // shopify.dev, "REST Admin API rate limits".
        (
            "x-shopify-shop-api-call-limit: 32/40",
            &["x-shopify-shop-api-call-limit Requests 40 8 16000 Gradual"],
        ),
        // The draft, with units told apart.
        (
            "ratelimit-policy: \"permin\";q=50;w=60, \"tpm\";q=90000;w=60;qu=\"tokens\"\n\
             ratelimit: \"permin\";r=12;t=30\nratelimit: \"tpm\";r=800;t=30",
            &["permin Requests 50 12 30000 AtReset", "tpm Tokens 90000 800 30000 AtReset"],
        ),
        // Envoy.
        (
            "x-ratelimit-limit: 100, 100;w=60\nx-ratelimit-remaining: 9\nx-ratelimit-reset: 5",
            &["x-ratelimit-remaining Requests 100 9 5000 AtReset"],
        ),
    ];

    #[test]
    fn responses_of_vendors() {
        for (response, expected) in RESPONSES {
            let fields: Vec<(&str, &str)> =
                response.lines().map(|line| line.split_once(": ").unwrap()).collect();
            let hints = all_hints(200, &fields);
            assert_eq!(hints.hold, Duration::ZERO, "{response}");
            let found = hints.limits.iter().map(|limit| {
                let (unit, quota, reset) =
                    (limit.unit.unwrap(), limit.quota.unwrap(), limit.reset.as_millis());
                let ServerLimit { name, remaining, refill, .. } = limit;
                format!("{name} {unit:?} {quota} {remaining} {reset} {refill:?}")
            });
            assert_eq!(found.collect::<Vec<_>>(), expected, "{response}");
        }
    }

    /// A window of a year would delay all requests after the reset.
    #[test]
    fn windows_are_cut_to_the_longest_hold() {
        let policy = ("ratelimit-policy", r#""p";q=5;w=31536000"#);
        let hints = all_hints(200, &[policy, ("ratelimit", r#""p";r=1;t=9"#)]);
        assert_eq!(hints.limits[0].window, Some(MAX_HOLD));
    }

    #[test]
    fn a_bucket_opens_before_its_reset() {
        let limit = ServerLimit {
            unit: Some(QuotaUnit::Tokens),
            quota: Some(1000),
            refill: Refill::Gradual,
            ..ServerLimit::new("", 400, Duration::from_secs(60))
        };
        let opens_ms = |amount| limit.opens_after(amount).as_millis();
        assert_eq!([400, 401, 700, 1000, 5000].map(opens_ms), [0, 100, 30_000, 60_000, 60_000]);
        let fixed = ServerLimit { refill: Refill::AtReset, ..limit.clone() };
        assert_eq!(fixed.opens_after(401), Duration::from_secs(60));
    }
}
