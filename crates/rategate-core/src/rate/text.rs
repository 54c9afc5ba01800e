//! The text grammar of rates: `N/PERIOD` or `N per PERIOD`, `unlimited`, `never`.

use core::fmt;
use core::str::FromStr;

use super::Rate;
use crate::decimal::{self, Decimal, DecimalError};
use crate::error::RateError;
use crate::span;

/// The factors that may follow a number of permits.
const FACTORS: [(&str, u128); 3] = [("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];

impl FromStr for Rate {
    type Err = RateError;

    /// Reads `"5/s"`, `"0.5/s"`, `"100/min"`, `"1k/s"`, `"1000/10s"`, `"5/minute"`,
    /// `"1 per second"`, `"3 per 2 hours"`, `"unlimited"` and `"never"`. Decimals are read exactly.
    fn from_str(text: &str) -> Result<Self, RateError> {
        Self::read(text).map(|(rate, _)| rate)
    }
}

impl Rate {
    /// Reads a rate, and the permits that are written in it, rounded up: 5 in `5/min`. A rate
    /// without a number has 1.
    pub(crate) fn read(text: &str) -> Result<(Self, u64), RateError> {
        match text {
            "never" => return Ok((Self::NEVER, 1)),
            "unlimited" => return Ok((Self::UNLIMITED, 1)),
            _ => {}
        }
        let parts = text.split_once('/').or_else(|| text.split_once(" per "));
        let (number, period) = parts.ok_or(RateError::Malformed)?;
        if let Some(magnitude) = number.strip_prefix('-')
            && permits(magnitude).is_ok()
        {
            return Err(RateError::Negative);
        }
        let permits = permits(number)?;
        let period_ns = span::parse_period(period).map_err(RateError::Period)?;
        let scaled = permits.divisor.checked_mul(period_ns.into());
        let scaled = scaled.ok_or(RateError::NotRepresentable)?;
        let rate = Self::from_fraction(permits.mantissa, scaled)?.written_per(period_ns);
        let whole = permits.mantissa.div_ceil(permits.divisor.max(1));
        Ok((rate, u64::try_from(whole).unwrap_or(u64::MAX)))
    }

    /// Returns the permits in the text that this rate prints, rounded up.
    pub(crate) fn printed_permits(self) -> u64 {
        let Some((permits, period_ns)) = self.fraction() else { return 1 };
        match (self.as_written(), unit_of(permits, period_ns)) {
            (Some((_, billionths)), _) => billionths.div_ceil(GIGA),
            (None, Some((_, periods))) => permits.saturating_mul(periods),
            (None, None) => permits,
        }
    }
}

/// Reads a decimal and its factor, as in `1.5k`.
fn permits(text: &str) -> Result<Decimal, RateError> {
    let factor =
        FACTORS.iter().find_map(|(name, factor)| Some((text.strip_suffix(name)?, *factor)));
    let (number, factor) = factor.unwrap_or((text, 1));
    let decimal = decimal::parse(number).map_err(|error| match error {
        DecimalError::Malformed => RateError::Malformed,
        DecimalError::TooManyDigits => RateError::NotRepresentable,
    })?;
    let mantissa = decimal.mantissa.checked_mul(factor).ok_or(RateError::NotRepresentable)?;
    Ok(Decimal { mantissa, ..decimal })
}

/// The units in which a rate is printed whose period is not known.
const UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// A written rate prints with at most nine decimals: in billionths of a permit.
const GIGA: u64 = 1_000_000_000;

impl Rate {
    /// Returns this rate as written with this period, which prints in its largest whole unit.
    pub(super) const fn written_per(self, period_ns: u64) -> Self {
        const SECOND_NS: u64 = 1_000_000_000;
        let (unit, unit_ns) = if period_ns.is_multiple_of(86_400 * SECOND_NS) {
            (6, 86_400 * SECOND_NS)
        } else if period_ns.is_multiple_of(3_600 * SECOND_NS) {
            (5, 3_600 * SECOND_NS)
        } else if period_ns.is_multiple_of(60 * SECOND_NS) {
            (4, 60 * SECOND_NS)
        } else if period_ns.is_multiple_of(SECOND_NS) {
            (3, SECOND_NS)
        } else if period_ns.is_multiple_of(1_000_000) {
            (2, 1_000_000)
        } else if period_ns.is_multiple_of(1_000) {
            (1, 1_000)
        } else {
            (0, 1)
        };
        match period_ns.checked_div(unit_ns) {
            #[expect(clippy::as_conversions, reason = "`TryFrom` is not const")]
            #[expect(clippy::cast_possible_truncation, reason = "it has been compared")]
            Some(units) if units <= u32::MAX as u64 => Self { unit, units: units as u32, ..self },
            _ => self,
        }
    }

    /// Returns the unit of the period as written, and the permits in it in billionths, if they are
    /// whole.
    fn as_written(self) -> Option<(&'static str, u64)> {
        let (unit, unit_ns) = *span::UNITS.get(usize::from(self.unit))?;
        let (permits, period_ns) = self.fraction()?;
        let written_ns = u128::from(unit_ns).checked_mul(self.units.into())?;
        let billionths = u128::from(permits).checked_mul(written_ns)?.checked_mul(GIGA.into())?;
        if self.units == 0 || billionths.checked_rem(period_ns.into())? != 0 {
            return None;
        }
        Some((unit, u64::try_from(billionths.checked_div(period_ns.into())?).ok()?))
    }
}

/// Prints the text form, such as `10/s`.
impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((permits, period_ns)) = self.fraction() else {
            return f.write_str(if *self == Self::NEVER { "never" } else { "unlimited" });
        };
        if let Some((unit, billionths)) = self.as_written() {
            span::write_decimal(f, billionths, GIGA)?;
            return match self.units {
                1 => write!(f, "/{unit}"),
                units => write!(f, "/{units}{unit}"),
            };
        }
        match unit_of(permits, period_ns) {
            Some((unit, periods)) => {
                write!(f, "{}/{unit}", u128::from(permits).saturating_mul(periods.into()))
            }
            None => write!(f, "{permits}/{}", span::Text(period_ns)),
        }
    }
}

/// Returns the first unit in which the permits are whole, and its number of periods. One permit
/// in whole seconds needs none: `1/2s` reads better than `30/min`.
fn unit_of(permits: u64, period_ns: u64) -> Option<(&'static str, u64)> {
    UNITS.iter().find_map(|&(unit, unit_ns)| {
        let periods = unit_ns.checked_div(period_ns)?;
        let is_whole = unit_ns.checked_rem(period_ns) == Some(0);
        let in_seconds = permits == 1 && period_ns.checked_rem(1_000_000_000) == Some(0);
        (is_whole && (periods == 1 || !in_seconds)).then_some((unit, periods))
    })
}
