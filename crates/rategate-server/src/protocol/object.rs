//! JSON objects, whose members have names. A list of the members' values in their order is none.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A value that is written as an object. Derived readers would accept a list, and their errors name
/// a type of the program.
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
        f.write_str("an object with named members, as {\"name\": ...}")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members)).map(Object)
    }
}

/// Parses an object.
///
/// # Errors
///
/// Those of the text and its members.
pub(crate) fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(text).map(|Object(object)| object)
}
