//! EngineBlock's single parameter for closing a gap: average (0), damped (up to 1), strict (1),
//! burst (above).
//!
//! Floats are read only here: a damping becomes a power of two, a burst a fraction.

use super::Mode;
use crate::error::{LimitError, RatioError};
use crate::ratio::Ratio;

/// A damping of `1 / 2^shift`, with `shift` from 1 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u32"))]
pub struct DampingShift(u32);

impl DampingShift {
    /// Returns the damping `ratio`, between 0 and 1, rounded down to a power of two: 0.3 is a
    /// quarter.
    ///
    /// # Errors
    ///
    /// [`LimitError::Damping`] for a number that is not between 0 and 1, both excluded.
    pub fn from_ratio(ratio: f64) -> Result<Self, LimitError> {
        if !(ratio > 0.0 && ratio < 1.0) {
            return Err(LimitError::Damping);
        }
        // Halving a float is exact, so this compares with exact powers of two.
        let (mut power, mut shift) = (0.5, 1);
        while power > ratio && shift < 63 {
            power /= 2.0;
            shift = u32::saturating_add(shift, 1);
        }
        Ok(Self(shift))
    }

    /// Returns the exponent: 2 for a damping of a quarter.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for DampingShift {
    type Error = LimitError;

    fn try_from(shift: u32) -> Result<Self, LimitError> {
        if (1..=63).contains(&shift) { Ok(Self(shift)) } else { Err(LimitError::Damping) }
    }
}

impl Mode {
    /// Returns the mode of EngineBlock's parameter: 0 is average, below 1 damped, 1 strict, above
    /// a burst.
    ///
    /// # Errors
    ///
    /// [`RatioError`] for a negative or infinite number, not-a-number, or a ratio out of bounds.
    pub fn from_compensation(x: f64) -> Result<Self, RatioError> {
        if x < 0.0 {
            return Err(RatioError::BelowOne);
        }
        match DampingShift::from_ratio(x) {
            Ok(shift) => Ok(Self::Damped { shift }),
            Err(_) if x == 0.0 => Ok(Self::Average),
            Err(_) => match Ratio::from_f64(x)? {
                Ratio::ONE => Ok(Self::Strict),
                ratio => Ok(Self::Burst(ratio)),
            },
        }
    }
}
