//! Numbers in requests and replies.

use crate::protocol::resp::RespWriter;

const SECOND_NS: u64 = 1_000_000_000;

/// Parses a whole decimal number, with or without a sign or leading zeros. Returns `None` for any
/// other text, and for numbers that exceed 64 bits.
#[inline]
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    match text {
        [] => None,
        // Up to 18 digits cannot overflow.
        [b'0'..=b'9', ..] if text.len() <= 18 => text.iter().try_fold(0_i64, |number, byte| {
            let digit = byte.wrapping_sub(b'0');
            (digit < 10).then(|| number.wrapping_mul(10).wrapping_add(i64::from(digit)))
        }),
        _ => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// Parses a whole decimal number that is not negative.
pub(super) fn unsigned(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The maximum length of a word that an error shows, in bytes.
const MAX_SHOWN: usize = 64;

/// Returns a word for an error, in quotes.
pub(super) fn shown(word: &[u8]) -> String {
    match word.get(..MAX_SHOWN) {
        Some(start) if word.len() > MAX_SHOWN => {
            format!("'{}...'", String::from_utf8_lossy(start))
        }
        _ => format!("'{}'", String::from_utf8_lossy(word)),
    }
}

/// Returns `seconds` in nanoseconds, or `None` if they exceed 64 bits, which is some 584 years.
pub(super) fn nanoseconds(seconds: i64) -> Option<u64> {
    u64::try_from(seconds).ok()?.checked_mul(SECOND_NS)
}

/// Writes a number, or -1 if there is none.
pub(super) fn put_or_minus_one(number: Option<u64>, reply: &mut RespWriter<'_>) {
    match number {
        Some(number) => reply.unsigned(number),
        None => reply.integer(-1),
    }
}

/// Writes the field `ends_after_ms`; null if there is no end.
///
/// Rounded down, so that a client that follows it never holds anything for too long.
pub(super) fn put_ends_after(ns: Option<u64>, reply: &mut RespWriter<'_>) {
    reply.bulk(b"ends_after_ms");
    match ns {
        Some(ns) => reply.unsigned(ns / 1_000_000),
        None => reply.null(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_standard_library_reads_them() {
        // All short texts of what numbers are made of and of others, and the borders.
        const LETTERS: [char; 11] = ['+', '-', '0', '1', '9', ' ', '.', ':', '/', '\0', '\u{661}'];
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            let longer = |text: &String| LETTERS.map(|letter| format!("{text}{letter}"));
            let more: Vec<_> = texts.iter().flat_map(longer).collect();
            texts.extend(more);
        }
        let borders = [i64::MAX.into(), i128::from(i64::MAX) + 1, i64::MIN.into(), u64::MAX.into()];
        texts.extend(
            borders.iter().flat_map(|border| [format!("{border}"), format!("{border:030}")]),
        );
        texts.push((i128::from(i64::MIN) - 1).to_string());
        for text in texts {
            assert_eq!(integer(text.as_bytes()), text.parse().ok(), "{text:?}");
        }
        assert_eq!(integer(b"\xff"), None);
    }
}
