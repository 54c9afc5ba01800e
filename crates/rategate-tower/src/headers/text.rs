//! Spans and instants as text: decimal seconds, Go's durations and RFC 3339.
//!
//! Readers take any text, and return `None` for what they do not know. They round up, so that a
//! client is never early.

use std::time::{Duration, SystemTime};

use http::HeaderValue;

/// The maximum length of a value that is read.
const MAX_VALUE_BYTES: usize = 8192;

const SECOND_NS: u64 = 1_000_000_000;

/// The units of Go's `time.Duration`, each before any that its name begins with.
const UNITS: [(&str, u64); 7] = [
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
    ("h", 3600 * SECOND_NS),
    ("m", 60 * SECOND_NS),
    ("s", SECOND_NS),
];

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Returns the text of a value, unless it is too long or no text.
pub(crate) fn field_text(value: &HeaderValue) -> Option<&str> {
    let text = std::str::from_utf8(value.as_bytes()).ok()?.trim();
    (text.len() <= MAX_VALUE_BYTES).then_some(text)
}

/// Reads a decimal number of seconds: `7`, or `2.5`.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    decimal(text, SECOND_NS)
}

/// Reads a duration as Go writes it: `6m0s`, `2m52.8s`, `12ms`.
pub(crate) fn go_duration(mut text: &str) -> Option<Duration> {
    let mut sum = (!text.is_empty()).then_some(Duration::ZERO)?;
    while !text.is_empty() {
        let (number, rest) = text.split_at_checked(text.find(|it| !is_decimal(it))?)?;
        let (rest, unit_ns) =
            UNITS.iter().find_map(|(unit, ns)| Some((rest.strip_prefix(unit)?, *ns)))?;
        sum = sum.saturating_add(decimal(number, unit_ns)?);
        text = rest;
    }
    Some(sum)
}

/// Reads an instant: `2025-08-21T12:40:59Z`, with a fraction or an offset if there is one.
///
/// One in whole seconds counts as its end, because the fraction may have been cut off.
pub(crate) fn rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.split_once(['T', 't'])?;
    let (time, zone) = time.split_at_checked(time.find(['Z', 'z', '+', '-'])?)?;
    let (time, fraction) = time.split_once('.').map_or((time, None), |it| (it.0, Some(it.1)));
    let [year, month, day] = exactly(date.split('-'))?;
    let month = MONTHS.get(usize::from(two_digits(month)?.checked_sub(1)?))?;
    // Calendars are httpdate's. It wants the weekday, and rejects those that do not fit.
    let http_date = |weekday| {
        httpdate::parse_http_date(&format!("{weekday}, {day} {month} {year} {time} GMT")).ok()
    };
    let instant =
        ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].into_iter().find_map(http_date)?;
    let fraction_ns = fraction.map_or(Some(SECOND_NS), |it| sub_second_ns(it, SECOND_NS))?;
    let instant = instant.checked_add(Duration::from_nanos(fraction_ns))?;
    let Some(offset) = zone.strip_prefix(['+', '-']) else {
        return (zone.len() == 1).then_some(instant);
    };
    let [hours, minutes] = exactly(offset.split(':'))?;
    let (hours, minutes) = (u64::from(two_digits(hours)?), u64::from(two_digits(minutes)?));
    let offset = Duration::from_secs(hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)?);
    if zone.starts_with('+') { instant.checked_sub(offset) } else { instant.checked_add(offset) }
}

/// Reads a number of at most two digits, such as a month.
fn two_digits(text: &str) -> Option<u8> {
    let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Returns the items if there are exactly so many.
fn exactly<'t, const N: usize>(items: impl Iterator<Item = &'t str>) -> Option<[&'t str; N]> {
    let mut found = [""; N];
    let mut count = 0_usize;
    for item in items {
        *found.get_mut(count)? = item;
        count = count.saturating_add(1);
    }
    (count == N).then_some(found)
}

const fn is_decimal(character: char) -> bool {
    character.is_ascii_digit() || character == '.'
}

/// Reads digits with or without a fraction, as a count of a unit. Too much for a duration is the
/// longest one.
fn decimal(text: &str, unit_ns: u64) -> Option<Duration> {
    const SECOND: u128 = 1_000_000_000;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = u128::from(digits(whole)?).saturating_mul(unit_ns.into());
    let ns = whole.saturating_add(sub_second_ns(fraction, unit_ns)?.into());
    let rest_ns = u32::try_from(ns % SECOND).unwrap_or_default();
    Some(u64::try_from(ns / SECOND).map_or(Duration::MAX, |s| Duration::new(s, rest_ns)))
}

/// Returns the fraction of a unit whose digits these are, rounded up.
fn sub_second_ns(fraction: &str, unit_ns: u64) -> Option<u64> {
    digits(fraction)?;
    // Twelve digits are less than a nanosecond of an hour. Those behind them round up.
    let (read, cut) = fraction.split_at_checked(12).unwrap_or((fraction, ""));
    let scale = 10_u128.checked_pow(u32::try_from(read.len()).ok()?)?;
    let is_cut = cut.bytes().any(|byte| byte != b'0');
    let number = u128::from(digits(read)?).saturating_add(is_cut.into());
    u64::try_from(number.saturating_mul(unit_ns.into()).div_ceil(scale)).ok()
}

/// Reads a decimal number. One beyond 64 bits is the greatest.
pub(crate) fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{go_duration, rfc3339, seconds};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn seconds_are_decimal_and_rounded_up() {
        let table = [
            ("0", Some(Duration::ZERO)),
            ("7", Some(Duration::from_secs(7))),
            ("2.0", Some(Duration::from_secs(2))),
            ("1.5", Some(Duration::from_millis(1500))),
            ("0.0000000001", Some(Duration::from_nanos(1))),
            ("0.00000000000000000001", Some(Duration::from_nanos(1))),
            ("99999999999999999999999.5", Some(Duration::new(u64::MAX, 500_000_000))),
            ("+1", None),
            ("-1", None),
            ("1e9", None),
            ("1.", None),
            (".5", None),
            ("1.5.1", None),
            ("0x10", None),
            ("١", None),
            ("7s", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_those_of_go() {
        let table = [
            ("1s", Some(1000 * MS)),
            ("12ms", Some(12 * MS)),
            ("6m0s", Some(360_000 * MS)),
            ("2m52.8s", Some(172_800 * MS)),
            ("1h2m3.5s", Some(3_723_500 * MS)),
            ("33.023s", Some(33_023 * MS)),
            ("1.5h", Some(5_400_000 * MS)),
            ("7us", Some(Duration::from_micros(7))),
            ("7µs", Some(Duration::from_micros(7))),
            ("0.1ns", Some(Duration::from_nanos(1))),
            ("99999999999999999999h", Some(Duration::MAX)),
            ("", None),
            ("1", None),
            ("s", None),
            ("1d", None),
            ("1s2", None),
            ("-1s", None),
            ("1 s", None),
            ("1..5s", None),
        ];
        for (text, expected) in table {
            assert_eq!(go_duration(text), expected, "{text}");
        }
    }

    #[test]
    fn instants_are_those_of_rfc_3339() {
        const UNIX_S: u64 = 1_755_780_059;
        let at = |ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(UNIX_S * 1000 + ms));
        let table = [
            // Whole seconds count as their end.
            ("2025-08-21T12:40:59Z", at(1000)),
            ("2025-08-21t12:40:59z", at(1000)),
            ("2025-08-21T12:40:59.25Z", at(250)),
            ("2025-08-21T07:40:59.5-05:00", at(500)),
            ("2025-08-21T18:10:59.5+05:30", at(500)),
            ("2025-02-29T12:40:59Z", None),
            ("2025-13-01T12:40:59Z", None),
            ("2025-00-01T12:40:59Z", None),
            ("2025-08-21 12:40:59Z", None),
            ("2025-08-21T12:40Z", None),
            ("2025-08-21T12:40:59", None),
            ("2025-08-21T12:40:59.Z", None),
            ("2025-08-21T12:40:59Zz", None),
            ("2025-08-21T12:40:59+0530", None),
            ("2025-8-21T12:40:59Z", None),
            ("10000-08-21T12:40:59Z", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(rfc3339(text), expected, "{text}");
        }
    }
}
