//! Rates from floating-point numbers, and the boundary table of the operation throttle.
//!
//! A float is only ever *read* here: its shortest decimal form, which is what a person typed,
//! becomes an exact fraction, and no decision sees the float again. Where that decimal leaves 64
//! bits, as that of `1.0 / 3.0` does, the simplest fraction that is the same float takes its place.

use core::fmt::Write as _;
use core::time::Duration;

use super::{Kind, Rate};
use crate::decimal;
use crate::error::RateError;

/// One tick of the operation throttle's clock, in nanoseconds.
const TICK_NS: u64 = 100;

impl Rate {
    /// Returns a rate of `operations` per second: 0.1 is one in ten seconds, and `1.0 / 3.0` one in
    /// three.
    ///
    /// # Errors
    ///
    /// [`RateError::Zero`], [`RateError::Negative`], [`RateError::NotFinite`], or
    /// [`RateError::NotRepresentable`] for a number whose fraction leaves 64 bits.
    pub fn per_second_f64(operations: f64) -> Result<Self, RateError> {
        Self::from_f64(operations, 1_000_000_000)
    }

    /// Returns a rate of `operations` per minute.
    ///
    /// # Errors
    ///
    /// Those of [`Rate::per_second_f64`].
    pub fn per_minute_f64(operations: f64) -> Result<Self, RateError> {
        Self::from_f64(operations, 60_000_000_000)
    }

    /// Returns a rate as the operation throttle reads it: zero, negative numbers and not-a-number
    /// are [`Rate::NEVER`], and positive infinity is [`Rate::UNLIMITED`].
    ///
    /// # Errors
    ///
    /// [`RateError::NotRepresentable`] for any other number whose fraction leaves 64 bits, and
    /// [`RateError::ZeroPeriod`].
    pub fn operation_throttle(operations: f64, per: Duration) -> Result<Self, RateError> {
        match Self::from_f64(operations, per.as_nanos()) {
            Err(RateError::NotFinite) if operations > 0.0 => Ok(Self::UNLIMITED),
            Err(RateError::Zero | RateError::Negative | RateError::NotFinite) => Ok(Self::NEVER),
            read => read,
        }
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
        if !operations.is_finite() {
            return Err(RateError::NotFinite);
        }
        if operations < 0.0 {
            return Err(RateError::Negative);
        }
        if operations == 0.0 {
            return Err(RateError::Zero);
        }
        let mut text = Digits::default();
        write!(text, "{operations}").map_err(|_| RateError::NotRepresentable)?;
        let permits = decimal::parse(text.as_str()).map_err(|_| RateError::NotRepresentable)?;
        let of = |(permits, whole): (u128, u128)| {
            let period_ns = whole.checked_mul(period_ns).ok_or(RateError::NotRepresentable)?;
            Self::from_fraction(permits, period_ns)
        };
        let fraction = (permits.mantissa, permits.divisor);
        of(fraction).or_else(|_| of(simplest(fraction, operations)))
    }
}

/// Returns the simplest of the continued fractions of a number that is the same float.
fn simplest((mantissa, divisor): (u128, u128), float: f64) -> (u128, u128) {
    #[expect(
        clippy::as_conversions,
        clippy::cast_precision_loss,
        clippy::float_cmp,
        reason = "a fraction that is the same float is what is looked for"
    )]
    let is_same = |(above, below): (u128, u128)| above as f64 / below as f64 == float;
    let (mut before, mut last) = ((0, 1), (1, 0));
    let (mut rest, mut by) = (mantissa, divisor);
    while let (Some(whole), Some(left)) = (rest.checked_div(by), rest.checked_rem(by)) {
        let next = |before: u128, last: u128| whole.checked_mul(last)?.checked_add(before);
        let (Some(above), Some(below)) = (next(before.0, last.0), next(before.1, last.1)) else {
            break;
        };
        (before, last) = (last, (above, below));
        if is_same(last) {
            break;
        }
        (rest, by) = (by, left);
    }
    last
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
