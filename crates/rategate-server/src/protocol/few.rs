//! Lists in JSON that are not read further than they may be long.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use crate::engine::MOST_ITEMS;

/// How the error about a list that is too long begins. No other error of `serde_json` begins so.
const MORE_THAN: &str = "more than";

/// Returns whether a text was not read for having a list that is too long.
pub(crate) fn has_too_many(error: &serde_json::Error) -> bool {
    error.is_data() && error.to_string().starts_with(MORE_THAN)
}

/// Reads a list of at most [`MOST_ITEMS`], or null. The first element that is too much ends the reading: an element is shorter as text than it is
/// in memory.
pub(crate) fn few<'de, T, D>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Few(PhantomData))
}

struct Few<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
    type Value = Option<Vec<T>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element()? {
            if all.len() >= MOST_ITEMS {
                let detail =
                    format_args!("{MORE_THAN} {MOST_ITEMS}; there can be from 1 to {MOST_ITEMS}");
                return Err(A::Error::custom(detail));
            }
            all.push(one);
        }
        Ok(Some(all))
    }
}
