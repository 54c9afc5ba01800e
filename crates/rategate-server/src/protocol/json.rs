//! Reading of JSON: errors name their place, and lists take no more memory than a request may need.

use std::fmt::{self, Write as _};
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, IgnoredAny, IntoDeserializer, MapAccess,
    SeqAccess, Visitor,
};
use serde_path_to_error::{Path, Segment};

use crate::config::in_words;
use crate::engine::MAX_ITEMS;

/// A fault in a text.
#[derive(Debug)]
pub(crate) struct JsonError {
    /// The JSON pointer (RFC 6901) of the part, empty for the whole text.
    pub(crate) pointer: String,
    pub(crate) detail: String,
}

/// Parses an object.
///
/// # Errors
///
/// [`JsonError`].
pub(crate) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    // Of an empty text, or a list of the members' values.
    if !text.trim_ascii_start().starts_with(b"{") {
        let detail = "this is not a JSON object, as {\"name\": ...}".to_owned();
        return Err(JsonError { pointer: String::new(), detail });
    }
    serde_json::from_slice(text).or_else(|_| read_with_path(text))
}

/// Parses an object, and keeps the path to each value until it is read, which takes as long again.
fn read_with_path<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|fault| JsonError {
        pointer: pointer(fault.path()),
        detail: told(&fault.inner().to_string()),
    })?;
    let rest = reader.end();
    rest.map_err(|fault| JsonError { pointer: String::new(), detail: fault.to_string() })?;
    Ok(read)
}

/// Returns a message whose wanted value is in the words of who writes JSON.
fn told(message: &str) -> String {
    let parts = message.rsplit_once(" at line ").and_then(|(fault, place)| {
        let (found, wanted) = fault.rsplit_once(", expected ")?;
        Some(format!("{found}, expected {} at line {place}", in_words(wanted)))
    });
    parts.unwrap_or_else(|| message.to_owned())
}

fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        // Writing to a string cannot fail.
        let _ = match segment {
            Segment::Seq { index } => write!(pointer, "/{index}"),
            Segment::Map { key } => {
                write!(pointer, "/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            // A variant's name is not a position in the text, and unknown segments are left out.
            Segment::Enum { .. } | Segment::Unknown => Ok(()),
        };
    }
    pointer
}

/// A value that is written with the names of its members. Derived readers would also take a list of
/// their values, and their errors name a type of the program.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReadObject(PhantomData))
    }
}

struct ReadObject<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ReadObject<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object, as {\"name\": ...}")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// Reads a word of a list of words. A derived reader would also take it as the name of a member.
pub(crate) fn word<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    member: D,
) -> Result<T, D::Error> {
    T::deserialize(String::deserialize(member)?.into_deserializer())
}

/// A list of objects of which [`MAX_ITEMS`] are kept, and one more if there are more. An element is
/// shorter as text than in memory.
#[derive(Debug)]
pub(crate) struct Bounded<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ReadBounded(PhantomData))
    }
}

struct ReadBounded<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ReadBounded<T> {
    type Value = Bounded<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Bounded<T>, A::Error> {
        let mut kept = Vec::new();
        while kept.len() <= MAX_ITEMS {
            let Some(Object(element)) = list.next_element()? else { return Ok(Bounded(kept)) };
            kept.push(element);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Bounded(kept))
    }
}
