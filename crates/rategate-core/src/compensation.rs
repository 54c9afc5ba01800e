//! EngineBlock's one knob for closing a gap, from average (0) over damped and strict (1) to a burst.
//!
//! Floats are read here and nowhere later: a damping becomes a power of two, a burst a fraction.

use crate::error::{LimitError, RatioError};
use crate::ratio::Ratio;
use crate::two_timeline::Mode;

/// A damping of `1 / 2^shift`, with `shift` from 1 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift(u32);

impl Shift {
    /// The damping `ratio`, between 0 and 1, rounded down to a power of two: 0.3 is a quarter.
    ///
    /// # Errors
    ///
    /// [`LimitError::Damping`] for anything not between 0 and 1, both excluded.
    pub fn from_ratio(ratio: f64) -> Result<Self, LimitError> {
        if !(ratio > 0.0 && ratio < 1.0) {
            return Err(LimitError::Damping);
        }
        // Halving a float is exact, so this compares with the very powers of two.
        let (mut power, mut shift) = (0.5, 1);
        while power > ratio && shift < 63 {
            power /= 2.0;
            shift = u32::saturating_add(shift, 1);
        }
        Ok(Self(shift))
    }

    /// The damping of this exponent.
    pub(crate) fn of_exponent(shift: u64) -> Option<Self> {
        u32::try_from(shift).ok().filter(|shift| (1..=63).contains(shift)).map(Self)
    }

    /// The exponent.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Mode {
    /// EngineBlock's one knob: 0 is average, a part of one is damped, 1 strict, more a burst.
    ///
    /// # Errors
    ///
    /// [`RatioError`] for a negative, infinite or absent number, or a ratio out of bounds.
    pub fn from_compensation(x: f64) -> Result<Self, RatioError> {
        if x < 0.0 {
            return Err(RatioError::BelowOne);
        }
        match Shift::from_ratio(x) {
            Ok(shift) => Ok(Self::Damped { shift }),
            Err(_) if x == 0.0 => Ok(Self::Average),
            Err(_) => match Ratio::from_f64(x)? {
                Ratio::ONE => Ok(Self::Strict),
                ratio => Ok(Self::Burst(ratio)),
            },
        }
    }
}
