//! Bit fields of any width, packed one after the other into words.

/// Returns the field of `bits` bits at bit `at`; zero past the end.
#[inline]
pub(super) fn read(words: &[u64], at: u64, bits: u32) -> u64 {
    let (word, shift) = word_of(at);
    let word_at = |word: usize| words.get(word).copied().unwrap_or(0);
    let low = word_at(word) >> shift;
    let reach = shift.wrapping_add(bits);
    let high = if reach > u64::BITS {
        word_at(word.wrapping_add(1)).wrapping_shl(u64::BITS.wrapping_sub(shift))
    } else {
        0
    };
    (low | high) & mask(bits)
}

/// Writes `value`, which has at most `bits` bits, at bit `at`.
#[inline]
pub(super) fn write(words: &mut [u64], at: u64, bits: u32, value: u64) {
    let (word, shift) = word_of(at);
    if let Some(low) = words.get_mut(word) {
        *low = *low & !(mask(bits) << shift) | (value << shift);
    }
    let reach = shift.wrapping_add(bits);
    if let Some(over) = reach.checked_sub(u64::BITS).filter(|&over| over > 0)
        && let Some(high) = words.get_mut(word.wrapping_add(1))
    {
        let written = bits.wrapping_sub(over);
        *high = *high & !mask(over) | value.wrapping_shr(written);
    }
}

/// Returns the number of bits that `value` takes.
pub(super) const fn bits_of(value: u64) -> u32 {
    u64::BITS.wrapping_sub(value.leading_zeros())
}

/// Returns the highest value of `bits` bits.
pub(super) const fn mask(bits: u32) -> u64 {
    match u64::MAX.checked_shr(u64::BITS.wrapping_sub(bits)) {
        Some(mask) => mask,
        None => 0,
    }
}

/// Returns the word of a bit, and the shift within it.
fn word_of(at: u64) -> (usize, u32) {
    let shift = u32::try_from(at & 63).unwrap_or(0);
    (usize::try_from(at >> 6).unwrap_or(usize::MAX), shift)
}

#[cfg(test)]
mod tests {
    use super::{bits_of, mask, read, write};

    #[test]
    fn a_field_is_what_was_written_and_leaves_the_others() {
        for bits in 0..=64_u32 {
            let mut words = [0x5555_5555_5555_5555_u64; 70];
            let fields = 68 * 64 / u64::from(bits.max(1));
            let value = |field: u64| field.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask(bits);
            for field in (0..fields).rev() {
                write(&mut words, field * u64::from(bits), bits, value(field));
            }
            for field in 0..fields {
                assert_eq!(read(&words, field * u64::from(bits), bits), value(field), "{bits}");
            }
            assert_eq!(words[69], 0x5555_5555_5555_5555, "{bits}");
        }
        assert_eq!(read(&[7], 64, 5), 0);
    }

    #[test]
    fn widths_are_those_of_the_values() {
        let values = [0, 1, 2, 3, 4, 255, 256, u64::MAX];
        assert_eq!(values.map(bits_of), [0, 1, 2, 2, 3, 8, 9, 64]);
        assert_eq!([0, 1, 8, 63, 64].map(mask), [0, 1, 255, u64::MAX >> 1, u64::MAX]);
    }
}
