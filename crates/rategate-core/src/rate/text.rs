//! The text grammar of rates: `N/PERIOD`, `unlimited`, `never`.

use core::str::FromStr;

use super::Rate;
use crate::decimal::{self, DecimalError};
use crate::error::{RateError, SpanError};
use crate::span;

impl FromStr for Rate {
    type Err = RateError;

    /// Reads `"5/s"`, `"0.5/s"`, `"100/min"`, `"1000/10s"`, `"1/365d"`, `"unlimited"`, `"never"`.
    /// Decimals are read exactly.
    fn from_str(text: &str) -> Result<Self, RateError> {
        match text {
            "never" => return Ok(Self::NEVER),
            "unlimited" => return Ok(Self::UNLIMITED),
            _ => {}
        }
        let (number, period) = text.split_once('/').ok_or(RateError::Malformed)?;
        if let Some(magnitude) = number.strip_prefix('-')
            && decimal::parse(magnitude).is_ok()
        {
            return Err(RateError::Negative);
        }
        let permits = decimal::parse(number).map_err(|error| match error {
            DecimalError::Malformed => RateError::Malformed,
            DecimalError::TooManyDigits => RateError::NotRepresentable,
        })?;
        let period_ns = match span::unit_ns(period) {
            Some(unit_ns) => unit_ns,
            None if !period.is_empty() && period.chars().all(char::is_alphabetic) => {
                return Err(RateError::Period(SpanError::UnknownUnit));
            }
            None => span::parse(period).map_err(RateError::Period)?,
        };
        let scaled = permits.divisor.checked_mul(period_ns.into());
        Self::from_fraction(permits.mantissa, scaled.ok_or(RateError::NotRepresentable)?)
    }
}
