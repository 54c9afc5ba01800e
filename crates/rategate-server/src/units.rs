//! Conversions of units of time: to nanoseconds, and from the spelling of other tools.

use std::num::NonZeroU64;
use std::time::Duration;

use rategate::Rate;
use rategate_core::span::whole_ns;

/// Returns `text` with the probable unit if its unit is a word or an abbreviation that other
/// tools use.
pub(crate) fn meant(text: &str) -> Option<String> {
    let (number, period) = text.split_once('/')?;
    let unit_at = period.find(|c: char| c.is_alphabetic())?;
    let (count, unit) = period.split_at_checked(unit_at)?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "mins" | "minute" | "minutes" => "min",
        "hr" | "hrs" | "hour" | "hours" => "h",
        "day" | "days" => "d",
        _ => return None,
    };
    let meant = format!("{number}/{count}{unit}");
    meant.parse::<Rate>().is_ok().then_some(meant)
}

/// Converts the time of a denial to nanoseconds; none is zero.
pub(crate) fn retry_ns(retry_after: Duration) -> Option<NonZeroU64> {
    NonZeroU64::new(whole_ns(retry_after))
}

/// Parses a whole decimal number of digits alone.
pub(crate) fn whole(digits: &[u8]) -> Option<u64> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// Returns whole seconds as redis-cell and compatible tools do, rounded up if at least a
/// millisecond is left over.
pub(crate) const fn seconds(ns: u64) -> u64 {
    let (whole, rest_ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
    if rest_ns >= 1_000_000 { whole.saturating_add(1) } else { whole }
}

/// Returns milliseconds, rounded up, so that a client that waits for that time is never early.
pub(crate) const fn whole_ms(ns: u64) -> u64 {
    ns.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_from_a_millisecond_on() {
        let s = 1_000_000_000;
        let table = [
            (0, 0),
            (999_999, 0),
            (1_000_000, 1),
            (999_999_999, 1),
            (s, 1),
            (s + 999_999, 1),
            (s + 1_000_000, 2),
            (u64::MAX, 18_446_744_074),
        ];
        for (ns, expected) in table {
            assert_eq!(seconds(ns), expected, "{ns}");
        }
        assert_eq!([0, 1, u64::MAX].map(whole_ms), [0, 1, 18_446_744_073_710]);
    }

    #[test]
    fn unit_names_of_other_programs_are_suggested() {
        for (text, wanted) in [
            ("10/sec", "10/s"),
            ("10/day", "10/d"),
            ("0.5/Minutes", "0.5/min"),
            ("10/m", "10/min"),
            ("10/5secs", "10/5s"),
        ] {
            assert_eq!(meant(text).as_deref(), Some(wanted), "{text}");
        }
        for text in ["10", "10/", "10/fortnight", "x/sec", "10/x day"] {
            assert_eq!(meant(text), None, "{text}");
        }
    }
}
