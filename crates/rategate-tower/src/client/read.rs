//! A parser of the limits that servers report. Every function is total: any bytes give a value or
//! nothing.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::headers::{LEGACY, OLDER, RATELIMIT};

/// The maximum length of a value that is parsed, and the maximum number of limits per response.
const MAX_VALUE_BYTES: usize = 8192;
const MAX_WINDOWS: usize = 32;

/// The values from which a reset is a Unix time in seconds, and in milliseconds. As seconds from
/// now, the first would be 31 years.
const UNIX_FROM: u64 = 1_000_000_000;
const UNIX_MS_FROM: u64 = 1_000_000_000_000;

/// The parsed hints of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signals {
    pub(super) retry_after: Option<Duration>,
    pub(super) windows: Vec<Window>,
}

/// A number of requests, and the time until more are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) remaining: u64,
    pub(super) reset: Duration,
}

impl Signals {
    /// Parses the fields. `now` is the client's clock, used unless the response states the
    /// server's.
    pub(super) fn read(headers: &HeaderMap, now: SystemTime) -> Self {
        let now = headers.get(DATE).and_then(date).unwrap_or(now);
        let mut windows = Vec::new();
        for line in headers.get_all(RATELIMIT) {
            // A field with any invalid part is ignored as a whole.
            windows.extend(current(line).unwrap_or_default());
        }
        for [_, remaining, reset] in [&OLDER, &LEGACY] {
            windows.extend(triple(headers, remaining, reset, now));
        }
        windows.truncate(MAX_WINDOWS);
        let retry_after = headers.get_all(RETRY_AFTER).into_iter();
        let retry_after = retry_after.filter_map(|value| wait(value, now)).max();
        Self { retry_after, windows }
    }
}

/// Parses `Retry-After`: seconds, or a date.
fn wait(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    if let Some(seconds) = number(text(value)?) {
        return Some(Duration::from_secs(seconds.up));
    }
    // A date in the past means no wait.
    Some(date(value)?.duration_since(now).unwrap_or_default())
}

fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(text(value)?).ok()
}

/// Parses `RateLimit`: a list such as `"burst";r=10;t=1, "daily";r=120;t=60`, or the dictionary of
/// an earlier draft, `limit=100, remaining=50, reset=5`.
fn current(line: &HeaderValue) -> Option<Vec<Window>> {
    let mut windows = Vec::new();
    let (mut entry_remaining, mut entry_reset) = (None, None);
    for member in split_outside_quotes(text(line)?, b',').take(MAX_WINDOWS) {
        let mut fields = split_outside_quotes(member, b';');
        let (mut remaining, mut reset) = (None, None);
        let name = fields.next()?;
        match name.split_once('=') {
            _ if name.starts_with('"') => {}
            Some(("remaining", value)) => entry_remaining = Some(digits(value)?),
            Some(("reset", value)) => entry_reset = Some(digits(value)?),
            _ => {}
        }
        for field in fields {
            match field.split_once('=') {
                Some(("r", value)) => remaining = Some(digits(value)?),
                Some(("t", value)) => reset = Some(digits(value)?),
                _ => {}
            }
        }
        windows.extend(window(remaining, reset));
    }
    windows.extend(window(entry_remaining, entry_reset));
    Some(windows)
}

/// Returns a window. A remaining number without a time means nothing.
fn window(remaining: Option<u64>, reset: Option<u64>) -> Option<Window> {
    Some(Window { remaining: remaining?, reset: Duration::from_secs(reset?) })
}

/// Parses `…-Remaining` and `…-Reset`. Of several lines the strictest counts.
fn triple(
    headers: &HeaderMap,
    remaining: &HeaderName,
    reset: &HeaderName,
    now: SystemTime,
) -> Option<Window> {
    let numbers = |name| headers.get_all(name).into_iter().filter_map(|it| number(text(it)?));
    let remaining = numbers(remaining).map(|number| number.down).min()?;
    let reset = numbers(reset).map(|number| number.up).max()?;
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let reset = match reset {
        UNIX_MS_FROM.. => Duration::from_millis(reset).saturating_sub(since_1970),
        UNIX_FROM.. => Duration::from_secs(reset).saturating_sub(since_1970),
        _ => Duration::from_secs(reset),
    };
    Some(Window { remaining, reset })
}

/// A decimal number, rounded down and up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number {
    down: u64,
    up: u64,
}

/// Parses the number at the start of a text: `100`, `100, 100;w=60`, or `1.5`, which some servers
/// send. Numbers beyond 64 bits saturate.
fn number(text: &str) -> Option<Number> {
    let first = text.split([',', ';']).next()?.trim();
    let (whole, fraction) = first.split_once('.').unwrap_or((first, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let down = whole.parse().unwrap_or(u64::MAX);
    let is_more = fraction.bytes().any(|digit| digit != b'0');
    Some(Number { down, up: down.saturating_add(is_more.into()) })
}

/// Parses a structured field's integer that is not negative: up to 15 digits.
fn digits(text: &str) -> Option<u64> {
    let fits = text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

fn text(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?.trim();
    (text.len() <= MAX_VALUE_BYTES).then_some(text)
}

/// Splits a text at separators outside quotes.
fn split_outside_quotes(text: &str, at: u8) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_border = move |character: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            '"' if !was_escaped => is_quoted = !is_quoted,
            '\\' if is_quoted && !was_escaped => is_escaped = true,
            _ => {}
        }
        !is_quoted && character == char::from(at)
    };
    text.split(is_border).map(str::trim)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::{HeaderMap, HeaderValue};

    use super::{Number, Signals, Window, current, number, split_outside_quotes};

    fn windows(line: &str) -> Option<Vec<(u64, u64)>> {
        let windows = current(&HeaderValue::from_str(line).unwrap())?;
        let pair = |window: &Window| (window.remaining, window.reset.as_secs());
        Some(windows.iter().map(pair).collect())
    }

    /// A line, and its expected remaining numbers and resets; `None` if the whole line is ignored.
    type Case = (&'static str, Option<&'static [(u64, u64)]>);

    #[test]
    fn structured_fields() {
        let table: [Case; 17] = [
            (r#""default";r=50;t=30"#, Some(&[(50, 30)])),
            (r#""default" ; r=50 ; t=30 "#, Some(&[(50, 30)])),
            ("default;r=50;t=30", Some(&[(50, 30)])),
            (r#""a";r=1;t=2,"b";r=3;t=4"#, Some(&[(1, 2), (3, 4)])),
            (r#""a";t=2;pk=:cHsdsRa894==:;r=1;x"#, Some(&[(1, 2)])),
            (r#""a;r=9;t=9,b";r=1;t=2"#, Some(&[(1, 2)])),
            (r#""a\";r=9;t=9\\";r=1;t=2"#, Some(&[(1, 2)])),
            (r#""default";r=50"#, Some(&[])),
            (r#""default""#, Some(&[])),
            ("limit=100, remaining=50, reset=5", Some(&[(50, 5)])),
            (r#""a";r=999999999999999;t=0"#, Some(&[(999_999_999_999_999, 0)])),
            (r#""a";r=1000000000000000;t=0"#, None),
            (r#""a";r=-1;t=2"#, None),
            (r#""a";r=1.5;t=2"#, None),
            (r#""a";r=;t=2"#, None),
            (r#""a";r=1;t=2,"b";r=x;t=4"#, None),
            ("", Some(&[])),
        ];
        for (line, expected) in table {
            assert_eq!(windows(line), expected.map(<[_]>::to_vec), "{line}");
        }
    }

    #[test]
    fn numbers() {
        let exact = |number| Some(Number { down: number, up: number });
        let table = [
            ("0", exact(0)),
            ("100", exact(100)),
            ("100, 100;w=60", exact(100)),
            ("100;w=60", exact(100)),
            ("1.0", exact(1)),
            ("1.01", Some(Number { down: 1, up: 2 })),
            ("99999999999999999999999", exact(u64::MAX)),
            ("99999999999999999999999.5", exact(u64::MAX)),
            ("+1", None),
            ("-1", None),
            ("1e9", None),
            ("1.", None),
            (".5", None),
            ("1.5.1", None),
            ("0x10", None),
            ("١", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    #[test]
    fn borders_within_quotes_are_none() {
        let split = |text| split_outside_quotes(text, b',').collect::<Vec<_>>();
        assert_eq!(split(r#"a, "b,c" ,d"#), ["a", r#""b,c""#, "d"]);
        assert_eq!(split(r#""a\",b",c"#), [r#""a\",b""#, "c"]);
        assert_eq!(split(r#""open, for ever"#), [r#""open, for ever"#]);
    }

    /// Parses seeded random sequences of the bytes that fields consist of.
    #[test]
    fn any_bytes_give_a_value_or_nothing() {
        const PIECES: [&str; 28] = [
            "\"",
            "\\",
            ";",
            ",",
            "=",
            "r",
            "t",
            "r=",
            ";t=",
            "pk",
            ":",
            "0",
            "1",
            "999999999999999",
            "18446744073709551615",
            ".",
            "-",
            " ",
            "\t",
            "remaining=",
            "reset=",
            "limit",
            "GMT",
            "Tue, 14 Nov 2023 22:13:50 GMT",
            "Tue, 31 Feb 9999 25:61:61 GMT",
            "é",
            "\u{80}",
            "w=60",
        ];
        let names = [
            "ratelimit",
            "ratelimit-remaining",
            "ratelimit-reset",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "retry-after",
            "date",
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
                        bytes.extend(random.choice(PIECES).unwrap().bytes());
                    }
                }
                if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                    headers.append(name, value);
                }
            }
            let signals = Signals::read(&headers, SystemTime::UNIX_EPOCH);
            let is_understood = !signals.windows.is_empty() || signals.retry_after.is_some();
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
        headers.append("ratelimit", HeaderValue::from_static(r#""b";r=1;t=1"#));
        assert_eq!(Signals::read(&headers, SystemTime::UNIX_EPOCH).windows.len(), 32);
    }
}
