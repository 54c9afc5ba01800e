//! Instants in the formats of logs, in nanoseconds of Unix time.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "every number is read from a few digits, and checked before it is used"
)]

use std::fmt;

const SECOND_NS: u64 = 1_000_000_000;
const DAY_S: i64 = 86_400;
/// The last second that 64 bits of nanoseconds hold, in 2554.
const LAST_S: i64 = 18_446_744_072;
const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
/// The length of a date in the common format.
pub(in crate::analyze) const CLF_BYTES: usize = 26;

/// Parses `10/Oct/2000:13:55:36 -0700`.
pub(in crate::analyze) fn clf(text: &[u8]) -> Option<u64> {
    if text.len() != CLF_BYTES {
        return None;
    }
    let fence = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    if fence.iter().any(|&(at, byte)| text.get(at) != Some(&byte)) {
        return None;
    }
    let name = text.get(3..6)?;
    let month = MONTHS.chunks(3).zip(1..).find(|(month, _)| *month == name)?.1;
    let day_s = days(number(text.get(7..11)?)?, month, number(text.get(0..2)?)?)? * DAY_S;
    let clock_s = clock(text.get(12..20)?)?;
    in_ns(day_s + clock_s - offset(text.get(21..23)?, text.get(23..26)?)?, 0)
}

/// Parses `2000-10-10T13:55:36.25-07:00`. A space may replace the T, the seconds may have
/// decimals, and `Z` means no offset.
pub(in crate::analyze) fn rfc3339(text: &[u8]) -> Option<u64> {
    let fence = [(4, b'-'), (7, b'-')];
    let is_parted = matches!(text.get(10), Some(b'T' | b't' | b' '));
    if !is_parted || fence.iter().any(|&(at, byte)| text.get(at) != Some(&byte)) {
        return None;
    }
    let date = [text.get(0..4)?, text.get(5..7)?, text.get(8..10)?];
    let [year, month, day] = date.map(number);
    let day_s = days(year?, month?, day?)? * DAY_S;
    let clock_s = clock(text.get(11..19)?)?;
    let rest = text.get(19..)?;
    let (fraction_ns, zone) = match rest.split_first() {
        Some((b'.', rest)) => {
            let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
            let (digits, zone) = rest.split_at(end);
            (fraction(digits)?, zone)
        }
        _ => (0, rest),
    };
    let offset_s = match zone {
        b"Z" | b"z" => 0,
        [_, _, _, b':', _, _] => {
            offset(zone.get(0..2)?, &[zone.get(2..3)?, zone.get(4..6)?].concat())?
        }
        [_, _, _, _, _] => offset(zone.get(0..2)?, zone.get(2..5)?)?,
        _ => return None,
    };
    in_ns(day_s + clock_s - offset_s, fraction_ns)
}

/// Parses a number of Unix time, in the unit implied by its size.
pub(in crate::analyze) fn epoch(text: &[u8]) -> Option<u64> {
    let (whole, decimals) = match memchr::memchr(b'.', text) {
        Some(dot) => (text.get(..dot)?, fraction(text.get(dot + 1..)?)?),
        None => (text, 0),
    };
    let whole = whole_number(whole)?;
    match whole {
        0..100_000_000_000 => in_ns(i64::try_from(whole).ok()?, decimals),
        _ if decimals > 0 => None,
        100_000_000_000..100_000_000_000_000 => whole.checked_mul(1_000_000),
        100_000_000_000_000..100_000_000_000_000_000 => whole.checked_mul(1_000),
        _ => Some(whole),
    }
}

/// A cache of the last date in the common format, since logs repeat it.
#[derive(Debug, Default)]
pub(in crate::analyze) struct Remembered {
    text: [u8; CLF_BYTES],
    at_ns: u64,
}

impl Remembered {
    /// Parses like [`clf`].
    pub(in crate::analyze) fn clf(&mut self, text: &[u8]) -> Option<u64> {
        if self.text != text {
            self.at_ns = clf(text)?;
            self.text = text.try_into().ok()?;
        }
        Some(self.at_ns)
    }
}

/// An instant displayed to the second: `2000-10-10T20:55:36Z`.
#[derive(Clone, Copy, Debug)]
pub(in crate::analyze) struct Utc(pub(in crate::analyze) u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.0 / SECOND_NS;
        let (day, of_day) = (second / 86_400, second % 86_400);
        // Days are counted from the first of March of the year 0, so that leap days come last.
        let day = day + 719_468;
        let (era, of_era) = (day / 146_097, day % 146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let shifted = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = year + era * 400 + u64::from(month <= 2);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Returns the days since 1970 of a valid date.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let (year, shifted) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

/// Returns the seconds of `13:55:36`. A leap second is the next one's first.
fn clock(text: &[u8]) -> Option<i64> {
    let [hour, minute, second] = [text.get(0..2)?, text.get(3..5)?, text.get(6..8)?].map(number);
    let (hour, minute, second) = (hour?, minute?, second?);
    let is_parted = text.get(2) == Some(&b':') && text.get(5) == Some(&b':');
    let fits = is_parted && hour < 24 && minute < 60 && second <= 60;
    fits.then_some(hour * 3_600 + minute * 60 + second)
}

/// Returns the seconds of `-07` and `00`, split before the second digit of the hour.
fn offset(sign: &[u8], digits: &[u8]) -> Option<i64> {
    let &[sign, tens] = sign else { return None };
    let hours = number(&[tens, *digits.first()?])?;
    let minutes = number(digits.get(1..3)?)?;
    let offset_s = (hours < 24 && minutes < 60).then_some(hours * 3_600 + minutes * 60)?;
    match sign {
        b'+' => Some(offset_s),
        b'-' => Some(-offset_s),
        _ => None,
    }
}

/// Returns the nanoseconds of the digits after the point; those beyond the ninth are cut.
fn fraction(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nine = digits.iter().chain([b'0'; 9].iter()).take(9);
    Some(nine.fold(0, |ns, digit| ns * 10 + u64::from(digit - b'0')))
}

/// Parses a number of one to four digits.
fn number(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > 4 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

/// Parses a whole number of 64 bits.
pub(in crate::analyze) fn whole_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

fn in_ns(second: i64, ns: u64) -> Option<u64> {
    let fits = (0..=LAST_S).contains(&second);
    fits.then(|| second.unsigned_abs() * SECOND_NS + ns)
}

#[cfg(test)]
mod tests {
    use super::{Remembered, Utc, clf, epoch, rfc3339};

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
        assert_eq!(Utc(SEED_NS).to_string(), "2000-10-10T20:55:36Z");
    }

    #[test]
    fn every_day_is_read_back() {
        let mut remembered = Remembered::default();
        for day in 0..60_000_u64 {
            let at_ns = day * 86_400_000_000_000 + 43_200_000_000_000;
            let text = Utc(at_ns).to_string();
            assert_eq!(rfc3339(text.as_bytes()), Some(at_ns), "{text}");
            let names = [
                "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
            ];
            let name = names[text[5..7].parse::<usize>().unwrap() - 1];
            let text = format!("{}/{name}/{}:12:00:00 +0000", &text[8..10], &text[..4]);
            assert_eq!(remembered.clf(text.as_bytes()), Some(at_ns), "{text}");
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
