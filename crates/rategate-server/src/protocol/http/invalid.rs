//! What is wrong with a body, and where.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Deserialize;
use serde_path_to_error::Segment;

/// The longest text about it, in bytes: a caller's own words may be part of it.
const MOST_BYTES: usize = 400;

/// A part of a body that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    /// Where: a JSON pointer, empty for the whole body.
    pub(super) pointer: String,
    /// What is wrong, and what would be right.
    pub(super) detail: Cow<'static, str>,
}

impl Invalid {
    /// Something wrong at a place.
    pub(super) fn at(pointer: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut detail = detail.into();
        if detail.len() > MOST_BYTES {
            detail = format!("{}...", clipped(&detail)).into();
        }
        Self { pointer: pointer.into(), detail }
    }

    /// What could not be read as `T`. The body is read once more to find out where, which is no matter: only those who make mistakes wait
    /// for it.
    pub(super) fn json<'a, T: Deserialize<'a>>(body: &'a [u8], fault: &serde_json::Error) -> Self {
        let mut reader = serde_json::Deserializer::from_slice(body);
        let pointer = match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Ok(_) => String::new(),
            Err(fault) => pointer(fault.path()),
        };
        Self::at(pointer, fault.to_string())
    }
}

/// A path as a JSON pointer (RFC 6901).
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
            // The name of a variant is no place in the text, and what is unknown is left out.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    clipped(&pointer).to_owned()
}

/// As much of a text as is told.
fn clipped(text: &str) -> &str {
    let mut ends = (0..=MOST_BYTES.min(text.len())).rev();
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
