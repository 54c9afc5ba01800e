//! The hints of a response for a client's next requests.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use super::read::{Signals, Window};

/// The default of the longest time that a server can make a client hold.
pub const MAX_HOLD: Duration = Duration::from_secs(3600);

/// The hold after a 429 without a time, or with the time 0. Some servers send 0 when less than a
/// second is left.
pub const DEFAULT_BACKOFF: Duration = Duration::from_secs(1);

/// A hint of a response for a client's next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerHint {
    /// Continue as before.
    Nothing,
    /// Send nothing for this time.
    Hold(Duration),
    /// Send at most `remaining` requests, at least one, within `over`.
    Spread {
        /// The number of requests.
        remaining: u64,
        /// The time that they have to last.
        over: Duration,
    },
}

/// Returns the hint of a response's status and header fields.
///
/// * After a 429 or 503: `Retry-After`, in seconds or as a date. Without it, the reset of an
///   exhausted limit. A 429 without either: [`DEFAULT_BACKOFF`].
/// * After any other status: the reset of an exhausted limit. Otherwise the remaining requests of
///   the slowest limit, and its reset. `Retry-After` has another meaning there, and is ignored.
///
/// Dates are compared with the response's own `Date` if it has one, so that the clocks of client
/// and server need not agree. Otherwise they are compared with `now`. A reset in Unix time, as
/// GitHub sends it, is recognized by its size.
///
/// Any bytes give a hint. Fields that cannot be parsed are treated as absent. No hold is longer
/// than `max_hold`. If the reset is further away than that, requests are not spread at all.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use http::{HeaderMap, HeaderValue, StatusCode};
/// use rategate_tower::client::{MAX_HOLD, ServerHint, parse_hints};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("ratelimit", HeaderValue::from_static(r#""default";r=50;t=30"#));
/// let hint = parse_hints(StatusCode::OK, &headers, SystemTime::now(), MAX_HOLD);
/// assert_eq!(hint, ServerHint::Spread { remaining: 50, over: Duration::from_secs(30) });
///
/// headers.insert("retry-after", HeaderValue::from_static("7"));
/// let hint = parse_hints(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now(), MAX_HOLD);
/// assert_eq!(hint, ServerHint::Hold(Duration::from_secs(7)));
/// ```
#[must_use]
pub fn parse_hints(
    status: StatusCode,
    headers: &HeaderMap,
    now: SystemTime,
    max_hold: Duration,
) -> ServerHint {
    let signals = Signals::read(headers, now);
    let is_over_limit = status == StatusCode::TOO_MANY_REQUESTS;
    if is_over_limit || status == StatusCode::SERVICE_UNAVAILABLE {
        let min_hold = if is_over_limit { DEFAULT_BACKOFF } else { Duration::ZERO };
        let requested = signals.retry_after.or_else(|| used_up(&signals.windows));
        let hold = match requested {
            Some(requested) if requested > Duration::ZERO => requested,
            _ => min_hold,
        };
        return hold_for(hold, max_hold);
    }
    if let Some(reset) = used_up(&signals.windows) {
        return hold_for(reset, max_hold);
    }
    match slowest(&signals.windows) {
        Some(Window { remaining, reset }) if reset <= max_hold && !reset.is_zero() => {
            ServerHint::Spread { remaining, over: reset }
        }
        _ => ServerHint::Nothing,
    }
}

fn hold_for(hold: Duration, max_hold: Duration) -> ServerHint {
    match hold.min(max_hold) {
        Duration::ZERO => ServerHint::Nothing,
        hold => ServerHint::Hold(hold),
    }
}

/// Returns the time until all exhausted limits have been reset.
fn used_up(windows: &[Window]) -> Option<Duration> {
    windows.iter().filter(|window| window.remaining == 0).map(|window| window.reset).max()
}

/// Returns the limit with the fewest requests per time.
fn slowest(windows: &[Window]) -> Option<Window> {
    // Products that saturate exceed any real limit on both sides, and neither limit is slow.
    let weight = |ours: &Window, other: &Window| {
        u128::from(ours.remaining).saturating_mul(other.reset.as_nanos())
    };
    windows.iter().copied().min_by(|a, b| weight(a, b).cmp(&weight(b, a)))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

    use super::{DEFAULT_BACKOFF, MAX_HOLD, ServerHint, parse_hints};

    const UNIX_NOW: u64 = 1_700_000_000;

    fn hint(status: u16, fields: &[(&str, &str)]) -> ServerHint {
        let now = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(UNIX_NOW)).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        parse_hints(StatusCode::from_u16(status).unwrap(), &headers, now, MAX_HOLD)
    }

    fn hold(seconds: u64) -> ServerHint {
        ServerHint::Hold(Duration::from_secs(seconds))
    }

    fn spread(remaining: u64, seconds: u64) -> ServerHint {
        ServerHint::Spread { remaining, over: Duration::from_secs(seconds) }
    }

    /// A status, fields, and the expected hint.
    type Case = (u16, &'static [(&'static str, &'static str)], ServerHint);

    #[test]
    fn refusals() {
        const DATE: &str = "Tue, 14 Nov 2023 22:13:50 GMT"; // UNIX_NOW + 30 s
        let table: [Case; 16] = [
            (429, &[("retry-after", "7")], hold(7)),
            (503, &[("retry-after", "7")], hold(7)),
            (429, &[("retry-after", DATE)], hold(30)),
            // The server's own clock takes precedence over the client's.
            (429, &[("retry-after", DATE), ("date", "Tue, 14 Nov 2023 22:13:48 GMT")], hold(2)),
            (
                429,
                &[("retry-after", "Tue, 14 Nov 2000 22:13:50 GMT")],
                ServerHint::Hold(DEFAULT_BACKOFF),
            ),
            (429, &[("retry-after", "0")], ServerHint::Hold(DEFAULT_BACKOFF)),
            (429, &[("retry-after", "soon")], ServerHint::Hold(DEFAULT_BACKOFF)),
            (429, &[], ServerHint::Hold(DEFAULT_BACKOFF)),
            (503, &[], ServerHint::Nothing),
            (503, &[("retry-after", "0")], ServerHint::Nothing),
            // Absurd values cannot hold a client for longer than its own maximum.
            (429, &[("retry-after", "99999999999999999999")], ServerHint::Hold(MAX_HOLD)),
            (429, &[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")], ServerHint::Hold(MAX_HOLD)),
            // Retry-After takes precedence over a reset.
            (429, &[("ratelimit", r#""p";r=0;t=60"#), ("retry-after", "5")], hold(5)),
            (429, &[("ratelimit", r#""p";r=0;t=60"#)], hold(60)),
            (429, &[("ratelimit", r#""p";r=9;t=60"#)], ServerHint::Hold(DEFAULT_BACKOFF)),
            (429, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000042")], hold(42)),
        ];
        for (status, fields, expected) in table {
            assert_eq!(hint(status, fields), expected, "{status} {fields:?}");
        }
    }

    #[test]
    fn responses_that_passed() {
        let table: [(&[(&str, &str)], ServerHint); 13] = [
            (&[], ServerHint::Nothing),
            (&[("retry-after", "7")], ServerHint::Nothing),
            (&[("ratelimit", r#""default";r=50;t=30"#)], spread(50, 30)),
            (&[("ratelimit", r#""default";r=0;t=30"#)], hold(30)),
            (&[("ratelimit", r#""default";r=0"#)], ServerHint::Nothing),
            (&[("ratelimit", r#""default";r=50;t=0"#)], ServerHint::Nothing),
            // Two per second are slower than ten.
            (&[("ratelimit", r#""burst";r=10;t=1, "daily";r=120;t=60"#)], spread(120, 60)),
            (&[("ratelimit", r#""a";r=0;t=5"#), ("ratelimit", r#""b";r=0;t=9"#)], hold(9)),
            (&[("ratelimit-remaining", "3"), ("ratelimit-reset", "6")], spread(3, 6)),
            (&[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1700000006")], spread(3, 6)),
            (&[("x-ratelimit-remaining", "3")], ServerHint::Nothing),
            // A day's quota is not spread over the day.
            (&[("ratelimit", r#""daily";r=999;t=86400"#)], ServerHint::Nothing),
            (&[("ratelimit", r#""daily";r=0;t=86400"#)], ServerHint::Hold(MAX_HOLD)),
        ];
        for (fields, expected) in table {
            assert_eq!(hint(200, fields), expected, "{fields:?}");
        }
    }
}
