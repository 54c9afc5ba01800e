//! Instants in the formats of logs, in nanoseconds of Unix time.

use std::fmt;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::fmt::temporal::DateTimeParser;
use serde::Serialize;

use crate::SECOND_NS;

/// The length of a date in the common format.
pub(super) const CLF_BYTES: usize = 26;

/// A parser of dates that remembers the last one of each format, since logs repeat it.
#[derive(Debug, Default)]
pub(crate) struct Dates {
    common: Remembered,
    any: Remembered,
}

/// The last date of a format.
#[derive(Debug, Default)]
struct Remembered {
    text: Vec<u8>,
    /// `None` before the first date.
    at_ns: Option<u64>,
}

impl Dates {
    /// Parses a date in the common format.
    pub(super) fn clf(&mut self, text: &[u8]) -> Option<u64> {
        self.common.or_parse(text, clf)
    }

    /// Parses a date in any format of a JSON string.
    pub(super) fn any(&mut self, text: &[u8]) -> Option<u64> {
        self.any.or_parse(text, |text| rfc3339(text).or_else(|| clf(text)).or_else(|| epoch(text)))
    }
}

impl Remembered {
    fn or_parse(&mut self, text: &[u8], parse: fn(&[u8]) -> Option<u64>) -> Option<u64> {
        if self.text != text {
            self.at_ns = Some(parse(text)?);
            self.text.clear();
            self.text.extend_from_slice(text);
        }
        self.at_ns
    }
}

/// Parses `10/Oct/2000:13:55:36 -0700`.
fn clf(text: &[u8]) -> Option<u64> {
    // The parser of dates would accept shorter numbers too.
    let text = Some(text).filter(|text| text.len() == CLF_BYTES)?;
    unix_ns(strtime::parse("%d/%b/%Y:%H:%M:%S %z", text).ok()?.to_timestamp().ok()?)
}

/// Parses `2000-10-10T13:55:36.25-07:00`. A space may replace the T, the seconds may have
/// decimals, of which those beyond the ninth are cut, and `Z` means no offset.
fn rfc3339(text: &[u8]) -> Option<u64> {
    let parse = |text: &[u8]| DateTimeParser::new().parse_timestamp(text).ok().and_then(unix_ns);
    let dot = memchr::memchr(b'.', text).unwrap_or(text.len());
    let decimals = text.get(dot..)?.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
    if decimals <= 9 {
        return parse(text);
    }
    let (date, rest) = text.split_at_checked(dot.checked_add(10)?)?;
    parse(&[date, rest.get(decimals.checked_sub(9)?..)?].concat())
}

/// Parses a number of Unix time, in the unit implied by its size.
pub(super) fn epoch(text: &[u8]) -> Option<u64> {
    let (whole, decimals_ns) = match memchr::memchr(b'.', text) {
        Some(dot) => {
            let (whole, decimals) = text.split_at_checked(dot)?;
            (whole, fraction_ns(decimals.get(1..)?)?)
        }
        None => (text, 0),
    };
    let whole = whole_number(whole)?;
    match whole {
        0..100_000_000_000 => whole.checked_mul(SECOND_NS)?.checked_add(decimals_ns),
        _ if decimals_ns > 0 => None,
        100_000_000_000..100_000_000_000_000 => whole.checked_mul(1_000_000),
        100_000_000_000_000..100_000_000_000_000_000 => whole.checked_mul(1_000),
        _ => Some(whole),
    }
}

/// Returns the nanoseconds of the digits after the point; those beyond the ninth are cut.
fn fraction_ns(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nine: Vec<u8> = digits.iter().chain(b"000000000").take(9).copied().collect();
    whole_number(&nine)
}

/// Parses a whole number of 64 bits.
pub(super) fn whole_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| digit.wrapping_sub(b'0'))?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

fn unix_ns(at: Timestamp) -> Option<u64> {
    u64::try_from(at.as_nanosecond()).ok()
}

/// An instant in nanoseconds of Unix time, displayed to the second: `2000-10-10T20:55:36Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixTime(pub u64);

impl fmt::Display for UnixTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = i64::try_from(self.0.div_euclid(SECOND_NS)).unwrap_or(i64::MAX);
        fmt::Display::fmt(&Timestamp::from_second(second).unwrap_or_default(), f)
    }
}

impl Serialize for UnixTime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::{Dates, UnixTime, clf, epoch, rfc3339};

    const SEED_NS: u64 = 971_211_336_000_000_000;

    #[test]
    fn one_instant_in_every_spelling() {
        assert_eq!(clf(b"10/Oct/2000:13:55:36 -0700"), Some(SEED_NS));
        for text in
            ["2000-10-10T20:55:36Z", "2000-10-10 13:55:36-07:00", "2000-10-10T22:25:36.000+0130"]
        {
            assert_eq!(rfc3339(text.as_bytes()), Some(SEED_NS), "{text}");
        }
        for text in
            ["971211336", "971211336.0", "971211336000", "971211336000000", "971211336000000000"]
        {
            assert_eq!(epoch(text.as_bytes()), Some(SEED_NS), "{text}");
        }
        assert_eq!(epoch(b"971211336.25"), Some(SEED_NS + 250_000_000));
        assert_eq!(rfc3339(b"2000-10-10T20:55:36.0000000019Z"), Some(SEED_NS + 1));
        assert_eq!(UnixTime(SEED_NS).to_string(), "2000-10-10T20:55:36Z");
    }

    #[test]
    fn every_day_is_read_back() {
        let mut dates = Dates::default();
        for day in 0..60_000_u64 {
            let at_ns = day * 86_400_000_000_000 + 43_200_000_000_000;
            let text = UnixTime(at_ns).to_string();
            assert_eq!(rfc3339(text.as_bytes()), Some(at_ns), "{text}");
            let names = [
                "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
            ];
            let name = names[text[5..7].parse::<usize>().unwrap() - 1];
            let text = format!("{}/{name}/{}:12:00:00 +0000", &text[8..10], &text[..4]);
            assert_eq!(dates.clf(text.as_bytes()), Some(at_ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "10/Oct/2000:13:55:36 -070",
            "32/Oct/2000:13:55:36 -0700",
            "29/Feb/2001:13:55:36 -0700",
            "10/Okt/2000:13:55:36 -0700",
            "10/Oct/1969:13:55:36 -0700",
            "10/Oct/2000:24:55:36 -0700",
            "10/Oct/2000:13:55:36 x0700",
            "10/Oct/9999:13:55:36 -0700",
            "",
        ] {
            assert_eq!(clf(text.as_bytes()), None, "{text}");
        }
        for text in [
            "2000-10-10",
            "2000-10-10T20:55:36",
            "2000-10-10T20:55:36.Z",
            "2000-10-10T20:55:36.5",
            "2000/10/10T20:55:36Z",
        ] {
            assert_eq!(rfc3339(text.as_bytes()), None, "{text}");
        }
        for text in ["", "-5", "5.", ".5", "1e9", "99999999999999999999", "971211336000.5"] {
            assert_eq!(epoch(text.as_bytes()), None, "{text}");
        }
    }
}
