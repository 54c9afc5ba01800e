//! The entries of rules, and what they match.

use std::fmt;
use std::sync::Arc;

use memchr::memmem;
use smallvec::SmallVec;

use super::Rule;

/// An entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The entry's key.
    pub key: Arc<str>,
    /// The values that match.
    pub value: Value,
}

/// The values of an entry that a rule matches. An exact value beats a pattern, a pattern beats
/// any value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Every value, with a counter each.
    Any,
    /// This value only.
    Exact(Arc<str>),
    /// Each of these values, with a counter each: a tier of named keys. Beats a pattern as an
    /// exact value does.
    OneOf(Arc<[Arc<str>]>),
    /// Values like the pattern, in which each `*` stands for any number of characters.
    Pattern {
        /// The pattern.
        text: Arc<str>,
        /// `true` if all matching values share one counter.
        shared: bool,
    },
}

/// The entries of a request that names a rule.
pub(crate) type NamedEntries<'a> = SmallVec<[(&'a [u8], &'a [u8]); 4]>;

impl Rule {
    /// Returns the entries of a request that names the rule with these values, if they are
    /// enough.
    pub(crate) fn entries_of<'e>(&'e self, values: &[&'e [u8]]) -> Option<NamedEntries<'e>> {
        let mut values = values.iter();
        let entry = |entry: &'e Entry| {
            let value = match &entry.value {
                Value::Exact(value) => value.as_bytes(),
                Value::Pattern { text, shared: true } => text.as_bytes(),
                _ => *values.next()?,
            };
            Some((entry.key.as_bytes(), value))
        };
        self.entries.iter().map(entry).collect()
    }

    /// Returns `true` if the rule was written for such descriptors, whatever other rules exist.
    #[must_use]
    pub fn fits(&self, entries: &[(&[u8], &[u8])]) -> bool {
        self.entries.len() == entries.len()
            && self.entries.iter().zip(entries).all(|(entry, (key, value))| {
                entry.key.as_bytes() == *key && entry.value.fits(value)
            })
    }

    /// Returns the values of a descriptor that select among the rule's counters.
    pub(crate) fn varying<'e>(
        &self,
        entries: &'e [(&'e [u8], &'e [u8])],
    ) -> impl Iterator<Item = &'e [u8]> {
        let varying = self.entries.iter().enumerate().filter(|(_, entry)| entry.value.varies());
        varying.filter_map(|(nth, _)| entries.get(nth).map(|(_, value)| *value))
    }

    /// Returns the keys of the entries that say which counters it has, each with `true` if it has
    /// one for each value. An entry whose values share one counter says nothing of that.
    pub(crate) fn counter_entries(&self) -> impl Iterator<Item = (&Arc<str>, bool)> {
        let entries = self.entries.iter();
        let is_one = |value: &Value| matches!(value, Value::Pattern { shared: true, .. });
        let entries = entries.filter(move |entry| !is_one(&entry.value));
        entries.map(|entry| (&entry.key, entry.value.varies()))
    }

    /// Returns `true` if the rule has that name, or is a limit of the rule of that name.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        *self.name == *name || self.dimension.as_ref().is_some_and(|limit| *limit.of == *name)
    }

    /// Returns `true` if both are limits of one rule.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.dimension.as_ref().is_some_and(|limit| other.is_of(&limit.of))
    }

    /// Checks that each call of this rule has the entries of another.
    ///
    /// # Errors
    ///
    /// The reason why it may not.
    pub(crate) fn covers(&self, other: &Self) -> Result<(), String> {
        for (nth, entry) in other.entries.iter().enumerate() {
            let earlier = other.entries.iter().take(nth).filter(|one| one.key == entry.key);
            let mut own = self.entries.iter().filter(|own| own.key == entry.key);
            let Some(own) = own.nth(earlier.count()) else {
                return Err(format!(
                    "it counts by `{}`, which is no entry of this rule",
                    entry.key
                ));
            };
            let is_any = match &entry.value {
                Value::Any => true,
                Value::Pattern { text, .. } => **text == *"*",
                Value::Exact(_) | Value::OneOf(_) => false,
            };
            if !is_any && entry.value != own.value {
                return Err(format!(
                    "its `{}` is {}, and not of every call",
                    entry.key, entry.value
                ));
            }
        }
        Ok(())
    }

    /// Returns the number of values that select among its counters, which a request that names the
    /// rule states.
    #[must_use]
    pub fn values_counted(&self) -> usize {
        self.entries.iter().filter(|entry| entry.value.varies()).count()
    }
}

impl Value {
    /// Returns `true` if this value matches.
    #[must_use]
    pub fn fits(&self, value: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact.as_bytes() == value,
            Self::OneOf(values) => values.iter().any(|exact| exact.as_bytes() == value),
            // The text of the pattern, which names the shared counter itself, matches too.
            Self::Pattern { text, .. } => is_like(value, text.as_bytes()),
        }
    }

    /// Returns `true` if different values have different counters.
    #[must_use]
    pub const fn varies(&self) -> bool {
        matches!(self, Self::Any | Self::OneOf(_) | Self::Pattern { shared: false, .. })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any value"),
            Self::Exact(value) => write!(f, "`{value}`"),
            Self::OneOf(values) => write!(f, "one of {} values", values.len()),
            Self::Pattern { text, shared: false } => write!(f, "a value like `{text}`"),
            Self::Pattern { text, shared: true } => {
                write!(f, "a value like `{text}`, all together")
            }
        }
    }
}

/// Returns `true` if a value matches a pattern, in which each `*` stands for any number of bytes.
///
/// Takes time proportional to the sum of their lengths: a piece between two stars is matched
/// where it first occurs.
#[must_use]
pub fn is_like(value: &[u8], pattern: &[u8]) -> bool {
    let mut pieces = pattern.split(|byte| *byte == b'*');
    let first = pieces.next().unwrap_or_default();
    let Some(rest) = value.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    let Some(mut between) = rest.strip_suffix(last) else { return false };
    pieces.all(|piece| {
        let end = memmem::find(between, piece).map(|at| at.saturating_add(piece.len()));
        let left = end.and_then(|end| between.get(end..));
        left.inspect(|left| between = left).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matches by the definition of a pattern, at any cost.
    fn is_meant(value: &[u8], pattern: &[u8]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some((b'*', rest)) => (0..=value.len()).any(|from| is_meant(&value[from..], rest)),
            Some((byte, rest)) => value
                .split_first()
                .is_some_and(|(first, left)| first == byte && is_meant(left, rest)),
        }
    }

    fn words(letters: &[u8], max_len: usize) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut last_len = all.clone();
        for _ in 0..max_len {
            let longer = |word: &Vec<u8>| {
                letters.iter().map(|letter| [&word[..], &[*letter]].concat()).collect::<Vec<_>>()
            };
            last_len = last_len.iter().flat_map(longer).collect();
            all.extend(last_len.iter().cloned());
        }
        all
    }

    #[test]
    fn a_pattern_is_like_what_it_means() {
        let values = words(b"ab", 5);
        for pattern in words(b"ab*", 5) {
            for value in &values {
                let (value, pattern) = (value.as_slice(), pattern.as_slice());
                assert_eq!(
                    is_like(value, pattern),
                    is_meant(value, pattern),
                    "{value:?} {pattern:?}"
                );
            }
        }
    }

    /// Clients choose the value, so matching must take a few ms, not minutes.
    #[test]
    fn a_long_value_takes_no_longer_than_it_is_long() {
        let value = vec![b'a'; 1 << 20];
        let pattern = format!("*{}b*{}*", "a".repeat(2_000), "a".repeat(2_000));
        assert!(!is_like(&value, pattern.as_bytes()));
        let pattern = format!("*{}*b", "a".repeat(4_000));
        assert!(!is_like(&value, pattern.as_bytes()));
    }
}
