//! Errors of request bodies, with their positions.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Deserialize;
use serde_path_to_error::Segment;

use crate::protocol::object::Object;

/// The maximum length of an error's text in bytes. The text may contain words of the caller.
const MAX_DETAIL_BYTES: usize = 400;

/// The maximum length of a word that an error repeats, in bytes.
const MAX_WORD_BYTES: usize = 32;

/// An invalid part of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    /// The JSON pointer of the part, empty for the whole body.
    pub(super) pointer: String,
    /// The fault and an accepted form.
    pub(super) detail: Cow<'static, str>,
}

impl Invalid {
    /// Creates an error at a pointer.
    pub(super) fn at(pointer: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut detail = detail.into();
        if detail.len() > MAX_DETAIL_BYTES {
            detail = format!("{}...", clipped(&detail)).into();
        }
        Self { pointer: pointer.into(), detail }
    }

    /// Creates the error of a body that cannot be parsed as an object. The body is parsed again to
    /// find the position, which only invalid requests pay for.
    pub(super) fn json<'a, T: Deserialize<'a>>(body: &'a [u8], fault: &serde_json::Error) -> Self {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let mut pointer = match serde_path_to_error::deserialize::<_, Object<T>>(&mut reader) {
            Ok(_) => String::new(),
            Err(fault) => pointer(fault.path()),
        };
        let mut detail = fault.to_string();
        if let Some(name) = duplicate(&detail) {
            let _ = write!(pointer, "/{name}");
        }
        if fault.is_syntax() {
            detail.push_str(&accepted(body, fault, &pointer));
        }
        Self::at(pointer, detail)
    }
}

/// Returns the name of the member that comes twice in an object, which is no part of the path.
fn duplicate(detail: &str) -> Option<String> {
    let (name, _) = detail.strip_prefix("duplicate field `")?.split_once('`')?;
    Some(name.to_owned())
}

/// Returns what is wrong and what would be right, of a word or a text that is none of JSON: that
/// gets to no reader, which would say it.
fn accepted(body: &[u8], fault: &serde_json::Error, pointer: &str) -> String {
    let error = fault.to_string();
    let of = |names: &[&str]| names.iter().any(|name| error.starts_with(name));
    if of(&["invalid unicode code point"])
        && let Err(other) = std::str::from_utf8(body)
        && let Some(byte) = body.get(other.valid_up_to())
    {
        let bytes = "{\"base64\": \"AP8=\"}";
        return format!(": byte {byte:#04x} is not UTF-8; other bytes of a key are as {bytes}");
    }
    if of(&["lone leading surrogate", "unexpected end of hex escape"]) {
        let half = ": an escape like \\ud800 is half a character; write the other half behind it";
        return half.to_owned();
    }
    if is_number(pointer) {
        let word = word_at(body, fault.line(), fault.column());
        return format!(": `{word}`; write a whole number from 0 to {}", u64::MAX);
    }
    String::new()
}

/// Returns `true` for the pointer of a number.
fn is_number(pointer: &str) -> bool {
    let mut parts = pointer.rsplit('/');
    let (last, before) = (parts.next(), parts.next());
    matches!(last, Some("permits" | "at_most" | "burst")) || before == Some("usage")
}

/// The bytes behind which a word of JSON ends.
const DELIMITERS: &[u8] = b" \t\r\n,:[]{}\"";

/// Returns the word around a position, of which lines and columns count from 1.
fn word_at(body: &[u8], line: usize, column: usize) -> Cow<'_, str> {
    let line = body.split(|byte| *byte == b'\n').nth(line.saturating_sub(1)).unwrap_or_default();
    let (before, after) = line.split_at(column.saturating_sub(1).min(line.len()));
    let is_end = |byte: &u8| DELIMITERS.contains(byte);
    let start = before.iter().rposition(is_end).map_or(0, |at| at.saturating_add(1));
    let end = after.iter().position(is_end).unwrap_or(after.len());
    let end = before.len().saturating_add(end);
    let word = line.get(start..end.min(start.saturating_add(MAX_WORD_BYTES))).unwrap_or_default();
    String::from_utf8_lossy(word)
}

/// Converts a path to a JSON pointer (RFC 6901).
fn pointer(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                let _ = write!(pointer, "/{index}");
            }
            Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            // A variant's name is not a position in the text, and unknown segments are left out.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    clipped(&pointer).to_owned()
}

/// Returns the start of a text, up to the maximum length.
fn clipped(text: &str) -> &str {
    start_of(text, MAX_DETAIL_BYTES)
}

fn start_of(text: &str, max_bytes: usize) -> &str {
    let mut ends = (0..=max_bytes.min(text.len())).rev();
    ends.find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Returns a text of the caller for an error, in quotes. One that is long is cut.
pub(super) fn quoted(text: &str) -> String {
    let start = start_of(text, 2 * MAX_WORD_BYTES);
    let more = if start.len() < text.len() { "..." } else { "" };
    format!("{start:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::Invalid;

    #[test]
    fn long_words_of_a_caller_are_clipped() {
        let invalid = Invalid::at("", "ä".repeat(300));
        assert_eq!(invalid.detail.len(), 403);
        assert!(invalid.detail.ends_with("ä..."));
        assert_eq!(Invalid::at("/a", "short").detail, "short");
    }
}
