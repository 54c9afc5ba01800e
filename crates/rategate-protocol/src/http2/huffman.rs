//! The Huffman code of HTTP/2 fields (RFC 7541, appendix B).

use std::sync::LazyLock;

/// The length of each byte's code in bits. The last one is the end, which never occurs. The codes
/// follow from the lengths: ordered by length and byte, each code is the previous one plus one.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const MAX_CODE_BITS: usize = 30;

/// The codes of one length.
#[derive(Clone, Copy, Debug, Default)]
struct Codes {
    /// The first longer code, shifted to 32 bits.
    end: u64,
    /// The first code.
    first: u32,
    /// The index of its byte in the ordered list of bytes.
    at: usize,
}

struct Table {
    by_length: [Codes; MAX_CODE_BITS + 1],
    bytes: Vec<u16>,
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

impl Table {
    fn new() -> Self {
        let mut bytes: Vec<u16> = (0..=256).collect();
        bytes.sort_by_key(|byte| LENGTHS.get(usize::from(*byte)));
        let mut by_length = [Codes::default(); MAX_CODE_BITS + 1];
        let (mut code, mut at) = (0_u32, 0_usize);
        for (length, codes) in by_length.iter_mut().enumerate().skip(1) {
            code <<= 1;
            let count = LENGTHS.iter().filter(|other| usize::from(**other) == length).count();
            (codes.first, codes.at) = (code, at);
            code = code.saturating_add(u32::try_from(count).unwrap_or(0));
            at = at.saturating_add(count);
            codes.end = u64::from(code) << 32_usize.saturating_sub(length);
        }
        Self { by_length, bytes }
    }

    /// Returns the byte at the start of 32 bits, and the length of its code.
    fn first(&self, bits: u32) -> Option<(u16, usize)> {
        let shorter = self.by_length.iter().enumerate().skip(5);
        let (length, codes) = shorter.into_iter().find(|(_, codes)| u64::from(bits) < codes.end)?;
        let code = bits >> 32_usize.saturating_sub(length);
        let offset = usize::try_from(code.wrapping_sub(codes.first)).ok()?;
        Some((*self.bytes.get(codes.at.saturating_add(offset))?, length))
    }
}

/// Appends the decoded text to `out`, or returns `None` if it is invalid.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (mut bits, mut count) = (0_u64, 0_usize);
    let mut rest = text.iter();
    loop {
        while count <= 32 {
            let Some(byte) = rest.next() else { break };
            bits = (bits << 8) | u64::from(*byte);
            count = count.saturating_add(8);
        }
        // Missing bits are filled with ones, like the padding of a text.
        let window = if count >= 32 {
            bits >> count.saturating_sub(32)
        } else {
            let missing = 32_usize.saturating_sub(count);
            (bits << missing) | (1_u64 << missing).saturating_sub(1)
        };
        let window = u32::try_from(window & u64::from(u32::MAX)).ok()?;
        // The remaining bits may be padding: less than a byte, all ones.
        if count < 8 && window == u32::MAX {
            return Some(());
        }
        let (byte, length) = TABLE.first(window)?;
        count = count.checked_sub(length)?;
        out.push(u8::try_from(byte).ok()?);
        bits &= (1_u64 << count).wrapping_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(hex: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        decode(hex, &mut out)?;
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_examples_of_the_standard() {
        let host = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(text(&host).as_deref(), Some("www.example.com"));
        assert_eq!(text(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]).as_deref(), Some("no-cache"));
        assert_eq!(text(&[0x64, 0x02]).as_deref(), Some("302"));
        assert_eq!(text(&[]).as_deref(), Some(""));
    }

    #[test]
    fn wrong_ends_are_refused() {
        // A whole byte of ones, zeros at the end, and the end code itself.
        assert_eq!(text(&[0x64, 0x02, 0xff]), None);
        assert_eq!(text(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xb8]), None);
        assert_eq!(text(&[0xff, 0xff, 0xff, 0xff]), None);
    }
}
