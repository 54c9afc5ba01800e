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

#[cfg(test)]
mod tests {
    use super::meant;

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
