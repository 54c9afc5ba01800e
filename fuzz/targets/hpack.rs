//! Compressed fields mean the same each time and keep their text, the table keeps what it was
//! given, and no bytes cause a panic.

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

/// Blocks of one connection, and fields to be encoded.
type Input<'a> = (Vec<&'a [u8]>, Vec<(&'a [u8], &'a [u8])>);

libfuzzer_sys::fuzz_target!(|input: Input<'_>| {
    let (heads, fields) = input;
    plain(&fields);
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

/// Checks that fields written plainly keep their text, and that each is in the table then.
fn plain(fields: &[(&[u8], &[u8])]) {
    let mut decoder = Decoder::new(Text);
    for (name, value) in fields {
        let mut block = vec![0x40];
        for text in [name, value] {
            put_length(&mut block, text.len());
            block.extend_from_slice(text);
        }
        // The newest field of the table, after the 61 that are always known.
        let size = name.len() + value.len() + 32;
        if size <= 4096 {
            block.push(0x80 | 62);
        }
        let expected = is_value(value).then(|| (Digest::of(name), Digest::of(value)));
        let mut decoded = Vec::new();
        let is_too_long = decoder.decode(&block, 4096, |field| decoded.push(field)).unwrap();
        assert!(decoded.iter().all(|field| *field == expected), "{decoded:?} for {expected:?}");
        assert_eq!(is_too_long, size * decoded.len() > 4096);
    }
}

/// Writes a length in seven bits and more bytes as needed.
fn put_length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        return block.push(u8::try_from(length).unwrap());
    };
    block.push(127);
    while rest >= 128 {
        block.push(u8::try_from(rest & 127).unwrap() | 128);
        rest >>= 7;
    }
    block.push(u8::try_from(rest).unwrap());
}
