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

use core::hash::{Hash, Hasher};
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
///
/// It prints with the period that it was written with: `30/min` stays that. Rates are equal if
/// their fractions are, whatever their periods were.
#[derive(Clone, Copy)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(from = "Kind", into = "Kind"))]
pub struct Rate {
    form: Form,
    /// The unit of the period as written, by its index in [`span::UNITS`].
    unit: u8,
    /// The number of these units, or zero if the period is not known.
    units: u32,
    /// The reduced fraction of a paced rate.
    permits: NonZeroU64,
    period_ns: NonZeroU64,
}

/// The form of a rate. Apart from the fraction, so that all of a rate takes three words.
#[derive(Clone, Copy)]
enum Form {
    Never,
    Paced,
    Unlimited,
}

/// The three kinds of rate. Crate-wide for the policies; users compare with the constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub(crate) enum Kind {
    Never,
    Paced(Pace),
    Unlimited,
}

impl Rate {
    /// The rate of no permits, ever. A limit at this rate denies everything, and no wait helps.
    pub const NEVER: Self = Self::of(Kind::Never);
    /// The rate without any limit.
    pub const UNLIMITED: Self = Self::of(Kind::Unlimited);

    /// Returns a rate of `permits` per `period`.
    ///
    /// # Errors
    ///
    /// [`RateError::Zero`] and [`RateError::ZeroPeriod`]: never and unlimited exist only by name.
    /// [`RateError::NotRepresentable`] for a period over 584 years.
    pub fn new(permits: u64, period: Duration) -> Result<Self, RateError> {
        let rate = Self::from_fraction(permits.into(), period.as_nanos())?;
        Ok(rate.written_per(span::whole_ns(period)))
    }

    /// Returns a rate of `permits` per second.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero. Numbers from outside are for [`Rate::new`].
    #[must_use]
    #[track_caller]
    pub const fn per_second(permits: u64) -> Self {
        Self::per(permits, 1_000_000_000)
    }

    /// Returns a rate of `permits` per minute.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero. Numbers from outside are for [`Rate::new`].
    #[must_use]
    #[track_caller]
    pub const fn per_minute(permits: u64) -> Self {
        Self::per(permits, 60_000_000_000)
    }

    /// Returns a rate of `permits` per hour.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero. Numbers from outside are for [`Rate::new`].
    #[must_use]
    #[track_caller]
    pub const fn per_hour(permits: u64) -> Self {
        Self::per(permits, 3_600_000_000_000)
    }

    /// Returns a rate of `permits` per day of 24 hours.
    ///
    /// # Panics
    ///
    /// Panics if `permits` is zero. Numbers from outside are for [`Rate::new`].
    #[must_use]
    #[track_caller]
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
        match self.form {
            Form::Paced => Some((self.permits.get(), self.period_ns.get())),
            Form::Never | Form::Unlimited => None,
        }
    }

    #[inline]
    pub(crate) const fn kind(self) -> Kind {
        match self.form {
            Form::Never => Kind::Never,
            Form::Paced => Kind::Paced(Pace::new(self.permits, self.period_ns)),
            Form::Unlimited => Kind::Unlimited,
        }
    }

    #[inline]
    pub(crate) const fn of(kind: Kind) -> Self {
        let one = NonZeroU64::MIN;
        let (form, permits, period_ns) = match kind {
            Kind::Never => (Form::Never, one, one),
            Kind::Paced(pace) => (Form::Paced, pace.permits(), pace.period_ns()),
            Kind::Unlimited => (Form::Unlimited, one, one),
        };
        Self { form, unit: 0, units: 0, permits, period_ns }
    }

    /// Returns the pace of a rate that is neither never nor unlimited.
    pub(crate) const fn pace(self) -> Option<Pace> {
        match self.kind() {
            Kind::Paced(pace) => Some(pace),
            Kind::Never | Kind::Unlimited => None,
        }
    }

    #[track_caller]
    const fn per(permits: u64, period_ns: u64) -> Self {
        let common = gcd_of_words(permits, period_ns);
        let (permits, reduced_ns) = (permits.checked_div(common), period_ns.checked_div(common));
        let (Some(permits), Some(reduced_ns)) = (permits, reduced_ns) else {
            panic!("a rate without a period")
        };
        match (NonZeroU64::new(permits), NonZeroU64::new(reduced_ns)) {
            (Some(permits), Some(reduced_ns)) => {
                Self::of(Kind::Paced(Pace::new(permits, reduced_ns))).written_per(period_ns)
            }
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
        Ok(Self::of(Kind::Paced(Pace::new(reduce(permits)?, reduce(period_ns)?))))
    }
}

impl PartialEq for Rate {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind()
    }
}

impl Eq for Rate {}

impl Hash for Rate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind().hash(state);
    }
}

impl From<Rate> for Kind {
    fn from(rate: Rate) -> Self {
        rate.kind()
    }
}

/// Returns the rate, with its fraction reduced.
impl From<Kind> for Rate {
    fn from(kind: Kind) -> Self {
        let Kind::Paced(pace) = kind else { return Self::of(kind) };
        let (permits, period_ns) = (pace.permits().get(), pace.period_ns().get());
        Self::from_fraction(permits.into(), period_ns.into()).unwrap_or(Self::NEVER)
    }
}
