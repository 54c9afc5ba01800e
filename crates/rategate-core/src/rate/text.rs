//! The text grammar of rates: `N/PERIOD` or `N per PERIOD`, `unlimited`, `never`.

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
        match text {
            "never" => return Ok(Self::NEVER),
            "unlimited" => return Ok(Self::UNLIMITED),
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
        Self::from_fraction(permits.mantissa, scaled.ok_or(RateError::NotRepresentable)?)
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
