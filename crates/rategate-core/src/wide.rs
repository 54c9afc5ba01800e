//! Products of 128 bits, and `a * b / d` without an intermediate 128-bit overflow.

/// Returns `a * b / d`, rounded up, or `None` if the result exceeds 128 bits or `d` is zero.
pub(crate) fn mul_div_ceil(a: u128, b: u64, d: u128) -> Option<u128> {
    let (quotient, remainder) = mul_div_rem(a, b, d)?;
    quotient.checked_add(u128::from(remainder > 0))
}

/// Returns `a * b / d`, rounded down, or `None` if the result exceeds 128 bits or `d` is zero.
pub(crate) fn mul_div_floor(a: u128, b: u64, d: u128) -> Option<u128> {
    mul_div_rem(a, b, d).map(|(quotient, _)| quotient)
}

/// A number of 256 bits. Its order is that of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wide {
    pub(crate) high: u128,
    pub(crate) low: u128,
}

impl Wide {
    /// Returns `a * b`, which always fits.
    pub(crate) const fn product(a: u128, b: u128) -> Self {
        let ((a1, a0), (b1, b0)) = (halves(a), halves(b));
        let (top, bottom) = (a1.wrapping_mul(b1), a0.wrapping_mul(b0));
        let (left, right) = (a1.wrapping_mul(b0), a0.wrapping_mul(b1));
        // At most three times 2^64.
        let middle = halves(left).1.wrapping_add(halves(right).1).wrapping_add(halves(bottom).0);
        let carry = halves(left).0.wrapping_add(halves(right).0).wrapping_add(halves(middle).0);
        let low = (middle << HALF) | halves(bottom).1;
        Self { high: top.wrapping_add(carry), low }
    }

    /// Returns the sum; saturates.
    pub(crate) const fn plus(self, other: u128) -> Self {
        let (low, carry) = self.low.overflowing_add(other);
        if !carry {
            return Self { high: self.high, low };
        }
        match self.high.checked_add(1) {
            Some(high) => Self { high, low },
            None => Self { high: u128::MAX, low: u128::MAX },
        }
    }

    /// Returns the quotient and the remainder, or `None` if the quotient exceeds 128 bits or `d`
    /// is zero. Knuth's algorithm D with two digits of 64 bits.
    pub(crate) fn div_rem(self, d: u128) -> Option<(u128, u128)> {
        if self.high == 0 {
            return Some((self.low.checked_div(d)?, self.low.checked_rem(d)?));
        }
        if self.high >= d {
            return None;
        }
        let shift = d.leading_zeros();
        let d = d << shift;
        let carried = self.low.checked_shr(u128::BITS.wrapping_sub(shift)).unwrap_or(0);
        let (next, last) = halves(self.low << shift);
        let (first, rest) = digit((self.high << shift) | carried, next, d);
        let (second, rest) = digit(rest, last, d);
        Some(((first << HALF) | second, rest >> shift))
    }
}

const HALF: u32 = 64;

const fn halves(number: u128) -> (u128, u128) {
    (number >> HALF, (number << HALF) >> HALF)
}

/// Returns a digit of 64 bits of `rest * 2^64 + next` over `d`, which has its top bit set and is
/// above `rest`, and the rest of the division.
fn digit(rest: u128, next: u128, d: u128) -> (u128, u128) {
    let (d1, d0) = halves(d);
    let mut digit = rest.checked_div(d1).unwrap_or(0);
    let mut left = rest.wrapping_sub(digit.wrapping_mul(d1));
    // The first guess is at most two too large.
    while halves(left).0 == 0
        && (halves(digit).0 > 0 || digit.wrapping_mul(d0) > ((left << HALF) | next))
    {
        digit = digit.wrapping_sub(1);
        left = left.wrapping_add(d1);
    }
    (digit, ((rest << HALF) | next).wrapping_sub(digit.wrapping_mul(d)))
}

fn mul_div_rem(a: u128, b: u64, d: u128) -> Option<(u128, u128)> {
    if d == 0 {
        return None;
    }
    if let Some(product) = a.checked_mul(b.into()) {
        return Some((product.checked_div(d)?, product.checked_rem(d)?));
    }
    // Long multiplication, bit by bit of `b`: quotient and remainder of `a * prefix(b)`.
    let (a_quotient, a_remainder) = (a.checked_div(d)?, a.checked_rem(d)?);
    let (mut quotient, mut remainder) = (0_u128, 0_u128);
    for bit in (0..u64::BITS).rev() {
        let carry = add_below(&mut remainder, None, d);
        quotient = quotient.checked_mul(2)?.checked_add(carry)?;
        if b >> bit & 1 == 1 {
            let carry = add_below(&mut remainder, Some(a_remainder), d);
            quotient = quotient.checked_add(a_quotient)?.checked_add(carry)?;
        }
    }
    Some((quotient, remainder))
}

/// Adds `other` (or `value` itself) to `value`, both below `d`. Returns 1 if the sum reached `d`.
fn add_below(value: &mut u128, other: Option<u128>, d: u128) -> u128 {
    let other = other.unwrap_or(*value);
    let gap = d.wrapping_sub(*value);
    if other >= gap {
        *value = other.wrapping_sub(gap);
        1
    } else {
        *value = value.wrapping_add(other);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::{Wide, mul_div_ceil, mul_div_floor};

    /// Numbers near the borders of bits and digits.
    fn numbers() -> impl Iterator<Item = u128> + Clone {
        let near = |bit: u32| {
            let power = 1_u128 << bit;
            [power.wrapping_sub(1), power, power.wrapping_add(1), power.wrapping_mul(3)]
        };
        (0..128).step_by(7).chain([63, 64, 65, 126, 127]).flat_map(near).chain([u128::MAX])
    }

    /// `(q * d + r) / d` is `q`, and its rest `r`.
    #[test]
    fn division_undoes_the_product() {
        for d in numbers().filter(|&d| d > 0) {
            for q in numbers() {
                for r in [0, 1, d / 2, d.wrapping_sub(1)].into_iter().filter(|&r| r < d) {
                    let divided = Wide::product(q, d).plus(r).div_rem(d);
                    assert_eq!(divided, Some((q, r)), "{q} * {d} + {r}");
                }
            }
            assert_eq!(Wide { high: d, low: 0 }.div_rem(d), None);
        }
        assert_eq!(Wide::product(1, 1).div_rem(0), None);
    }

    #[test]
    fn products_agree_with_long_multiplication() {
        for (a, b) in numbers().flat_map(|a| numbers().map(move |b| (a, b))) {
            let mut sum = Wide { high: 0, low: 0 };
            for bit in (0..128).rev() {
                let high = (sum.high << 1) | (sum.low >> 127);
                sum = Wide { high, low: sum.low << 1 };
                sum = if b >> bit & 1 == 1 { sum.plus(a) } else { sum };
            }
            assert_eq!(Wide::product(a, b), sum, "{a} * {b}");
        }
    }

    #[test]
    fn agrees_with_plain_arithmetic_where_that_fits() {
        for (a, b, d) in [(7_u128, 3, 2), (0, 9, 4), (1 << 60, 1 << 60, 12_345), (9, 0, 1)] {
            assert_eq!(mul_div_floor(a, b, d), Some(a * u128::from(b) / d));
            assert_eq!(mul_div_ceil(a, b, d), Some((a * u128::from(b)).div_ceil(d)));
        }
    }

    #[test]
    fn survives_products_beyond_128_bits() {
        assert_eq!(mul_div_floor(u128::MAX, u64::MAX, u128::MAX), Some(u64::MAX.into()));
        // (2^128 - 1) * 3 / (2^127): 6 - tiny, so 5 rounded down and 6 rounded up.
        assert_eq!(mul_div_floor(u128::MAX, 3, 1 << 127), Some(5));
        assert_eq!(mul_div_ceil(u128::MAX, 3, 1 << 127), Some(6));
        assert_eq!(mul_div_floor(u128::MAX, 2, 1), None);
        assert_eq!(mul_div_floor(1, 1, 0), None);
    }
}
