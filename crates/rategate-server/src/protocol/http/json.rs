//! The simple values of a request's JSON. Text without escapes is borrowed from the body.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::invalid::quoted;

/// The maximum number of values of a key, and of entries of a descriptor.
pub(super) const MAX_VALUES: usize = 32;

/// A string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

/// A time with its unit, as a string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimeText<'a>(pub(super) Cow<'a, str>);

/// A value of any bytes: a string, or `{"base64": ...}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value<'a>(pub(super) Cow<'a, [u8]>);

/// A whole number from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole(pub(super) u64);

/// The permits of a request that accepts fewer: any number of each item, or up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtMost {
    Any(bool),
    Permits(u64),
}

/// Whole numbers by name, each name once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbers<'a>(pub(super) Vec<(Text<'a>, Whole)>);

/// Reads a member whose default would be another request, and so is no null.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    member: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(member).map(Some)
}

/// The smallest whole number that exceeds 64 bits.
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// Names and values, in the order of the text.
pub(super) type Pairs<'a> = Vec<(Text<'a>, Value<'a>)>;

/// The key of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key<'a> {
    One(Value<'a>),
    /// Values in the order of the rule's entries.
    Many(Vec<Value<'a>>),
    /// Values by the names of the rule's entries.
    Named(Pairs<'a>),
}

/// A descriptor: an object, or a list of pairs if a name occurs twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Descriptor<'a>(pub(super) Pairs<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Read)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TimeText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = TimeText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text with a unit like \"30s\" or \"1500ms\"")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<TimeText<'de>, E> {
                Ok(TimeText(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TimeText<'de>, E> {
                Ok(TimeText(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Read)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Value<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or {\"base64\": a text} for other bytes")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Value<'de>, E> {
                Ok(Value(Cow::Borrowed(text.as_bytes())))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Value<'de>, E> {
                Ok(Value(Cow::Owned(text.as_bytes().to_vec())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'de>, A::Error> {
                match map.next_key::<Text<'de>>()? {
                    Some(Text(name)) if name == "base64" => {}
                    _ => return Err(A::Error::invalid_value(Unexpected::Map, &self)),
                }
                let value = base64_value(&map.next_value()?)?;
                match map.next_key::<Text<'de>>()? {
                    None => Ok(value),
                    Some(_) => Err(A::Error::invalid_value(Unexpected::Map, &self)),
                }
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 0 to 18446744073709551615")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            // Numbers beyond 64 bits arrive as floats, which no longer show the number as written.
            fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
                if number >= TWO_TO_64 {
                    return Err(E::custom(
                        "too large a number; write a whole number from 0 to 18446744073709551615",
                    ));
                }
                Err(E::invalid_type(Unexpected::Float(number), &self))
            }
        }
        deserializer.deserialize_u64(Read)
    }
}

impl<'de> Deserialize<'de> for AtMost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = AtMost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number for `reserve`, true or false for `take`")
            }

            fn visit_bool<E: Error>(self, is_any: bool) -> Result<AtMost, E> {
                Ok(AtMost::Any(is_any))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<AtMost, E> {
                Ok(AtMost::Permits(number))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Numbers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Numbers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object like {\"input\": 120, \"output\": 45}")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Numbers<'de>, A::Error> {
                read_object(map).map(Numbers)
            }
        }
        deserializer.deserialize_map(Read)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, {\"base64\": a text}, a list of values, or values by name")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key::One(Value(Cow::Borrowed(text.as_bytes()))))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key::One(Value(Cow::Owned(text.as_bytes().to_vec()))))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Key<'de>, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    bounded(values.len())?;
                    values.push(value);
                }
                Ok(Key::Many(values))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Key<'de>, A::Error> {
                let mut pairs: Pairs<'de> = read_object(map)?;
                match pairs.as_slice() {
                    [(Text(name), Value(text))] if name == "base64" => {
                        let text = std::str::from_utf8(text).map_err(A::Error::custom)?;
                        base64_value(&Text(Cow::Borrowed(text))).map(Key::One)
                    }
                    _ => Ok(Key::Named(std::mem::take(&mut pairs))),
                }
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Descriptor<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Descriptor<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "an object like {\"user\": \"42\"}, or a list of pairs like \
                     [[\"user\", \"42\"]]",
                )
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<Descriptor<'de>, A::Error> {
                let mut pairs = Pairs::new();
                while let Some(pair) = list.next_element()? {
                    bounded(pairs.len())?;
                    pairs.push(pair);
                }
                Ok(Descriptor(pairs))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Descriptor<'de>, A::Error> {
                read_object(map).map(Descriptor)
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// Reads the members of an object. A name may occur once.
fn read_object<'de, A: MapAccess<'de>, V: Deserialize<'de>>(
    mut map: A,
) -> Result<Vec<(Text<'de>, V)>, A::Error> {
    let mut pairs: Vec<(Text<'de>, V)> = Vec::new();
    while let Some(name) = map.next_key::<Text<'de>>()? {
        bounded(pairs.len())?;
        let value = if pairs.iter().any(|(other, _)| *other == name) {
            map.next_value_seed(Duplicate(&name.0, PhantomData))?
        } else {
            map.next_value()?
        };
        pairs.push((name, value));
    }
    Ok(pairs)
}

/// The value of a name that has come before: an error, which has the position of the value.
struct Duplicate<'a, V>(&'a str, PhantomData<V>);

impl<'de, V> DeserializeSeed<'de> for Duplicate<'_, V> {
    type Value = V;

    fn deserialize<D: Deserializer<'de>>(self, _: D) -> Result<V, D::Error> {
        let name = quoted(self.0);
        Err(D::Error::custom(format_args!("duplicate field {name}; each name may come once")))
    }
}

fn bounded<E: Error>(so_far: usize) -> Result<(), E> {
    if so_far < MAX_VALUES {
        return Ok(());
    }
    Err(E::custom(format_args!("more than {MAX_VALUES} values; fewer are enough for any rule")))
}

/// Decodes base64 of either alphabet, with or without padding.
fn base64_value<'a, E: Error>(text: &Text<'_>) -> Result<Value<'a>, E> {
    let text = text.0.as_bytes();
    let decoded = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
    let decoded = decoded.or_else(|_| URL_SAFE_NO_PAD.decode(text));
    let decoded = decoded.map_err(|_| E::custom("not base64; write it as in \"AP8=\""))?;
    Ok(Value(Cow::Owned(decoded)))
}

#[cfg(test)]
mod tests {
    use super::{Descriptor, Key, MAX_VALUES, Value, Whole};

    fn value(bytes: &[u8]) -> Value<'_> {
        Value(bytes.into())
    }

    #[test]
    fn keys_of_every_form() {
        let read = |text| serde_json::from_str::<Key<'_>>(text).unwrap();
        assert_eq!(read(r#""42""#), Key::One(value(b"42")));
        assert_eq!(read(r#""\u00e4\n""#), Key::One(value("ä\n".as_bytes())));
        assert_eq!(read(r#"{"base64":"AP8="}"#), Key::One(value(b"\x00\xff")));
        assert_eq!(read(r#"{"base64":"AP8"}"#), Key::One(value(b"\x00\xff")));
        assert_eq!(read(r#"{"base64":"_-8"}"#), Key::One(value(b"\xff\xef")));
        let Key::Many(many) = read(r#"["a",{"base64":"AP8="}]"#) else { panic!("a list") };
        assert_eq!(many, [value(b"a"), value(b"\x00\xff")]);
        let Key::Named(pairs) = read(r#"{"b":"1","a":{"base64":"AP8="}}"#) else { panic!("names") };
        let names: Vec<_> = pairs.iter().map(|(name, _)| name.0.as_ref()).collect();
        assert_eq!(names, ["b", "a"]);
    }

    #[test]
    fn malformed_keys_are_rejected() {
        let fault = |text| serde_json::from_str::<Key<'_>>(text).unwrap_err().to_string();
        assert!(fault("42").contains("expected a text"), "{}", fault("42"));
        assert!(fault(r#"{"base64":"*"}"#).contains("AP8="));
        assert!(fault(r#"{"a":"1","a":"2"}"#).contains("duplicate field \"a\""));
        assert!(fault(r#"{"a":{"b":"c"}}"#).contains("base64"));
        assert!(fault(r#"{"a":{"base64":"AA==","c":"d"}}"#).contains("base64"));
        let many = format!("[{}\"x\"]", "\"x\",".repeat(MAX_VALUES));
        assert!(fault(&many).contains("more than 32 values"));
    }

    #[test]
    fn whole_numbers_and_nothing_else() {
        assert_eq!(serde_json::from_str::<Whole>("18446744073709551615").unwrap(), Whole(u64::MAX));
        for text in ["-1", "1.5", "1.0", "1e3", "18446744073709551616", "\"1\"", "true", "null"] {
            let fault = serde_json::from_str::<Whole>(text).unwrap_err().to_string();
            assert!(fault.contains("a whole number from 0 to"), "{text}: {fault}");
            assert!(!fault.contains("floating point `1.8"), "{text}: {fault}");
        }
        for text in ["NaN", "Infinity", "1e999", "01", "+1", ".5", "0x10"] {
            assert!(serde_json::from_str::<Whole>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn descriptors_keep_their_order() {
        let read = |text| serde_json::from_str::<Descriptor<'_>>(text);
        let object = read(r#"{"b":"1","a":"2"}"#).unwrap();
        assert_eq!(object, read(r#"[["b","1"],["a","2"]]"#).unwrap());
        assert_eq!(read(r#"[["a","1"],["a","2"]]"#).unwrap().0.len(), 2);
        assert!(read(r#"[["a"]]"#).is_err() && read(r#"[["a","1","2"]]"#).is_err());
    }
}
