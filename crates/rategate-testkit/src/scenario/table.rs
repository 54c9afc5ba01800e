//! Tables of a TOML file, read by serde. Each error names its line and its key.

use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use rategate_core::span;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny};
use serde::ser::{Serialize, Serializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::ScenarioError;

/// What serde calls the parts of a file, and what its users call them.
const WORDS: [(&str, &str); 10] = [
    ("unknown field", "unknown key"),
    ("unexpected keys in table", "unknown keys"),
    ("missing field", "needs the key"),
    ("unknown variant", "unknown word"),
    ("expected a string", "expected text in quotes"),
    ("expected a map", "expected a table"),
    ("expected a nonzero u64", "expected a whole number, at least 1"),
    ("expected u64", "expected a whole number, zero or more"),
    ("expected f64", "expected a number"),
    ("expected u32", "expected a whole number, at most 4294967295"),
];

/// A table.
#[derive(Clone)]
pub(crate) struct Table<'t> {
    text: &'t str,
    span: Range<usize>,
    keys: DeTable<'t>,
}

impl<'t> Table<'t> {
    /// Reads the outermost table of a file.
    pub(crate) fn parse(text: &'t str) -> Result<Self, ScenarioError> {
        match DeTable::parse(text) {
            Ok(table) => Ok(Self { text, span: 0..0, keys: table.into_inner() }),
            Err(wrong) => {
                let message = format!("not TOML: {}", wrong.message());
                Err(error(text, &wrong.span().unwrap_or_default(), message))
            }
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Returns `true` if the value of a key is a list, or a table.
    pub(crate) fn has_tables(&self, key: &str) -> bool {
        let value = self.keys.get(key).map(Spanned::get_ref);
        matches!(value, Some(DeValue::Array(_) | DeValue::Table(_)))
    }

    /// Returns the keys in the order of the file.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.keys.keys().collect();
        keys.sort_by_key(|key| key.span().start);
        keys.into_iter().map(|key| key.get_ref().to_string()).collect()
    }

    /// Reads the value of a key, if there is one.
    pub(crate) fn get<T: Deserialize<'t>>(&self, key: &str) -> Result<Option<T>, ScenarioError> {
        self.keys.get(key).map(|value| read(self.text, key, value.clone())).transpose()
    }

    /// Reads the value of a key that must be there.
    pub(crate) fn need<T: Deserialize<'t>>(&self, key: &str) -> Result<T, ScenarioError> {
        self.get(key)?.ok_or_else(|| self.error(format_args!("needs the key `{key}`")))
    }

    /// Reads the values of a key: those of a list, or the only one.
    pub(crate) fn all<T: Deserialize<'t>>(&self, key: &str) -> Result<Vec<T>, ScenarioError> {
        self.values(key).map(|value| read(self.text, key, value)).collect()
    }

    /// Returns the tables of a key: those of a list, or the only one.
    pub(crate) fn tables(&self, key: &str) -> Result<Vec<Self>, ScenarioError> {
        let text = self.text;
        let table = |value: Spanned<DeValue<'t>>| match (value.span(), value.into_inner()) {
            (span, DeValue::Table(keys)) => Ok(Self { text, span, keys }),
            (span, _) => Err(error(text, &span, format_args!("`{key}` must be a table"))),
        };
        self.values(key).map(table).collect()
    }

    /// Returns the table of a key that must be there.
    pub(crate) fn need_table(&self, key: &str) -> Result<Self, ScenarioError> {
        let first = self.tables(key)?.into_iter().next();
        first.ok_or_else(|| self.error(format_args!("needs the key `{key}`")))
    }

    fn values(&self, key: &str) -> impl Iterator<Item = Spanned<DeValue<'t>>> + use<'t> {
        let values = match self.keys.get(key) {
            Some(value) => match value.get_ref() {
                DeValue::Array(values) => values.iter().cloned().collect(),
                _ => vec![value.clone()],
            },
            None => Vec::new(),
        };
        values.into_iter()
    }

    /// Returns the table with some keys of another instead of its own.
    pub(crate) fn changed(&self, other: &Self, is_meant: impl Fn(&str) -> bool) -> Self {
        let mut keys = self.keys.clone();
        let changes = other.keys.iter().filter(|(key, _)| is_meant(key.get_ref()));
        keys.extend(changes.map(|(key, value)| (key.clone(), value.clone())));
        Self { text: self.text, span: other.span.clone(), keys }
    }

    /// Reads all keys but some. Other keys than those of `T` are errors.
    pub(crate) fn read<T: Deserialize<'t>>(&self, but: &[&str]) -> Result<T, ScenarioError> {
        read(self.text, "", self.without(but))
    }

    /// Reads all keys but some as a variant, whose name is that of a key or comes from it.
    pub(crate) fn read_as<T: Deserialize<'t>>(
        &self,
        key: &str,
        name: &str,
        but: &[&str],
    ) -> Result<T, ScenarioError> {
        let name = Spanned::new(self.place(key), name.to_owned().into());
        let variant = DeTable::from_iter([(name, self.without(but))]);
        read(self.text, "", Spanned::new(self.span.clone(), DeValue::Table(variant)))
    }

    fn without(&self, but: &[&str]) -> Spanned<DeValue<'t>> {
        let keys = self.keys.iter().filter(|(key, _)| !but.contains(&key.get_ref().as_ref()));
        let keys = keys.map(|(key, value)| (key.clone(), value.clone())).collect();
        Spanned::new(self.span.clone(), DeValue::Table(keys))
    }

    /// Returns an error about the table as a whole.
    pub(crate) fn error(&self, message: impl Display) -> ScenarioError {
        error(self.text, &self.span, message)
    }

    /// Returns an error about the value of a key.
    pub(crate) fn error_at(&self, key: &str, message: impl Display) -> ScenarioError {
        error(self.text, &self.place(key), format_args!("`{key}` {message}"))
    }

    fn place(&self, key: &str) -> Range<usize> {
        self.keys.get(key).map_or_else(|| self.span.clone(), Spanned::span)
    }
}

fn read<'t, T: Deserialize<'t>>(
    text: &str,
    key: &str,
    value: Spanned<DeValue<'t>>,
) -> Result<T, ScenarioError> {
    let span = value.span();
    T::deserialize(ValueDeserializer::from(value)).map_err(|wrong| {
        // Behind the message, toml shows the path to the key.
        let shown = wrong.to_string();
        let path = shown.rsplit_once("\nin `").map_or("", |(_, path)| path.trim_end_matches("`\n"));
        let place = match (key, path) {
            ("", "") => String::new(),
            ("", path) => format!("`{path}`: "),
            (key, "") => format!("`{key}`: "),
            (key, path) => format!("`{key}.{path}`: "),
        };
        let message = WORDS.iter().fold(wrong.message().to_owned(), |message, (serde, ours)| {
            message.replace(serde, ours)
        });
        error(text, &wrong.span().unwrap_or(span), format_args!("{place}{message}"))
    })
}

fn error(text: &str, span: &Range<usize>, message: impl Display) -> ScenarioError {
    let before = text.as_bytes().get(..span.start).unwrap_or_default();
    let line = before.split(|&byte| byte == b'\n').count();
    ScenarioError { line: Some(line), message: message.to_string().replace('\n', "; ") }
}

/// Reads a text with a function.
pub(crate) fn text<'de, D: Deserializer<'de>, T, E: Display>(
    deserializer: D,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    read(&text).map_err(|error| D::Error::custom(format_args!("\"{text}\": {error}")))
}

/// Reads a number, whole or with decimals, with a function.
pub(crate) fn number<'de, D: Deserializer<'de>, T, E: Display>(
    deserializer: D,
    read: impl FnOnce(f64) -> Result<T, E>,
) -> Result<T, D::Error> {
    let number = f64::deserialize(deserializer)?;
    read(number).map_err(|error| D::Error::custom(format_args!("{number}: {error}")))
}

/// Nanoseconds, which files write as a duration such as `"10ms"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ns(pub u64);

impl<'de> Deserialize<'de> for Ns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, span::parse).map(Self)
    }
}

impl Display for Ns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        span::Text(self.0).fmt(f)
    }
}

impl Serialize for Ns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Nanoseconds that may be negative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed(pub(crate) i128);

impl<'de> Deserialize<'de> for Signed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, |text| match text.strip_prefix('-') {
            Some(magnitude) => span::parse(magnitude).map(|ns| Self(-i128::from(ns))),
            None => span::parse(text).map(|ns| Self(ns.into())),
        })
    }
}

/// Accepts a value that the reader of the table reads by another function.
pub(crate) fn later<'de, D: Deserializer<'de>, T: Default>(deserializer: D) -> Result<T, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| T::default())
}

/// A value that files write as a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<T>(pub(crate) T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, str::parse).map(Self)
    }
}

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
