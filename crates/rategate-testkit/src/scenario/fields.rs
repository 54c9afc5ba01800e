//! A reader of one TOML table, key by key. Each error names its line and a value that would be
//! accepted; an unknown key is an error too.

use std::fmt::Display;
use std::ops::Range;

use rategate_core::shape::Load;
use rategate_core::span;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ScenarioError;

/// The text of a file, which turns a byte offset into a line number.
#[derive(Clone, Copy)]
pub(crate) struct Source<'t>(pub(crate) &'t str);

impl Source<'_> {
    pub(crate) fn error(self, span: &Range<usize>, message: impl Display) -> ScenarioError {
        let before = self.0.as_bytes().get(..span.start).unwrap_or_default();
        let line = before.split(|&byte| byte == b'\n').count();
        ScenarioError { line: Some(line), message: message.to_string() }
    }
}

/// A table whose keys are still to be read.
pub(crate) struct Fields<'t> {
    source: Source<'t>,
    /// The name of the table, as in `[[caller]]`.
    name: &'static str,
    span: Range<usize>,
    table: &'t DeTable<'t>,
    known: Vec<&'static str>,
    /// `true` if keys of other policies are allowed too.
    lenient: bool,
}

/// One value, and the key that it belongs to.
pub(crate) struct Field<'t> {
    source: Source<'t>,
    table: &'static str,
    key: &'t str,
    value: &'t Spanned<DeValue<'t>>,
}

impl<'t> Fields<'t> {
    /// Reads the outermost table of a text, which is called `name`.
    pub(crate) fn root(source: Source<'t>, name: &'static str, table: &'t DeTable<'t>) -> Self {
        Self { source, name, span: 0..0, table, known: Vec::new(), lenient: false }
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns `true` if there is a value of `key`, which is still to be read.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Returns the value of `key`, if present.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<Field<'t>> {
        self.known.push(key);
        let value = self.table.get(key)?;
        Some(Field { source: self.source, table: self.name, key, value })
    }

    /// Reads the value of `key` with `read`, if present.
    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Field<'t>) -> Result<T, ScenarioError>,
    ) -> Result<Option<T>, ScenarioError> {
        self.get(key).map(|field| read(&field)).transpose()
    }

    /// Returns the value of `key`, which must be present; `example` shows one.
    pub(crate) fn need(
        &mut self,
        key: &'static str,
        example: &str,
    ) -> Result<Field<'t>, ScenarioError> {
        let name = self.name;
        self.get(key).ok_or_else(|| {
            self.error(format_args!("`{name}` needs the key `{key}`, as in {key} = {example}"))
        })
    }

    /// Returns all values in the order of the file, for a table whose keys are names.
    pub(crate) fn named(self) -> Vec<(&'t str, Field<'t>)> {
        let mut all: Vec<_> = self.table.iter().collect();
        all.sort_by_key(|(key, _)| key.span().start);
        let (source, table) = (self.source, self.name);
        all.into_iter()
            .map(|(key, value)| {
                let key: &str = key.get_ref();
                (key, Field { source, table, key, value })
            })
            .collect()
    }

    /// Reads each value of `key`, which is one table or an array of tables, called `name`.
    pub(crate) fn tables<T>(
        &mut self,
        key: &'static str,
        name: &'static str,
        mut read: impl FnMut(Self) -> Result<T, ScenarioError>,
    ) -> Result<Vec<T>, ScenarioError> {
        let values = self.get(key).map(|field| field.each()).unwrap_or_default();
        values.iter().map(|value| read(value.table(name)?)).collect()
    }

    /// Returns the table with unread keys allowed, since they belong to other limits.
    pub(crate) fn ignoring_others(self) -> Self {
        Self { lenient: true, ..self }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &'t str> {
        self.table.keys().map(|key| key.get_ref().as_ref())
    }

    /// Returns an error about the table as a whole.
    pub(crate) fn error(&self, message: impl Display) -> ScenarioError {
        self.source.error(&self.span, message)
    }

    /// Returns an error about a key that is present.
    pub(crate) fn error_at(&self, key: &str, message: impl Display) -> ScenarioError {
        let span = self.table.get_key_value(key).map(|(key, _)| key.span());
        self.source.error(&span.unwrap_or_else(|| self.span.clone()), message)
    }

    /// Fails if a key has not been read.
    pub(crate) fn finish(self) -> Result<(), ScenarioError> {
        if self.lenient {
            return Ok(());
        }
        let unknown = self.table.keys().filter(|key| !self.known.contains(&key.get_ref().as_ref()));
        match unknown.min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let (name, known) = (self.name, self.known.join(", "));
                let message = format!("unknown key `{}` in {name}; it has {known}", key.get_ref());
                Err(self.source.error(&key.span(), message))
            }
        }
    }
}

impl<'t> Field<'t> {
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Table(_))
    }

    /// Returns the table, which is called `name`.
    pub(crate) fn table(&self, name: &'static str) -> Result<Fields<'t>, ScenarioError> {
        let (source, span) = (self.source, self.value.span());
        match self.value.get_ref() {
            DeValue::Table(table) => {
                Ok(Fields { source, name, span, table, known: Vec::new(), lenient: false })
            }
            other => Err(source
                .error(&span, format_args!("`{name}` is {}; it must be a table", kind(other)))),
        }
    }

    pub(crate) fn error(&self, message: impl Display) -> ScenarioError {
        let (table, key) = (self.table, self.key);
        self.source.error(&self.value.span(), format_args!("`{key}` of {table}: {message}"))
    }

    fn type_error(&self, right: &str) -> ScenarioError {
        self.error(format_args!("is {}; it must be {right}", kind(self.value.get_ref())))
    }

    pub(crate) fn text(&self) -> Result<&'t str, ScenarioError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.type_error("text in quotes")),
        }
    }

    /// Parses a text value as a `T`.
    pub(crate) fn parse<T: std::str::FromStr<Err: Display>>(&self) -> Result<T, ScenarioError> {
        let text = self.text()?;
        text.parse().map_err(|error| self.error(format_args!("\"{text}\" is {error}")))
    }

    /// Reads the text of a load.
    pub(crate) fn load(&self) -> Result<Load, ScenarioError> {
        let text = self.text()?;
        text.parse::<Load>().map_err(|error| self.error(format_args!("\"{text}\": {error}")))
    }

    /// Reads one of some words, each with its meaning.
    pub(crate) fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, ScenarioError> {
        let text = self.text()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*meaning);
        }
        let mut known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let last = known.pop().unwrap_or_default();
        Err(self.error(format_args!("is \"{text}\"; it is {} or {last}", known.join(", "))))
    }

    /// Reads a whole number, zero or more.
    pub(crate) fn count(&self) -> Result<u64, ScenarioError> {
        let DeValue::Integer(integer) = self.value.get_ref() else {
            return Err(self.type_error("a whole number"));
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix());
        match number.ok().map(u64::try_from) {
            Some(Ok(count)) => Ok(count),
            _ if integer.as_str().starts_with('-') => {
                Err(self.error(format_args!("is {integer}; it must be zero or more")))
            }
            _ => Err(self.error(format_args!("is {integer}; it must fit 64 bits"))),
        }
    }

    /// Reads a whole number of at most 32 bits.
    pub(crate) fn count_u32(&self) -> Result<u32, ScenarioError> {
        let whole = self.count()?;
        u32::try_from(whole)
            .map_err(|_| self.error(format_args!("is {whole}; it must be at most {}", u32::MAX)))
    }

    /// Reads a number as its text: whole, with decimals, or quoted.
    pub(crate) fn decimal(&self) -> Result<&'t str, ScenarioError> {
        match self.value.get_ref() {
            DeValue::Integer(integer) => Ok(integer.as_str()),
            DeValue::Float(float) => Ok(float.as_str()),
            _ => Err(self.type_error("a number")),
        }
    }

    pub(crate) fn duration(&self) -> Result<u64, ScenarioError> {
        let DeValue::String(text) = self.value.get_ref() else {
            return Err(self.type_error("a duration in quotes, such as \"10ms\""));
        };
        span::parse(text).map_err(|error| self.error(format_args!("\"{text}\": {error}")))
    }

    /// Reads a duration that may be negative.
    pub(crate) fn signed_duration(&self) -> Result<i128, ScenarioError> {
        let text = self.text()?;
        let (sign, magnitude) = match text.strip_prefix('-') {
            Some(magnitude) => (-1_i128, magnitude),
            None => (1, text),
        };
        match span::parse(magnitude) {
            Ok(ns) => Ok(i128::from(ns).saturating_mul(sign)),
            Err(error) => Err(self.error(format_args!("\"{text}\": {error}"))),
        }
    }

    /// Returns the elements of an array, or the single value.
    pub(crate) fn each(&self) -> Vec<Self> {
        let field = |value| Self { value, ..*self };
        match self.value.get_ref() {
            DeValue::Array(values) => values.iter().map(field).collect(),
            _ => vec![field(self.value)],
        }
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with decimals",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
