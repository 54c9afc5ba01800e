//! The integral of a rate: operations, and a part of one in 128 bits.

use crate::wide::Wide;

/// A number of operations: `whole`, and `part` in `1 / 2^128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Total {
    pub(super) whole: u128,
    pub(super) part: u128,
}

impl Total {
    pub(super) const ZERO: Self = Self { whole: 0, part: 0 };
    pub(super) const MAX: Self = Self { whole: u128::MAX, part: u128::MAX };

    pub(super) const fn of(operations: u128) -> Self {
        Self { whole: operations, part: 0 }
    }

    /// Returns `numerator / denominator`, rounded up in the last bit; saturates.
    pub(super) fn quotient(numerator: Wide, denominator: u128) -> Self {
        let Some((whole, rest)) = numerator.div_rem(denominator) else { return Self::MAX };
        match (Wide { high: rest, low: 0 }).div_rem(denominator) {
            Some((part, 0)) => Self { whole, part },
            Some((part, _)) => Self { whole, part }.plus(Self { whole: 0, part: 1 }),
            None => Self::MAX,
        }
    }

    /// Returns the least numerator over `denominator` whose [quotient](Self::quotient) is at least
    /// this total, which is not zero.
    pub(super) fn numerator(self, denominator: u128) -> Wide {
        // Rounded up, a quotient is at least `x` if the exact one is above `x - 1 / 2^128`.
        let below = self.minus(Self { whole: 0, part: 1 });
        let part = Wide::product(below.part, denominator).high;
        Wide::product(below.whole, denominator).plus(part).plus(1)
    }

    /// Returns the sum; saturates.
    pub(super) const fn plus(self, other: Self) -> Self {
        let (part, carry) = self.part.overflowing_add(other.part);
        let whole = match self.whole.checked_add(other.whole) {
            Some(whole) if carry => whole.checked_add(1),
            whole => whole,
        };
        match whole {
            Some(whole) => Self { whole, part },
            None => Self::MAX,
        }
    }

    /// Returns the difference, or zero where `other` is the larger.
    pub(super) const fn minus(self, other: Self) -> Self {
        let (part, borrow) = self.part.overflowing_sub(other.part);
        let whole = match self.whole.checked_sub(other.whole) {
            Some(whole) if borrow => whole.checked_sub(1),
            whole => whole,
        };
        match whole {
            Some(whole) => Self { whole, part },
            None => Self::ZERO,
        }
    }

    /// Returns the product; saturates.
    pub(super) const fn times(self, factor: u64) -> Self {
        #[expect(clippy::as_conversions, reason = "a wider type, in a constant function")]
        let factor = factor as u128;
        let Wide { high: carry, low: part } = Wide::product(self.part, factor);
        let whole = match self.whole.checked_mul(factor) {
            Some(whole) => whole.checked_add(carry),
            None => None,
        };
        match whole {
            Some(whole) => Self { whole, part },
            None => Self::MAX,
        }
    }

    pub(super) const fn ceil(self) -> u128 {
        if self.part > 0 { self.whole.saturating_add(1) } else { self.whole }
    }
}
