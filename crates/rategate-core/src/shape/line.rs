//! Rates that stay, and rates that change evenly: their integrals, and the inverses of these.

use crate::decimal::gcd;
use crate::rate::{Kind, Rate};
use crate::wide::Wide;

use super::change::Change;
use super::error::ShapeError;
use super::search::least;
use super::total::Total;

/// A rate that stays: `permits` in `period` ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steady {
    pub(super) permits: u128,
    pub(super) period: u128,
}

impl Steady {
    pub(super) fn of(rate: Rate) -> Result<Self, ShapeError> {
        match rate.kind() {
            Kind::Never => Ok(Self { permits: 0, period: 1 }),
            Kind::Paced(pace) => Ok(Self {
                permits: pace.permits().get().into(),
                period: pace.period_ns().get().into(),
            }),
            Kind::Unlimited => Err(ShapeError::Unlimited),
        }
    }

    pub(super) fn reached(self, t: u128) -> Total {
        Total::quotient(Wide::product(self.permits, t), self.period)
    }

    pub(super) fn first(self, target: Total) -> Option<u128> {
        let (ticks, rest) = target.numerator(self.period).div_rem(self.permits)?;
        if rest > 0 { ticks.checked_add(1) } else { Some(ticks) }
    }

    pub(super) fn exceeds(self, other: Self) -> bool {
        Wide::product(self.permits, other.period) > Wide::product(other.permits, self.period)
    }

    pub(super) fn changed(self, change: Change) -> Result<Self, ShapeError> {
        let (rise, spread) = change.of_rates().ok_or(ShapeError::TooFine)?;
        // First across, so that a change back gives the numbers of before.
        let (permits, spread) = reduced(self.permits, spread);
        let (rise, period) = reduced(rise, self.period);
        let permits = permits.checked_mul(rise).ok_or(ShapeError::TooFine)?;
        let period = period.checked_mul(spread).ok_or(ShapeError::TooFine)?;
        Ok(Self { permits, period })
    }
}

fn reduced(a: u128, b: u128) -> (u128, u128) {
    let common = gcd(a, b);
    (a.checked_div(common).unwrap_or(a), b.checked_div(common).unwrap_or(b))
}

/// A rate that changes evenly from `from` to `to` permits in `period` ticks, over `over` ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slope {
    from: u128,
    to: u128,
    period: u128,
    pub(super) over: u128,
}

impl Slope {
    pub(super) fn new(from: Steady, to: Steady, over: u128) -> Result<Self, ShapeError> {
        Self::checked(from, to, over).ok_or(ShapeError::TooFine)
    }

    fn checked(from: Steady, to: Steady, over: u128) -> Option<Self> {
        let common = gcd(from.period, to.period);
        let (widen_to, widen_from) =
            (from.period.checked_div(common)?, to.period.checked_div(common)?);
        let period = from.period.checked_mul(widen_from)?;
        let from = from.permits.checked_mul(widen_from)?;
        let to = to.permits.checked_mul(widen_to)?;
        // The largest numbers of `earned` and of `permit`.
        over.checked_mul(2)?.checked_mul(from.max(to))?;
        over.checked_mul(2)?.checked_mul(period)?;
        Some(Self { from, to, period, over })
    }

    /// Returns the integral up to `t`, at most `over`, in `1 / permit`.
    fn earned(self, t: u128) -> Wide {
        // `checked` has shown that these fit.
        let line = self.from.wrapping_mul(self.over).wrapping_mul(2);
        let bend = self.from.abs_diff(self.to).wrapping_mul(t);
        let mean =
            if self.to >= self.from { line.wrapping_add(bend) } else { line.wrapping_sub(bend) };
        Wide::product(mean, t)
    }

    const fn permit(self) -> u128 {
        self.over.wrapping_mul(self.period).wrapping_mul(2)
    }

    pub(super) fn reached(self, t: u128) -> Total {
        Total::quotient(self.earned(t.min(self.over)), self.permit())
    }

    pub(super) fn first(self, target: Total) -> Option<u128> {
        let earned = target.numerator(self.permit());
        (self.earned(self.over) >= earned)
            .then(|| least(0, self.over, |t| self.earned(t) >= earned))
    }

    pub(super) fn changed(self, change: Change) -> Result<Self, ShapeError> {
        let end = |permits| Steady { permits, period: self.period }.changed(change);
        Self::new(end(self.from)?, end(self.to)?, change.of_length(self.over)?)
    }
}
