//! Multiples of a rate or of its interval as exact fractions: 1.5 is 3/2.

use core::fmt;
use core::fmt::Write as _;
use core::num::NonZeroU64;
use core::str::FromStr;

use crate::decimal::{self, gcd};
use crate::error::RatioError;
use crate::rate::Digits;

/// A multiple of the normal rate: an exact fraction, at least one and at most a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Ratio {
    numerator: NonZeroU64,
    denominator: NonZeroU64,
}

impl Ratio {
    /// The normal rate itself.
    pub const ONE: Self = Self { numerator: NonZeroU64::MIN, denominator: NonZeroU64::MIN };

    /// The cold factor of a warm-up, unless another one is set.
    pub(crate) const THREE: Self =
        Self { numerator: NonZeroU64::MIN.saturating_add(2), denominator: NonZeroU64::MIN };

    /// Returns `numerator / denominator`, reduced.
    ///
    /// # Errors
    ///
    /// [`RatioError::BelowOne`] if the ratio is under one, or [`RatioError::OutOfRange`] if it is
    /// over a million or too long for 64 bits.
    pub fn new(numerator: u64, denominator: u64) -> Result<Self, RatioError> {
        Self::from_fraction(numerator.into(), denominator.into())
    }

    /// Reads the shortest decimal form of a float, exactly: 1.1 becomes 11/10.
    ///
    /// # Errors
    ///
    /// [`RatioError`], as when parsing text.
    pub fn from_f64(value: f64) -> Result<Self, RatioError> {
        let mut text = Digits::default();
        write!(text, "{value}").map_err(|_| RatioError::OutOfRange)?;
        text.as_str().parse()
    }

    fn checked(self) -> Result<Self, RatioError> {
        Self::new(self.numerator.get(), self.denominator.get())
    }

    /// Returns the numerator of the reduced fraction.
    #[must_use]
    pub const fn numerator(self) -> NonZeroU64 {
        self.numerator
    }

    /// Returns the denominator of the reduced fraction.
    #[must_use]
    pub const fn denominator(self) -> NonZeroU64 {
        self.denominator
    }

    fn from_fraction(numerator: u128, denominator: u128) -> Result<Self, RatioError> {
        if numerator < denominator {
            return Err(RatioError::BelowOne);
        }
        if denominator == 0 || numerator > denominator.saturating_mul(1_000_000) {
            return Err(RatioError::OutOfRange);
        }
        let common = gcd(numerator, denominator);
        let reduce = |side: u128| {
            let side = side.checked_div(common).and_then(|side| u64::try_from(side).ok());
            side.and_then(NonZeroU64::new).ok_or(RatioError::OutOfRange)
        };
        let (numerator, denominator) = (reduce(numerator)?, reduce(denominator)?);
        // Keeps every product with a period and a pool inside 128 bits.
        if denominator.get() > 1_000_000_000_000 {
            return Err(RatioError::OutOfRange);
        }
        Ok(Self { numerator, denominator })
    }
}

impl FromStr for Ratio {
    type Err = RatioError;

    fn from_str(text: &str) -> Result<Self, RatioError> {
        let decimal = decimal::parse(text).map_err(|_| RatioError::Malformed)?;
        Self::from_fraction(decimal.mantissa, decimal.divisor)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

#[cfg(feature = "serde")]
crate::portable::read_checked!(Ratio { numerator: NonZeroU64, denominator: NonZeroU64 });
