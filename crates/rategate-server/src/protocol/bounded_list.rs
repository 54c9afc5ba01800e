//! JSON lists that are read no further than their maximum length.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::object::Object;
use crate::engine::MAX_ITEMS;

/// The start of the error about a list that is too long. No other error of `serde_json` starts
/// with it.
const MORE_THAN: &str = "more than";

/// Returns `true` if a text was rejected because a list in it is too long.
pub(crate) fn has_too_many(error: &serde_json::Error) -> bool {
    error.is_data() && error.to_string().starts_with(MORE_THAN)
}

/// Reads a list of at most [`MAX_ITEMS`] objects, or null.
///
/// The first excess element ends the reading, since an element is shorter as text than in memory.
pub(crate) fn bounded_list<'de, T, D>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(BoundedList(PhantomData))
}

struct BoundedList<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedList<T> {
    type Value = Option<Vec<T>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Object(one)) = list.next_element()? {
            if all.len() >= MAX_ITEMS {
                let detail =
                    format_args!("{MORE_THAN} {MAX_ITEMS}; there can be from 1 to {MAX_ITEMS}");
                return Err(A::Error::custom(detail));
            }
            all.push(one);
        }
        Ok(Some(all))
    }
}
