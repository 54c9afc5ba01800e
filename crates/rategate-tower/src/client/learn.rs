//! What a client should do after a response.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use super::read::{Signals, Window};

/// The longest that a server can make a client hold, if not said otherwise.
pub const LONGEST_HOLD: Duration = Duration::from_secs(3600);

/// How long a client holds after a 429 that does not say, or says 0: for some servers that is what
/// is left of less than a second.
pub const BLIND_HOLD: Duration = Duration::from_secs(1);

/// What a client should do after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lesson {
    /// Go on as before.
    Nothing,
    /// Send nothing for so long.
    Hold(Duration),
    /// Send no more than `remaining` requests, at least one, within `over`.
    Spread {
        /// How many.
        remaining: u64,
        /// How long they have to last.
        over: Duration,
    },
}

/// What a response's status and header fields ask of a client.
///
/// * After a 429 or 503: `Retry-After`, in seconds or as a date. Without it, the reset of a limit of
///   which nothing remains. A 429 without either: [`BLIND_HOLD`].
/// * After any other: the reset of a limit of which nothing remains; else what remains of the slowest
///   limit, and its reset. `Retry-After` means something else there, and is ignored.
///
/// Dates are compared with the response's own `Date` if it has one, so that the clocks of client and
/// server need not agree; else with `now`. A reset that is a Unix time, as GitHub sends it, is known
/// by its size.
///
/// Any bytes give a lesson. What cannot be understood is as if it were not there; nothing is held for
/// longer than `longest`, and what would last longer than that is not spread either.
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

/// How long until all limits have something again of which nothing remains.
fn used_up(windows: &[Window]) -> Option<Duration> {
    windows.iter().filter(|window| window.remaining == 0).map(|window| window.reset).max()
}

/// The one with the fewest requests for its time.
fn slowest(windows: &[Window]) -> Option<Window> {
    // What saturates is too much on both sides, and neither is slow.
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

    /// A status, fields, and what they teach.
    type Case = (u16, &'static [(&'static str, &'static str)], Lesson);

    #[test]
    fn refusals() {
        const DATE: &str = "Tue, 14 Nov 2023 22:13:50 GMT"; // UNIX_NOW + 30 s
        let table: [Case; 16] = [
            (429, &[("retry-after", "7")], hold(7)),
            (503, &[("retry-after", "7")], hold(7)),
            (429, &[("retry-after", DATE)], hold(30)),
            // The server's own clock goes before ours.
            (429, &[("retry-after", DATE), ("date", "Tue, 14 Nov 2023 22:13:48 GMT")], hold(2)),
            (429, &[("retry-after", "Tue, 14 Nov 2000 22:13:50 GMT")], Lesson::Hold(BLIND_HOLD)),
            (429, &[("retry-after", "0")], Lesson::Hold(BLIND_HOLD)),
            (429, &[("retry-after", "soon")], Lesson::Hold(BLIND_HOLD)),
            (429, &[], Lesson::Hold(BLIND_HOLD)),
            (503, &[], Lesson::Nothing),
            (503, &[("retry-after", "0")], Lesson::Nothing),
            // Absurd values do not stop a client for longer than it lets itself be stopped.
            (429, &[("retry-after", "99999999999999999999")], Lesson::Hold(LONGEST_HOLD)),
            (429, &[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")], Lesson::Hold(LONGEST_HOLD)),
            // Retry-After goes before a reset.
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
            // Two a second are slower than ten.
            (&[("ratelimit", r#""burst";r=10;t=1, "daily";r=120;t=60"#)], spread(120, 60)),
            (&[("ratelimit", r#""a";r=0;t=5"#), ("ratelimit", r#""b";r=0;t=9"#)], hold(9)),
            (&[("ratelimit-remaining", "3"), ("ratelimit-reset", "6")], spread(3, 6)),
            (&[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1700000006")], spread(3, 6)),
            (&[("x-ratelimit-remaining", "3")], Lesson::Nothing),
            // A day's worth is not spread over the day.
            (&[("ratelimit", r#""daily";r=999;t=86400"#)], Lesson::Nothing),
            (&[("ratelimit", r#""daily";r=0;t=86400"#)], Lesson::Hold(LONGEST_HOLD)),
        ];
        for (fields, expected) in table {
            assert_eq!(lesson(200, fields), expected, "{fields:?}");
        }
    }
}
