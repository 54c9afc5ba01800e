//! The rates over time that a limit can be on: one that stays, and a ramp.
//!
//! A schedule is a [`Shape`](crate::shape::Shape) of a few words, which fit into the state of a
//! limit. Operation `n` is due at the instant by which the rate has produced `n` permits
//! (docs/theory.md, section 3.9). Instants are computed in whole numbers: a ramp by bisection on
//! its exact integral, a constant rate by adding a fraction that is never rounded.
//!
//! ```text
//!   permits ^          .-'  constant: a line
//!           |       .-'
//!         3 |....-'         the instant at which the curve reaches n is when operation n is due
//!         2 |..-':
//!         1 |.':  :         ramp: a parabola
//!           +------------> time
//! ```
//!
//! A rate change ends the piece of the schedule in force and starts another with the fraction of a
//! permit earned so far. Operations that were already due stay due when they were.
//!
//! ```
//! use rategate_core::rate::Rate;
//! use rategate_core::schedule::Schedule;
//! use rategate_core::shape::Shape;
//!
//! // From nothing to 1000/s over 2 s: a thousand operations, a quarter in the first second.
//! let warm_up = Schedule::ramp(Rate::NEVER, Rate::per_second(1_000), 2_000_000_000)?;
//! let warm_up = Shape::try_from(warm_up)?;
//! assert_eq!(warm_up.due(250), Some(1_000_000_000));
//! assert_eq!(warm_up.due(1_000), Some(2_000_000_000));
//! assert_eq!(warm_up.due(1_001), Some(2_001_000_000));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

pub(crate) mod track;

use core::num::NonZeroU64;

pub use self::track::MAX_PIECES;
use crate::decimal::gcd;
use crate::error::LimitError;
use crate::rate::{Kind, Rate};

/// A rate over time, from the instant it comes into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub struct Schedule(pub(crate) Form);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub(crate) enum Form {
    Constant(Rate),
    Ramp(Ramp),
}

/// A rate that moves linearly from one value to another and stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(try_from = "(Rate, Rate, u64)", into = "(Rate, Rate, u64)"))]
pub(crate) struct Ramp {
    /// The rate at the start; `from` and `to` are permits per the same period.
    pub(crate) from: u128,
    pub(crate) to: u128,
    pub(crate) over_ns: NonZeroU64,
    /// One permit in the units of [`Ramp::earned`]: `2 * over * period`.
    pub(crate) permit: u128,
}

impl Schedule {
    /// Returns a schedule of the same rate for ever.
    #[must_use]
    pub const fn constant(rate: Rate) -> Self {
        Self(Form::Constant(rate))
    }

    /// Returns a schedule whose rate moves linearly from `from` to `to` over `over_ns` and stays
    /// at `to`. [`Rate::NEVER`] stands for zero here.
    ///
    /// # Errors
    ///
    /// [`LimitError::Ramp`] for a ramp over no time, from zero to zero or with an unlimited end;
    /// [`LimitError::RampTooLong`] where its integral exceeds 128 bits. Round rates reach far
    /// (from zero to 10^9 per second over 292 years). Fractions of large numbers reach less far
    /// (from 1 per minute to 10^10 per second over 3 hours).
    pub fn ramp(from: Rate, to: Rate, over_ns: u64) -> Result<Self, LimitError> {
        let fraction = |rate: Rate| match rate.kind() {
            Kind::Never => Ok((0, 1)),
            Kind::Paced(pace) => {
                Ok((u128::from(pace.permits().get()), u128::from(pace.period_ns().get())))
            }
            Kind::Unlimited => Err(LimitError::Ramp),
        };
        let ((from, from_ns), (end, end_ns)) = (fraction(from)?, fraction(to)?);
        let over_ns = NonZeroU64::new(over_ns).ok_or(LimitError::Ramp)?;
        if from == 0 && end == 0 {
            return Err(LimitError::Ramp);
        }
        Self::ramp_of((from, from_ns), (end, end_ns), over_ns).ok_or(LimitError::RampTooLong)
    }

    fn ramp_of(
        (from, from_ns): (u128, u128),
        (to, to_ns): (u128, u128),
        over_ns: NonZeroU64,
    ) -> Option<Self> {
        let over = u128::from(over_ns.get());
        let period = from_ns.checked_div(gcd(from_ns, to_ns))?.checked_mul(to_ns)?;
        let from = from.checked_mul(period.checked_div(from_ns)?)?;
        let to = to.checked_mul(period.checked_div(to_ns)?)?;
        let permit = over.checked_mul(2)?.checked_mul(period)?;
        // The largest number that `earned` and its use below can reach.
        over.checked_mul(over)?.checked_mul(from.max(to))?.checked_mul(4)?.checked_add(permit)?;
        Some(Self(Form::Ramp(Ramp { from, to, over_ns, permit })))
    }

    /// Returns the rate once any ramp is over.
    #[must_use]
    pub fn final_rate(&self) -> Rate {
        match self.0 {
            Form::Constant(rate) => rate,
            Form::Ramp(ramp) => ramp.last_rate(),
        }
    }
}

impl Ramp {
    /// Returns the period of both rates.
    pub(crate) fn period_ns(&self) -> u128 {
        self.permit.checked_div(u128::from(self.over_ns.get()).wrapping_mul(2)).unwrap_or(1)
    }

    /// Returns the rate at the start of the ramp.
    pub(crate) fn first_rate(&self) -> Rate {
        self.rate(self.from)
    }

    /// Returns the rate at the end of the ramp and after it.
    pub(crate) fn last_rate(&self) -> Rate {
        self.rate(self.to)
    }

    /// Returns the rate of `permits` per period, which is one of the two that the ramp was built
    /// from, so it fits; zero is never.
    fn rate(&self, permits: u128) -> Rate {
        Rate::from_fraction(permits, self.period_ns()).unwrap_or(Rate::NEVER)
    }

    /// Returns what the ramp has produced `t_ns` after its start, `t_ns <= over_ns`, in units of
    /// `1 / permit`: the integral of the rate, times `2 * over * period` to make it whole.
    pub(crate) fn earned(&self, t_ns: u128) -> u128 {
        let (over, slope) = (u128::from(self.over_ns.get()), self.to.abs_diff(self.from));
        // `ramp_of` has shown that these fit.
        let line = self.from.wrapping_mul(2).wrapping_mul(over).wrapping_mul(t_ns);
        let bend = slope.wrapping_mul(t_ns).wrapping_mul(t_ns);
        if self.to >= self.from { line.wrapping_add(bend) } else { line.wrapping_sub(bend) }
    }
}

/// The rate at the start, that at the end, and the time between.
impl From<Ramp> for (Rate, Rate, u64) {
    fn from(ramp: Ramp) -> Self {
        (ramp.first_rate(), ramp.last_rate(), ramp.over_ns.get())
    }
}

impl TryFrom<(Rate, Rate, u64)> for Ramp {
    type Error = LimitError;

    fn try_from((from, to, over_ns): (Rate, Rate, u64)) -> Result<Self, LimitError> {
        match Schedule::ramp(from, to, over_ns)?.0 {
            Form::Ramp(ramp) => Ok(ramp),
            Form::Constant(_) => Err(LimitError::Ramp),
        }
    }
}
