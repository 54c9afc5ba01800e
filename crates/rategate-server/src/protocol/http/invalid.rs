//! Errors of request bodies, with their positions.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Deserialize;
use serde_path_to_error::Segment;

/// The maximum length of an error's text in bytes. The text may contain words of the caller.
const MAX_DETAIL_BYTES: usize = 400;

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

    /// Creates the error of a body that cannot be parsed as `T`. The body is parsed again to find
    /// the position, which only invalid requests pay for.
    pub(super) fn json<'a, T: Deserialize<'a>>(body: &'a [u8], fault: &serde_json::Error) -> Self {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let pointer = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Ok(_) => String::new(),
            Err(fault) => pointer(fault.path()),
        };
        Self::at(pointer, fault.to_string())
    }
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
    let mut ends = (0..=MAX_DETAIL_BYTES.min(text.len())).rev();
    ends.find_map(|end| text.get(..end)).unwrap_or_default()
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
