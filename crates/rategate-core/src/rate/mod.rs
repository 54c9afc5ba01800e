//! Rates as exact fractions: permits per nanoseconds, reduced, never rounded.
//!
//! ```text
//!   3/s   =  3 permits / 1_000_000_000 ns      one permit takes 333_333_333 1/3 ns
//!  0.5/s  =  1 permit  / 2_000_000_000 ns
//!  1/365d =  1 permit  / 31_536_000_000_000_000 ns
//! ```
//!
//! Nothing divides until an instant is needed, and the remainder of that division is carried.
//! After any time the number of permits is therefore right to less than one.
//!
//! ```
//! use core::time::Duration;
//! use rategate_core::rate::Rate;
//!
//! assert_eq!("1000/10s".parse::<Rate>()?, Rate::per_second(100));
//! assert_eq!(Rate::new(1, Duration::from_secs(2))?, "0.5/s".parse()?);
//! assert!("0/s".parse::<Rate>().is_err());
//! assert_eq!("never".parse::<Rate>()?, Rate::NEVER);
//! # Ok::<(), rategate_core::error::RateError>(())
//! ```

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use crate::decimal::{gcd, gcd_of_words};
use crate::error::RateError;
use crate::exact::Pace;
use crate::span;

mod float;
mod text;

pub(crate) use float::Digits;

/// A rate in permits per time: an exact fraction, [`Rate::NEVER`] or [`Rate::UNLIMITED`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate(pub(crate) Kind);

/// The three kinds of rate. Crate-wide for the policies; users compare with the constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Never,
    Paced(Pace),
    Unlimited,
}

/// The units in which a rate is printed.
const UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

impl Rate {
    /// The rate of no permits, ever. A limit at this rate denies everything, and no wait helps.
    pub const NEVER: Self = Self(Kind::Never);
    /// The rate without any limit.
    pub const UNLIMITED: Self = Self(Kind::Unlimited);

    /// Returns a rate of `permits` per `period`.
    ///
    /// # Errors
    ///
    /// [`RateError::Zero`] and [`RateError::ZeroPeriod`]: never and unlimited exist only by name.
    /// [`RateError::NotRepresentable`] for a period over 584 years.
    pub fn new(permits: u64, period: Duration) -> Result<Self, RateError> {
        Self::from_fraction(permits.into(), period.as_nanos())
    }

    /// Returns a rate of `permits` per second.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero. Numbers from outside are for [`Rate::new`].
    #[must_use]
    pub const fn per_second(permits: u64) -> Self {
        Self::per(permits, 1_000_000_000)
    }

    /// Returns a rate of `permits` per minute.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero. Numbers from outside are for [`Rate::new`].
    #[must_use]
    pub const fn per_minute(permits: u64) -> Self {
        Self::per(permits, 60_000_000_000)
    }

    /// Returns a rate of `permits` per hour.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero. Numbers from outside are for [`Rate::new`].
    #[must_use]
    pub const fn per_hour(permits: u64) -> Self {
        Self::per(permits, 3_600_000_000_000)
    }

    /// Returns a rate of `permits` per day of 24 hours.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero. Numbers from outside are for [`Rate::new`].
    #[must_use]
    pub const fn per_day(permits: u64) -> Self {
        Self::per(permits, 86_400_000_000_000)
    }

    /// Returns `share / total` of this rate, for one of several members that share a limit.
    ///
    /// The result is exact, or a little slower where the fraction has more than 63 bits on a
    /// side. Parts whose shares add up to `total` never add up to more than the whole.
    #[must_use]
    pub fn part(self, share: u64, total: NonZeroU64) -> Self {
        let Some((permits, period_ns)) = self.fraction() else { return self };
        if share == 0 {
            return Self::NEVER;
        }
        // Both are below 2^128, and neither is 0.
        let permits = u128::from(permits).saturating_mul(share.into());
        let period_ns = u128::from(period_ns).saturating_mul(total.get().into());
        let common = gcd(permits, period_ns);
        let permits = permits.checked_div(common).unwrap_or(permits);
        let period_ns = period_ns.checked_div(common).unwrap_or(period_ns);
        let bits = u128::BITS.saturating_sub((permits | period_ns).leading_zeros());
        let excess = bits.saturating_sub(u64::BITS.saturating_sub(1));
        // Rounds towards the slower rate: fewer permits, a longer period.
        let fewer = permits.checked_shr(excess).unwrap_or(0);
        let longer = period_ns.checked_shr(excess).unwrap_or(0);
        let longer = if excess == 0 { longer } else { longer.saturating_add(1) };
        Self::from_fraction(fewer, longer).unwrap_or(Self::NEVER)
    }

    /// Returns the reduced fraction `(permits, nanoseconds)`, or `None` for never and unlimited.
    #[must_use]
    pub const fn fraction(self) -> Option<(u64, u64)> {
        match self.0 {
            Kind::Paced(pace) => Some((pace.permits().get(), pace.period_ns().get())),
            Kind::Never | Kind::Unlimited => None,
        }
    }

    const fn per(permits: u64, period_ns: u64) -> Self {
        let common = gcd_of_words(permits, period_ns);
        let (permits, period_ns) = (permits.checked_div(common), period_ns.checked_div(common));
        let (Some(permits), Some(period_ns)) = (permits, period_ns) else {
            panic!("a rate without a period")
        };
        match (NonZeroU64::new(permits), NonZeroU64::new(period_ns)) {
            (Some(permits), Some(period_ns)) => Self(Kind::Paced(Pace::new(permits, period_ns))),
            _ => panic!("a rate of zero permits: use Rate::NEVER to deny everything"),
        }
    }

    pub(crate) fn from_fraction(permits: u128, period_ns: u128) -> Result<Self, RateError> {
        if permits == 0 {
            return Err(RateError::Zero);
        }
        if period_ns == 0 {
            return Err(RateError::ZeroPeriod);
        }
        let common = gcd(permits, period_ns);
        let reduce = |side: u128| {
            let side = side.checked_div(common).and_then(|side| u64::try_from(side).ok());
            side.and_then(NonZeroU64::new).ok_or(RateError::NotRepresentable)
        };
        Ok(Self(Kind::Paced(Pace::new(reduce(permits)?, reduce(period_ns)?))))
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
        match self.fraction() {
            None if *self == Self::NEVER => f.write_str("never"),
            None => f.write_str("unlimited"),
            Some((permits, period_ns)) => match unit_of(permits, period_ns) {
                Some((unit, periods)) => {
                    write!(f, "{}/{unit}", u128::from(permits).saturating_mul(periods.into()))
                }
                None => write!(f, "{permits}/{}", span::Text(period_ns)),
            },
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
