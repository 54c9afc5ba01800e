//! Names of rules. They appear in header fields and metrics, so their characters are restricted.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::rule::{Entry, Value};

/// The maximum length of a rule's name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// The maximum length of a domain, a key or a value, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;

/// Checks that a rule may have this name: a string of structured fields (RFC 9651) that needs no
/// escape.
pub(crate) fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a name needs at least one character".to_owned());
    }
    if name.len() > MAX_NAME_BYTES {
        let bytes = name.len();
        return Err(format!(
            "a name has at most {MAX_NAME_BYTES} characters, and this one {bytes}"
        ));
    }
    if let Some(invalid) = name.chars().find(|c| !is_plain(*c)) {
        return Err(format!(
            "a name is printable ASCII without `\"` and `\\`, and this one has {invalid:?}"
        ));
    }
    if name.trim_matches(' ').len() != name.len() {
        return Err("a name neither begins nor ends with a space".to_owned());
    }
    Ok(())
}

/// Returns the name of a rule without a given name.
///
/// It is `domain.key=value.key`. Where that is ambiguous or not a valid name, it is cut and ends
/// in a digest.
///
/// It depends only on the domain and the entries, so no other rule can take the name, and a
/// reload finds the rule again.
pub(crate) fn of_entries(domain: &str, entries: &[Entry]) -> String {
    let mut path = domain.to_owned();
    for entry in entries {
        path.push('.');
        path.push_str(&entry.key);
        let (_, values) = parts(&entry.value);
        if !values.is_empty() {
            path.push('=');
            path.push_str(&values.join(","));
        }
    }
    let has_one_reading = !domain.contains(['.', '~']) && entries.iter().all(has_one_reading);
    let is_name = has_one_reading && check(&path).is_ok();
    if is_name { path } else { digested(&path, domain, entries) }
}

/// Returns `true` if an entry is unambiguous in a path: its key ends at the first `=` or `.`, its
/// value before a `.` and the first letter of another key. It has no `~`, which precedes digests.
fn has_one_reading(entry: &Entry) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let begins_a_key = |value: &str| {
        let mut pairs = value.bytes().zip(value.bytes().skip(1));
        pairs.any(|(dot, next)| dot == b'.' && is_letter(next))
    };
    let is_key = entry.key.bytes().next().is_some_and(is_letter);
    is_key
        && !entry.key.contains(['.', '=', '~'])
        && !matches!(entry.value, Value::OneOf(_))
        && parts(&entry.value).1.iter().all(|text| !text.contains('~') && !begins_a_key(text))
}

/// Returns the kind of a value, and its texts.
fn parts(value: &Value) -> (&'static str, &[Arc<str>]) {
    match value {
        Value::Any => ("any", &[]),
        Value::Exact(text) => ("exact", std::slice::from_ref(text)),
        Value::Pattern { text, .. } => ("pattern", std::slice::from_ref(text)),
        Value::OneOf(texts) => ("one of", texts),
    }
}

/// Returns a path with invalid characters replaced, and a digest of its parts.
fn digested(path: &str, domain: &str, entries: &[Entry]) -> String {
    let mut digest = sha1_smol::Sha1::new();
    let mut add = |field: &str| {
        digest.update(&field.len().to_le_bytes());
        digest.update(field.as_bytes());
    };
    add(domain);
    for entry in entries {
        let (kind, values) = parts(&entry.value);
        add(&entry.key);
        add(kind);
        if matches!(entry.value, Value::OneOf(_)) {
            add(&values.len().to_string());
        }
        for value in values {
            add(value);
        }
    }
    let digest = digest.digest().to_string();
    let digest = digest.get(..12).unwrap_or(&digest);
    let added = digest.len().saturating_add(1);
    let max_len = MAX_NAME_BYTES.saturating_sub(added);
    let plain = path.chars().map(|c| if is_plain(c) { c } else { '_' }).take(max_len);
    let mut name = plain.collect::<String>().trim_start().to_owned();
    let _ = write!(name, "~{digest}");
    name
}

const fn is_plain(c: char) -> bool {
    matches!(c, ' '..='~') && c != '"' && c != '\\'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: Option<&str>) -> Entry {
        let value = value.map_or(Value::Any, |value| Value::Exact(value.into()));
        Entry { key: key.into(), value }
    }

    /// Rules with different entries have different names.
    #[test]
    fn paths_that_read_alike_have_names_of_their_own() {
        let texts = ["a", "b", "a.b", "a=b", ".a", "=", "a=", "a~b", "1", "1.1", "a.", " a", "ä"];
        let values = || std::iter::once(None).chain(texts.iter().copied().map(Some));
        let one = || texts.iter().flat_map(|key| values().map(|value| entry(key, value)));
        let mut rules: Vec<(&str, Vec<Entry>)> = Vec::new();
        for domain in texts {
            rules.extend(one().map(|entry| (domain, vec![entry])));
        }
        let pairs = one().flat_map(|first| one().map(move |second| vec![first.clone(), second]));
        rules.extend(pairs.map(|pair| ("a", pair)));
        rules.extend(["a", "b", "1"].map(|key| {
            let entries = ["a", key, "b"].map(|key| entry(key, None));
            ("a", entries.to_vec())
        }));
        let mut called = std::collections::HashMap::new();
        for (domain, entries) in rules {
            let name = of_entries(domain, &entries);
            assert_eq!(check(&name), Ok(()), "{name}");
            let taken = called.insert(name.clone(), (domain, entries.clone()));
            assert_eq!(taken, None, "{name} is {domain} {entries:?} too");
        }
    }
}
