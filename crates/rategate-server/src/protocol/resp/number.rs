//! Numbers in requests, and durations in replies.

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;

/// Parses a whole decimal number, with or without a sign or leading zeros. Returns `None` for any
/// other text, and for numbers that exceed 64 bits.
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

/// Returns whole seconds, rounded up if at least a millisecond is left over.
pub(super) const fn seconds(ns: u64) -> u64 {
    let whole = ns.wrapping_div(SECOND_NS);
    if ns.wrapping_rem(SECOND_NS) >= MILLISECOND_NS { whole.wrapping_add(1) } else { whole }
}

/// Returns whole milliseconds, rounded up.
pub(super) const fn milliseconds(ns: u64) -> u64 {
    ns.div_ceil(MILLISECOND_NS)
}

/// Returns `seconds` in nanoseconds, or `None` if they exceed 64 bits, which is some 584 years.
pub(super) fn nanoseconds(seconds: i64) -> Option<u64> {
    u64::try_from(seconds).ok()?.checked_mul(SECOND_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_standard_library_reads_them() {
        let texts = [
            "",
            "0",
            "-0",
            "+5",
            "007",
            "-",
            "+",
            "1.0",
            "1e3",
            " 1",
            "1 ",
            "0x10",
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "-9223372036854775809",
            "999999999999999999",
            "1000000000000000000",
            "0000000000000000000000000000001",
            "18446744073709551616",
            "--1",
            "+-1",
            "1\0",
            "1:",
            "1/",
            "\u{661}",
        ];
        for text in texts {
            assert_eq!(integer(text.as_bytes()), text.parse().ok(), "{text:?}");
        }
        assert_eq!(integer(b"\xff"), None);
    }

    #[test]
    fn seconds_are_rounded_up_from_a_millisecond_on() {
        let cases = [
            (0, 0),
            (999_999, 0),
            (1_000_000, 1),
            (999_999_999, 1),
            (SECOND_NS, 1),
            (SECOND_NS + 999_999, 1),
        ];
        for (ns, rounded) in cases {
            assert_eq!(seconds(ns), rounded, "{ns}");
        }
        assert_eq!(seconds(SECOND_NS + 1_000_000), 2);
        assert_eq!(seconds(u64::MAX), 18_446_744_074);
        assert_eq!(
            (milliseconds(0), milliseconds(1), milliseconds(u64::MAX)),
            (0, 1, 18_446_744_073_710)
        );
    }
}
