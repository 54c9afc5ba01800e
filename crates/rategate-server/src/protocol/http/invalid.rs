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
    pub(super) pointer: Cow<'static, str>,
    /// What is wrong, and what would be right.
    pub(super) detail: Cow<'static, str>,
}

impl Invalid {
    /// Something wrong at a place.
    pub(super) fn at(
        pointer: impl Into<PlaceText>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let mut detail = detail.into();
        if detail.len() > MOST_BYTES {
            let end = detail.floor_char_boundary(MOST_BYTES);
            detail = format!("{}...", detail.get(..end).unwrap_or_default()).into();
        }
        Self { pointer: pointer.into().0, detail }
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

/// Text of a place.
#[derive(Debug)]
pub(super) struct PlaceText(Cow<'static, str>);

impl From<String> for PlaceText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for PlaceText {
    fn from(text: &str) -> Self {
        Self(text.to_owned().into())
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
    let end = pointer.floor_char_boundary(MOST_BYTES);
    pointer.truncate(end);
    pointer
}
