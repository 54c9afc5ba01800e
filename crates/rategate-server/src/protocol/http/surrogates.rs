//! JSON text that is not Unicode: escapes of half a character, such as `"\\ud800"`, from programs
//! that count in UTF-16.
//!
//! A client of such a program chooses the text, so it is a value like any other. The value is
//! rewritten as its bytes, `{"base64": ...}`, which is accepted wherever a key or a value is.
//! Bodies without such an escape are not scanned.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::invalid::Invalid;
use crate::protocol::rls::Bytes;

/// Parses a body. If that fails because of text that is not Unicode, parses it again with such
/// text as bytes. `buffer` holds the rewritten body.
///
/// # Errors
///
/// That of the body as written, unless another part of it is at fault.
pub(super) fn read<'a, T>(
    body: &'a [u8],
    buffer: &'a mut Vec<u8>,
    read: impl Fn(&'a [u8]) -> Result<T, Invalid>,
) -> Result<T, Invalid> {
    let written = match read(body) {
        Ok(read) => return Ok(read),
        Err(invalid) => invalid,
    };
    let Some(mended) = mended(body) else { return Err(written) };
    *buffer = mended;
    read(buffer).map_err(|other| if other.pointer == written.pointer { written } else { other })
}

/// Returns the body with each value that has half a character rewritten as its bytes, or `None` if
/// there is none.
fn mended(body: &[u8]) -> Option<Vec<u8>> {
    let mut mended = Vec::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(start) = find(body, at, |byte| byte == b'"') {
        let end = end_of_text(body, start)?;
        at = end;
        let text = body.get(start..end)?;
        let is_name = find(body, end, |byte| !byte.is_ascii_whitespace())
            .is_some_and(|next| body.get(next) == Some(&b':'));
        if is_name || !has_half(text) {
            continue;
        }
        mended.extend_from_slice(body.get(copied..start)?);
        mended.extend_from_slice(b"{\"base64\":\"");
        let Bytes(bytes) = serde_json::from_slice(text).ok()?;
        mended.extend_from_slice(STANDARD.encode(bytes).as_bytes());
        mended.extend_from_slice(b"\"}");
        copied = end;
    }
    if copied == 0 {
        return None;
    }
    mended.extend_from_slice(body.get(copied..)?);
    Some(mended)
}

/// Returns the position of the first matching byte at or after `from`.
fn find(body: &[u8], from: usize, is_it: impl Fn(u8) -> bool) -> Option<usize> {
    let offset = body.get(from..)?.iter().position(|byte| is_it(*byte))?;
    from.checked_add(offset)
}

/// Returns the end of the string that begins with the quote at `start`.
fn end_of_text(body: &[u8], start: usize) -> Option<usize> {
    let mut at = start.checked_add(1)?;
    loop {
        at = find(body, at, |byte| matches!(byte, b'"' | b'\\'))?;
        let is_escape = body.get(at) == Some(&b'\\');
        at = at.checked_add(if is_escape { 2 } else { 1 })?;
        if !is_escape {
            return Some(at);
        }
    }
}

/// Returns `true` if a text has an escape of half a character.
fn has_half(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        rest = rest.get(at..).unwrap_or_default();
        let (first, second) = (unit(rest), rest.get(6..).and_then(unit));
        let length = match (first, second) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => 12,
            (Some(0xd800..0xe000), _) => return true,
            _ => 2,
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    false
}

/// Returns the number of an escape like `\\ud800` at the front.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_half_a_character_are_written_as_bytes() {
        let of = |text: &str| mended(text.as_bytes()).map(|text| String::from_utf8(text).unwrap());
        assert_eq!(of(r#"{"key":"\ud800"}"#).unwrap(), r#"{"key":{"base64":"7aCA"}}"#);
        let two = r#"{"a":["\udc00x", "\"\\"], "key" : "a\ud83d\ude00\ud83d"}"#;
        let mended = r#"{"a":[{"base64":"7bCAeA=="}, "\"\\"], "key" : {"base64":"YfCfmIDtoL0="}}"#;
        assert_eq!(of(two).unwrap(), mended);
        for whole in [
            "",
            "{",
            "\"",
            "\"\\",
            r#"{"key":"\ud83d\ude00"}"#,
            r#"{"key":"\\ud800"}"#,
            r#"{"\ud800":1}"#,
            r#"{"\ud800" : "x"}"#,
            r#"{"key":"\ud800"#,
        ] {
            assert_eq!(of(whole), None, "{whole}");
        }
    }
}
