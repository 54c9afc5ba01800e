//! Computes `a * b / d` without an intermediate 128-bit overflow, for the rare step that changes
//! units.

/// Returns `a * b / d`, rounded up, or `None` if the result exceeds 128 bits or `d` is zero.
pub(crate) fn mul_div_ceil(a: u128, b: u64, d: u128) -> Option<u128> {
    let (quotient, remainder) = mul_div_rem(a, b, d)?;
    quotient.checked_add(u128::from(remainder > 0))
}

/// Returns `a * b / d`, rounded down, or `None` if the result exceeds 128 bits or `d` is zero.
pub(crate) fn mul_div_floor(a: u128, b: u64, d: u128) -> Option<u128> {
    mul_div_rem(a, b, d).map(|(quotient, _)| quotient)
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
    use super::{mul_div_ceil, mul_div_floor};

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
