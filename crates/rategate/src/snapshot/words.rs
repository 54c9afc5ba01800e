//! Words in any format of serde.

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A sequence of words: numbers, or text in human-readable formats, as not all of these hold
/// 64 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words(pub(super) Vec<u64>);

impl Serialize for Words {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return self.0.serialize(serializer);
        }
        let words: Vec<String> = self.0.iter().map(u64::to_string).collect();
        serializer.serialize_str(&words.join(" "))
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(WordsText)
        } else {
            Vec::deserialize(deserializer).map(Self)
        }
    }
}

struct WordsText;

impl<'de> Visitor<'de> for WordsText {
    type Value = Words;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whole numbers up to 2^64 - 1, with spaces between")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Words, E> {
        let words = text.split_ascii_whitespace().map(str::parse);
        let words = words.collect::<Result<_, _>>();
        words.map(Words).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Words, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = seq.next_element()? {
            words.push(word);
        }
        Ok(Words(words))
    }
}
