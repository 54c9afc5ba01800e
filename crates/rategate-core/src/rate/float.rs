//! Rates from floating-point numbers, and the boundary table of the operation throttle.
//!
//! A float is only ever *read* here: its shortest decimal form, which is what a person typed,
//! becomes an exact fraction, and no decision sees the float again.

use core::fmt::Write as _;

use super::{Kind, Rate};
use crate::decimal;
use crate::error::RateError;

/// One tick of the operation throttle's clock, in nanoseconds.
const TICK_NS: u64 = 100;

impl Rate {
    /// Returns a rate of `operations` per second under the operation throttle's rules: zero,
    /// negative numbers and not-a-number are [`Rate::NEVER`], positive infinity is
    /// [`Rate::UNLIMITED`].
    ///
    /// # Errors
    ///
    /// [`RateError::NotRepresentable`] for a number whose decimal form leaves 64 bits.
    pub fn per_second_f64(operations: f64) -> Result<Self, RateError> {
        Self::from_f64(operations, 1_000_000_000)
    }

    /// Returns a rate of `operations` per minute, under the same rules as [`Rate::per_second_f64`].
    ///
    /// # Errors
    ///
    /// [`RateError::NotRepresentable`] for a number whose decimal form leaves 64 bits.
    pub fn per_minute_f64(operations: f64) -> Result<Self, RateError> {
        Self::from_f64(operations, 60_000_000_000)
    }

    /// Returns the interval between operations in whole ticks of 100 ns, truncated.
    ///
    /// The operation throttle kept it so: `i64::MAX` for never, 0 for unlimited *and for any rate
    /// above 10 million a second*. This view is for comparison with that design; no limiter here
    /// uses it.
    #[must_use]
    pub fn time_ticks(self) -> i64 {
        match self.kind() {
            Kind::Never => i64::MAX,
            Kind::Unlimited => 0,
            Kind::Paced(pace) => {
                let whole_ns = pace.period_ns().get().div_euclid(pace.permits().get());
                i64::try_from(whole_ns.wrapping_div(TICK_NS)).unwrap_or(i64::MAX)
            }
        }
    }

    fn from_f64(operations: f64, period_ns: u128) -> Result<Self, RateError> {
        if operations.is_nan() || operations <= 0.0 {
            return Ok(Self::NEVER);
        }
        if operations.is_infinite() {
            return Ok(Self::UNLIMITED);
        }
        let mut text = Digits::default();
        write!(text, "{operations}").map_err(|_| RateError::NotRepresentable)?;
        let permits = decimal::parse(text.as_str()).map_err(|_| RateError::NotRepresentable)?;
        let scaled = permits.divisor.checked_mul(period_ns);
        Self::from_fraction(permits.mantissa, scaled.ok_or(RateError::NotRepresentable)?)
    }
}

/// A buffer for the digits of a float that can be a rate; longer floats cannot.
#[derive(Debug)]
pub(crate) struct Digits {
    bytes: [u8; 64],
    used: usize,
}

impl Default for Digits {
    fn default() -> Self {
        Self { bytes: [0; 64], used: 0 }
    }
}

impl Digits {
    pub(crate) fn as_str(&self) -> &str {
        let used = self.bytes.get(..self.used).unwrap_or_default();
        core::str::from_utf8(used).unwrap_or_default()
    }
}

impl core::fmt::Write for Digits {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.used.saturating_add(text.len());
        let free = self.bytes.get_mut(self.used..end).ok_or(core::fmt::Error)?;
        free.copy_from_slice(text.as_bytes());
        self.used = end;
        Ok(())
    }
}
