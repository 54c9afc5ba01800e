//! Compressed fields decode as the plain text of the standard's table says, and no bytes cause a
//! panic or make the table larger than it may be.

#![no_main]

use rategate_protocol::http2::{Decoder, Fields, is_name, is_value};

/// Fields that keep their text.
struct Text;

/// A text, cut to what a `Copy` type holds: its length, its sum and its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest(usize, u32, [u8; 16]);

impl Digest {
    fn of(text: &[u8]) -> Self {
        let mut first = [0; 16];
        first.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        let sum = text.iter().fold(7_u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(*byte));
        Self(text.len(), sum, first)
    }
}

impl Fields for Text {
    type Name = Digest;
    type Meaning = Option<(Digest, Digest)>;

    const INVALID: Self::Meaning = None;

    fn name(&self, name: &[u8]) -> Digest {
        let _ = is_name(name);
        Digest::of(name)
    }

    fn meaning(&self, name: Digest, value: &[u8]) -> Self::Meaning {
        assert!(is_value(value) || value.is_empty());
        Some((name, Digest::of(value)))
    }
}

libfuzzer_sys::fuzz_target!(|heads: Vec<&[u8]>| {
    let (mut one, mut other) = (Decoder::new(Text), Decoder::new(Text));
    for head in heads {
        let (mut fields, mut again) = (Vec::new(), Vec::new());
        let is_too_long = one.decode(head, 256, |field| fields.push(field));
        assert_eq!(other.decode(head, 256, |field| again.push(field)), is_too_long);
        assert_eq!(fields, again);
        // No field takes less than a byte.
        assert!(fields.len() <= head.len());
        let Ok(is_too_long) = is_too_long else { return };
        let size: usize = fields.iter().flatten().map(|(name, value)| name.0 + value.0 + 32).sum();
        assert!(is_too_long || size <= 256, "{size} bytes of fields are not too long");
    }
});
