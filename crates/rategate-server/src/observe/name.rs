//! Names of keys: their values in percent-encoding, with slashes between them.
//!
//! So any bytes become printable text in one line that shows where each value ends. It is also
//! the path under which `GET /v1/keys/{rule}/{key}` finds the key.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// The bytes that a name shows encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b'+')
    .remove(b',');

/// The maximum length of a name, in bytes. Longer ones are cut and end with `…`, which no whole
/// name contains.
pub(super) const MAX_BYTES: usize = 64;

/// Returns the name of a counter's key, which consists of `values` values.
pub(super) fn of_key(key: &[u8], values: usize) -> String {
    let mut name = String::new();
    if values < 2 {
        encode(key, &mut name);
        return cut(name);
    }
    let mut rest = key;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let end = length.min(after.len());
        let (value, left) = after.split_at(end);
        if rest.len() != key.len() {
            name.push('/');
        }
        encode(value, &mut name);
        rest = left;
        if name.len() > MAX_BYTES {
            break;
        }
    }
    cut(name)
}

/// Returns the values of a name, or `None` if it is not one.
pub(super) fn values(name: &str) -> Option<Vec<Vec<u8>>> {
    name.split('/').map(decode).collect()
}

/// Decodes percent-encoded text. Returns `None` if a `%` is not followed by two digits.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let is_encoded = |rest: &str| {
        rest.as_bytes().first_chunk::<2>().is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    };
    let is_whole = text.split('%').skip(1).all(is_encoded);
    is_whole.then(|| percent_decode_str(text).collect())
}

fn encode(bytes: &[u8], text: &mut String) {
    // Longer values are cut anyway.
    let bytes = bytes.get(..MAX_BYTES.saturating_add(1)).unwrap_or(bytes);
    text.extend(percent_encode(bytes, ENCODED));
}

/// Cuts a name before a whole character; an encoded byte counts as one.
fn cut(mut name: String) -> String {
    if name.len() <= MAX_BYTES {
        return name;
    }
    let mut end = MAX_BYTES.saturating_sub('…'.len_utf8());
    let tail = name.as_bytes().get(end.saturating_sub(2)..end).unwrap_or_default();
    if let Some(at) = tail.iter().rposition(|&byte| byte == b'%') {
        end = end.saturating_sub(tail.len().saturating_sub(at));
    }
    name.truncate(end);
    name.push('…');
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(values: &[&[u8]]) -> Vec<u8> {
        let long =
            |value: &&[u8]| [&u32::try_from(value.len()).unwrap().to_le_bytes(), *value].concat();
        values.iter().flat_map(long).collect()
    }

    #[test]
    fn any_bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        for value in all.chunks(16).chain([&b""[..], b"a/b", b"%41", "äö".as_bytes(), b"\n\0\""])
        {
            let name = of_key(value, 1);
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
            assert_eq!(values(&name), Some(vec![value.to_vec()]));
            let two = of_key(&together(&[value, b"x/y"]), 2);
            assert_eq!(values(&two), Some(vec![value.to_vec(), b"x/y".to_vec()]), "{two}");
        }
        assert_eq!(values("%4"), None);
        assert_eq!(values("%zz"), None);
    }

    #[test]
    fn long_names_are_cut_between_bytes() {
        for lead in 0..4 {
            let key = ["a".repeat(lead), "ä".repeat(1_000)].concat();
            let name = of_key(key.as_bytes(), 1);
            assert!(name.len() <= MAX_BYTES && name.ends_with('…'), "{name}");
            assert!(values(name.trim_end_matches('…')).is_some(), "{name}");
        }
        assert_eq!(of_key(&[b'a'; 64], 1), "a".repeat(64));
        // Wrong lengths do no harm.
        assert_eq!(of_key(&[255, 255, 255, 255, 1], 2), "%01");
    }
}
