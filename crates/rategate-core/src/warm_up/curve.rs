//! The curve of a warm-up in whole numbers.
//!
//! Coldness is the rest that has not been warmed away, from none to the period `P`. With the rate
//! `N/p`, the cold factor `a/b` and the unit of `1 / (N (a + 5b))` ns:
//!
//! * rest of one nanosecond adds `N (a + 5b)`, and a permit takes off `2 (a + b) p`;
//! * the curve is flat up to `P N (a + b)`, and rises from there over `4 P N b`;
//! * from `x` above the flat part to `y`, permits cost `(a - b) (x^2 - y^2) / (16 b^2 N P (a + b))`
//!   parts of `1 / N` ns beyond the interval of the rate.

use core::num::NonZeroU64;

use crate::exact::{Exact, Pace};
use crate::ratio::Ratio;
use crate::wide::Wide;

/// The numbers of a curve, in the units above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    pub(super) pace: Pace,
    /// The coldness after a period of rest.
    pub(super) max: u128,
    per_ns: u128,
    per_permit: u128,
    flat: u128,
    steepness: u128,
    divisor: u128,
}

/// The cost of permits beyond the interval of the rate, rounded to parts of a nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surplus {
    pub(super) down: Exact,
    pub(super) up: Exact,
}

impl Curve {
    /// Returns the curve, unless one of its products exceeds 128 bits.
    pub(super) fn new(pace: Pace, period_ns: NonZeroU64, cold_factor: Ratio) -> Option<Self> {
        let wide = |number: NonZeroU64| u128::from(number.get());
        let (a, b) = (wide(cold_factor.numerator()), wide(cold_factor.denominator()));
        // Two factors of 64 bits, and sums of a few numbers of 64 bits.
        let permits = wide(period_ns).wrapping_mul(wide(pace.permits()));
        let (steepness, sum) = (a.wrapping_sub(b), a.wrapping_add(b));
        let per_ns = wide(pace.permits()).checked_mul(sum.wrapping_add(b.wrapping_mul(4)))?;
        let max = wide(period_ns).checked_mul(per_ns)?;
        let rise = permits.checked_mul(b)?.checked_mul(4)?;
        Some(Self {
            pace,
            max,
            per_ns,
            per_permit: wide(pace.period_ns()).checked_mul(sum)?.checked_mul(2)?,
            flat: permits.checked_mul(sum)?,
            steepness,
            divisor: rise.checked_mul(b)?.checked_mul(sum)?.checked_mul(4)?,
        })
    }

    /// Returns the coldness after `permits`.
    pub(super) const fn warmed(&self, coldness: u128, permits: u64) -> u128 {
        #[expect(clippy::as_conversions, reason = "a widening, and `From` is not const")]
        coldness.saturating_sub(self.per_permit.saturating_mul(permits as u128))
    }

    /// Returns the coldness after `rest_ns`.
    pub(super) fn cooled(&self, coldness: u128, rest_ns: u128) -> u128 {
        coldness.saturating_add(self.per_ns.saturating_mul(rest_ns)).min(self.max)
    }

    /// Returns the rest that makes up a coldness, rounded up.
    pub(super) const fn whole_ns(&self, coldness: u128) -> u128 {
        coldness.div_ceil(self.per_ns)
    }

    /// Returns what permits cost beyond the interval of the rate, from one coldness down to
    /// another.
    pub(super) fn surplus(&self, from: u128, to: u128) -> Surplus {
        let (from, to) = (from.saturating_sub(self.flat), to.saturating_sub(self.flat));
        if from == to {
            return Surplus { down: Exact::default(), up: Exact::default() };
        }
        // Neither factor exceeds the divisor.
        let difference = from.saturating_sub(to).saturating_mul(self.steepness);
        let product = Wide::product(difference, from.saturating_add(to));
        let (down, rest) = product.div_rem(self.divisor).unwrap_or((u128::MAX, 0));
        let up = down.saturating_add(u128::from(rest > 0));
        Surplus { down: self.pace.from_parts(down), up: self.pace.from_parts(up) }
    }
}
