//! The hints of a response for a client's next requests.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use super::read::{Signals, Window};

/// The default of the longest time that a server can make a client hold.
pub const LONGEST_HOLD: Duration = Duration::from_secs(3600);

/// The hold after a 429 without a time, or with the time 0. Some servers send 0 when less than a
/// second is left.
pub const BLIND_HOLD: Duration = Duration::from_secs(1);

/// A hint of a response for a client's next requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lesson {
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
///   exhausted limit. A 429 without either: [`BLIND_HOLD`].
/// * After any other status: the reset of an exhausted limit. Otherwise the remaining requests of
///   the slowest limit, and its reset. `Retry-After` has another meaning there, and is ignored.
///
/// Dates are compared with the response's own `Date` if it has one, so that the clocks of client
/// and server need not agree. Otherwise they are compared with `now`. A reset in Unix time, as
/// GitHub sends it, is recognized by its size.
///
/// Any bytes give a hint. Fields that cannot be parsed are treated as absent. No hold is longer
/// than `longest`, and requests are not spread over a longer time either.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use http::{HeaderMap, HeaderValue, StatusCode};
/// use rategate_tower::client::{LONGEST_HOLD, Lesson, learn};
///
/// let mut headers = HeaderMap::new();
/// headers.insert("ratelimit", HeaderValue::from_static(r#""default";r=50;t=30"#));
/// let lesson = learn(StatusCode::OK, &headers, SystemTime::now(), LONGEST_HOLD);
/// assert_eq!(lesson, Lesson::Spread { remaining: 50, over: Duration::from_secs(30) });
///
/// headers.insert("retry-after", HeaderValue::from_static("7"));
/// let lesson = learn(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now(), LONGEST_HOLD);
/// assert_eq!(lesson, Lesson::Hold(Duration::from_secs(7)));
/// ```
#[must_use]
pub fn learn(
    status: StatusCode,
    headers: &HeaderMap,
    now: SystemTime,
    longest: Duration,
) -> Lesson {
    let signals = Signals::read(headers, now);
    let is_over_limit = status == StatusCode::TOO_MANY_REQUESTS;
    if is_over_limit || status == StatusCode::SERVICE_UNAVAILABLE {
        let least = if is_over_limit { BLIND_HOLD } else { Duration::ZERO };
        let told = signals.retry_after.or_else(|| used_up(&signals.windows));
        let hold = match told {
            Some(told) if told > Duration::ZERO => told,
            _ => least,
        };
        return hold_for(hold, longest);
    }
    if let Some(reset) = used_up(&signals.windows) {
        return hold_for(reset, longest);
    }
    match slowest(&signals.windows) {
        Some(Window { remaining, reset }) if reset <= longest && !reset.is_zero() => {
            Lesson::Spread { remaining, over: reset }
        }
        _ => Lesson::Nothing,
    }
}

fn hold_for(hold: Duration, longest: Duration) -> Lesson {
    match hold.min(longest) {
        Duration::ZERO => Lesson::Nothing,
        hold => Lesson::Hold(hold),
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

    use super::{BLIND_HOLD, LONGEST_HOLD, Lesson, learn};

    const UNIX_NOW: u64 = 1_700_000_000;

    fn lesson(status: u16, fields: &[(&str, &str)]) -> Lesson {
        let now = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(UNIX_NOW)).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        learn(StatusCode::from_u16(status).unwrap(), &headers, now, LONGEST_HOLD)
    }

    fn hold(seconds: u64) -> Lesson {
        Lesson::Hold(Duration::from_secs(seconds))
    }

    fn spread(remaining: u64, seconds: u64) -> Lesson {
        Lesson::Spread { remaining, over: Duration::from_secs(seconds) }
    }

    /// A status, fields, and the expected hint.
    type Case = (u16, &'static [(&'static str, &'static str)], Lesson);

    #[test]
    fn refusals() {
        const DATE: &str = "Tue, 14 Nov 2023 22:13:50 GMT"; // UNIX_NOW + 30 s
        let table: [Case; 16] = [
            (429, &[("retry-after", "7")], hold(7)),
            (503, &[("retry-after", "7")], hold(7)),
            (429, &[("retry-after", DATE)], hold(30)),
            // The server's own clock takes precedence over the client's.
            (429, &[("retry-after", DATE), ("date", "Tue, 14 Nov 2023 22:13:48 GMT")], hold(2)),
            (429, &[("retry-after", "Tue, 14 Nov 2000 22:13:50 GMT")], Lesson::Hold(BLIND_HOLD)),
            (429, &[("retry-after", "0")], Lesson::Hold(BLIND_HOLD)),
            (429, &[("retry-after", "soon")], Lesson::Hold(BLIND_HOLD)),
            (429, &[], Lesson::Hold(BLIND_HOLD)),
            (503, &[], Lesson::Nothing),
            (503, &[("retry-after", "0")], Lesson::Nothing),
            // Absurd values cannot hold a client for longer than its own maximum.
            (429, &[("retry-after", "99999999999999999999")], Lesson::Hold(LONGEST_HOLD)),
            (429, &[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")], Lesson::Hold(LONGEST_HOLD)),
            // Retry-After takes precedence over a reset.
            (429, &[("ratelimit", r#""p";r=0;t=60"#), ("retry-after", "5")], hold(5)),
            (429, &[("ratelimit", r#""p";r=0;t=60"#)], hold(60)),
            (429, &[("ratelimit", r#""p";r=9;t=60"#)], Lesson::Hold(BLIND_HOLD)),
            (429, &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000042")], hold(42)),
        ];
        for (status, fields, expected) in table {
            assert_eq!(lesson(status, fields), expected, "{status} {fields:?}");
        }
    }

    #[test]
    fn responses_that_passed() {
        let table: [(&[(&str, &str)], Lesson); 13] = [
            (&[], Lesson::Nothing),
            (&[("retry-after", "7")], Lesson::Nothing),
            (&[("ratelimit", r#""default";r=50;t=30"#)], spread(50, 30)),
            (&[("ratelimit", r#""default";r=0;t=30"#)], hold(30)),
            (&[("ratelimit", r#""default";r=0"#)], Lesson::Nothing),
            (&[("ratelimit", r#""default";r=50;t=0"#)], Lesson::Nothing),
            // Two per second are slower than ten.
            (&[("ratelimit", r#""burst";r=10;t=1, "daily";r=120;t=60"#)], spread(120, 60)),
            (&[("ratelimit", r#""a";r=0;t=5"#), ("ratelimit", r#""b";r=0;t=9"#)], hold(9)),
            (&[("ratelimit-remaining", "3"), ("ratelimit-reset", "6")], spread(3, 6)),
            (&[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1700000006")], spread(3, 6)),
            (&[("x-ratelimit-remaining", "3")], Lesson::Nothing),
            // A day's quota is not spread over the day.
            (&[("ratelimit", r#""daily";r=999;t=86400"#)], Lesson::Nothing),
            (&[("ratelimit", r#""daily";r=0;t=86400"#)], Lesson::Hold(LONGEST_HOLD)),
        ];
        for (fields, expected) in table {
            assert_eq!(lesson(200, fields), expected, "{fields:?}");
        }
    }
}
