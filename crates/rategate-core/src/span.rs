//! Parsing and printing of durations, exact to the nanosecond: `"250ns"`, `"0.1ms"`, `"10s"`,
//! `"365d"`.
//!
//! A duration is a decimal and one of `ns us ms s min h d`, or their English names. A duration that
//! is not a whole number of nanoseconds, or exceeds `u64::MAX` of them (584 years), is an error:
//! nothing is rounded silently.
//!
//! ```
//! use rategate_core::span;
//!
//! assert_eq!(span::parse("0.1ms")?, 100_000);
//! assert!(span::parse("0.5ns").is_err());
//! assert_eq!(span::Text(1_500_000).to_string(), "1.5ms");
//! # Ok::<(), rategate_core::error::SpanError>(())
//! ```

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use crate::decimal::{self, DecimalError};
use crate::error::{LimitError, SpanError};

/// The units of a duration, smallest first, and their nanoseconds.
pub const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Returns a duration in nanoseconds, or `None` beyond 584 years.
#[must_use]
pub const fn exact_ns(span: Duration) -> Option<u64> {
    let Some(seconds_ns) = span.as_secs().checked_mul(1_000_000_000) else { return None };
    #[expect(clippy::as_conversions, reason = "a widening, and `From` is not const")]
    seconds_ns.checked_add(span.subsec_nanos() as u64)
}

/// Returns a duration in nanoseconds; one beyond 584 years counts as that.
#[must_use]
pub const fn whole_ns(span: Duration) -> u64 {
    match exact_ns(span) {
        Some(ns) => ns,
        None => u64::MAX,
    }
}

/// Returns the permits and the period of a limit as the policies keep them: not zero, and within
/// `max_permits` and 584 years.
pub(crate) const fn checked(
    permits: u64,
    period: Duration,
    max_permits: u64,
) -> Result<(NonZeroU64, NonZeroU64), LimitError> {
    let Some(permits) = NonZeroU64::new(permits) else { return Err(LimitError::ZeroPermits) };
    let Some(period_ns) = exact_ns(period) else { return Err(LimitError::PeriodTooLong) };
    let Some(period_ns) = NonZeroU64::new(period_ns) else { return Err(LimitError::ZeroPeriod) };
    if permits.get() > max_permits {
        return Err(LimitError::TooManyPermits { max: max_permits });
    }
    Ok((permits, period_ns))
}

/// Parses a duration into nanoseconds.
///
/// # Errors
///
/// [`SpanError`] distinguishes a missing or unknown unit, a malformed number, a fraction of a
/// nanosecond, and a length over 584 years.
pub fn parse(text: &str) -> Result<u64, SpanError> {
    let (number, unit) = decimal::split_unit(text);
    of(number, unit)
}

/// Parses a period: a unit alone, a number and a unit with one space between them, as in
/// `3 per 2 hours`, or a duration as [`parse`] reads it.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_period(text: &str) -> Result<u64, SpanError> {
    match (unit_ns(text), text.split_once(' ')) {
        (Some(unit_ns), _) => Ok(unit_ns),
        (None, Some((number, unit))) => of(number, unit),
        (None, None) if !text.is_empty() && text.chars().all(char::is_alphabetic) => {
            Err(SpanError::UnknownUnit)
        }
        (None, None) => parse(text),
    }
}

fn of(number: &str, unit: &str) -> Result<u64, SpanError> {
    let value = decimal::parse(number).map_err(|error| match error {
        DecimalError::Malformed => SpanError::Malformed,
        DecimalError::TooManyDigits => SpanError::TooLong,
    })?;
    if unit.is_empty() {
        return Err(SpanError::NoUnit);
    }
    let unit_ns = unit_ns(unit).ok_or(SpanError::UnknownUnit)?;
    let scaled = value.mantissa.checked_mul(unit_ns.into()).ok_or(SpanError::TooLong)?;
    match (scaled.checked_div(value.divisor), scaled.checked_rem(value.divisor)) {
        (Some(ns), Some(0)) => u64::try_from(ns).map_err(|_| SpanError::TooLong),
        _ => Err(SpanError::BelowNanosecond),
    }
}

/// Returns the nanoseconds of a unit, by its symbol or its English name, or `None` if there is no
/// such unit.
#[must_use]
pub fn unit_ns(unit: &str) -> Option<u64> {
    let symbol = match unit.strip_suffix('s').unwrap_or(unit) {
        "nanosecond" => "ns",
        "microsecond" => "us",
        "millisecond" => "ms",
        "sec" | "second" => "s",
        "min" | "minute" => "min",
        "hr" | "hour" => "h",
        "day" => "d",
        _ => unit,
    };
    UNITS.iter().find(|(name, _)| *name == symbol).map(|&(_, ns)| ns)
}

/// A number of nanoseconds that prints in the largest unit up to `s` that keeps the number at one
/// or above: `1.5ms`. Exact, and [`parse`] reads it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text(pub u64);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = UNITS.iter().take(4).rev().find(|(_, unit_ns)| *unit_ns <= self.0);
        let (name, unit_ns) = *fitting.unwrap_or(&("ns", 1));
        write_decimal(f, self.0, unit_ns)?;
        f.write_str(name)
    }
}

/// Writes `ns / unit_ns` in its shortest exact decimal form; `unit_ns` is a power of ten.
///
/// # Errors
///
/// The errors of `f` itself only.
pub fn write_decimal(f: &mut dyn fmt::Write, ns: u64, unit_ns: u64) -> fmt::Result {
    let (whole, rest) = (ns.checked_div(unit_ns).unwrap_or(ns), ns.checked_rem(unit_ns));
    write!(f, "{whole}")?;
    let mut rest = rest.unwrap_or(0);
    if rest > 0 {
        f.write_char('.')?;
    }
    let mut decimal_place = unit_ns.wrapping_div(10);
    while let (true, Some(digit)) = (rest > 0, rest.checked_div(decimal_place)) {
        write!(f, "{digit}")?;
        rest = rest.checked_rem(decimal_place).unwrap_or(0);
        decimal_place = decimal_place.wrapping_div(10);
    }
    Ok(())
}
