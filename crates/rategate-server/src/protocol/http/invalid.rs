//! Invalid parts of requests, with their positions.

use std::borrow::Cow;

use crate::protocol::json::JsonError;

/// The maximum length of an error's text and of its pointer, in bytes. They may contain words of the
/// caller.
const MAX_DETAIL_BYTES: usize = 400;

/// The maximum length of a word that an error repeats, in bytes.
const MAX_WORD_BYTES: usize = 64;

/// An invalid part of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
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
            detail = format!("{}...", start_of(&detail, MAX_DETAIL_BYTES)).into();
        }
        let pointer = start_of(&pointer.into(), MAX_DETAIL_BYTES).to_owned();
        Self { pointer, detail }
    }
}

impl From<JsonError> for Invalid {
    fn from(JsonError { pointer, detail }: JsonError) -> Self {
        Self::at(pointer, detail)
    }
}

/// Returns the start of a text, up to a maximum length.
fn start_of(text: &str, max_bytes: usize) -> &str {
    let mut ends = (0..=max_bytes.min(text.len())).rev();
    ends.find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Returns a text of the caller for an error, in quotes. One that is long is cut.
pub(super) fn quoted(text: &str) -> String {
    let start = start_of(text, MAX_WORD_BYTES);
    let more = if start.len() < text.len() { "..." } else { "" };
    format!("{start:?}{more}")
}
