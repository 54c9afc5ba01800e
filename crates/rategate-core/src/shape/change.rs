//! Factors of rates and of lengths.

use core::num::NonZeroU64;

use crate::decimal::gcd;

use super::error::ShapeError;

/// An exact factor above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    numerator: NonZeroU64,
    denominator: NonZeroU64,
}

impl Factor {
    /// The factor that changes nothing.
    pub const ONE: Self = Self { numerator: NonZeroU64::MIN, denominator: NonZeroU64::MIN };

    /// Returns the factor `numerator / denominator`, reduced.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Factor`] if either is zero.
    pub fn new(numerator: u64, denominator: u64) -> Result<Self, ShapeError> {
        let common = crate::decimal::gcd_of_words(numerator, denominator);
        let side = |side: u64| side.checked_div(common).and_then(NonZeroU64::new);
        match (side(numerator), side(denominator)) {
            (Some(numerator), Some(denominator)) => Ok(Self { numerator, denominator }),
            _ => Err(ShapeError::Factor),
        }
    }

    /// Returns `ns` at this speed: divided by the factor, and rounded up. `None` beyond 64 bits.
    #[must_use]
    pub fn shortened(self, ns: u64) -> Option<u64> {
        // Two factors of 64 bits.
        let scaled = u128::from(ns).wrapping_mul(self.denominator());
        u64::try_from(scaled.div_ceil(self.numerator())).ok()
    }

    pub(super) fn numerator(self) -> u128 {
        self.numerator.get().into()
    }

    pub(super) fn denominator(self) -> u128 {
        self.denominator.get().into()
    }
}

/// A change of all lengths and rates of a shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Ticks become `numerator / denominator` ticks.
    numerator: u128,
    denominator: u128,
    rate: Factor,
}

impl Change {
    pub(super) const fn of_rate(rate: Factor) -> Self {
        Self { numerator: 1, denominator: 1, rate }
    }

    pub(super) const fn of_ticks(numerator: u128, denominator: u128) -> Self {
        Self { numerator, denominator, rate: Factor::ONE }
    }

    /// Returns a length in the new ticks, of which it is a whole number.
    pub(super) fn of_length(self, ticks: u128) -> Result<u128, ShapeError> {
        let common = gcd(self.denominator, ticks).max(1);
        let ticks = ticks.checked_div(common).and_then(|ticks| ticks.checked_mul(self.numerator));
        let left = self.denominator.checked_div(common);
        let ticks = ticks.zip(left).and_then(|(ticks, left)| ticks.checked_div(left));
        ticks.filter(|&ticks| ticks <= super::END).ok_or(ShapeError::TooLong)
    }

    /// Returns the factor of a rate per tick.
    pub(super) fn of_rates(self) -> Option<(u128, u128)> {
        let rise = self.rate.numerator().checked_mul(self.denominator)?;
        let spread = self.rate.denominator().checked_mul(self.numerator)?;
        let common = gcd(rise, spread);
        Some((rise.checked_div(common)?, spread.checked_div(common)?))
    }
}
