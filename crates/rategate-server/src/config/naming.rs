//! Names of rules. They end in header fields and metrics, so they are plain.

use std::fmt::Write as _;

use crate::rule::{Entry, Value};

/// The longest name of a rule.
pub const MAX_NAME_BYTES: usize = 128;
/// The longest domain, key or value of an entry.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;

/// Whether a rule may be called so: a string of structured fields (RFC 9651) that needs no escape.
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
    if let Some(wrong) = name.chars().find(|c| !is_plain(*c)) {
        return Err(format!(
            "a name is printable ASCII without `\"` and `\\`, and this one has {wrong:?}"
        ));
    }
    if name.trim_matches(' ').len() != name.len() {
        return Err("a name neither begins nor ends with a space".to_owned());
    }
    Ok(())
}

/// `domain.key_value.key`, as Envoy's service calls it, made a plain name. Different entries can come to the same one.
pub(crate) fn of_entries(domain: &str, entries: &[Entry]) -> String {
    let mut path = domain.to_owned();
    for entry in entries {
        path.push('.');
        path.push_str(&entry.key);
        match &entry.value {
            Value::Any => {}
            Value::Exact(value) | Value::Pattern { text: value, .. } => {
                path.push('_');
                path.push_str(value);
            }
            Value::OneOf(values) => {
                for value in values.iter() {
                    path.push('_');
                    path.push_str(value);
                }
            }
        }
    }
    let plain: String = path.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let plain = plain.trim_matches(' ');
    if plain.len() <= MAX_NAME_BYTES {
        return plain.to_owned();
    }
    told_apart(plain, domain, entries)
}

/// The same with a digest of what it stands for, so that no other has it, and it is the same after each reload.
pub(crate) fn told_apart(name: &str, domain: &str, entries: &[Entry]) -> String {
    let mut digest = sha1_smol::Sha1::new();
    let mut add = |part: &str| {
        digest.update(&part.len().to_le_bytes());
        digest.update(part.as_bytes());
    };
    add(domain);
    for entry in entries {
        add(&entry.key);
        match &entry.value {
            Value::Any => add("any"),
            Value::Exact(value) => {
                add("exact");
                add(value);
            }
            Value::Pattern { text, .. } => {
                add("pattern");
                add(text);
            }
            Value::OneOf(values) => values.iter().for_each(|value| add(value)),
        }
    }
    let digest = digest.digest().to_string();
    let digest = digest.get(..12).unwrap_or(&digest);
    let room = MAX_NAME_BYTES.saturating_sub(digest.len()).saturating_sub(1);
    let mut name: String = name.chars().take(room).collect();
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

    #[test]
    fn a_name_is_a_string_of_structured_fields_without_escapes() {
        for name in ["a", "api/gold", "edge.plan_free.user", "a b", "~", &"x".repeat(128)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["", " a", "a ", "a\"b", "a\\b", "a\nb", "ä", "\u{7f}", &"x".repeat(129)] {
            assert!(check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_path_becomes_a_name() {
        let path = [entry("plan", Some("free")), entry("user", None)];
        assert_eq!(of_entries("edge", &path), "edge.plan_free.user");
        let odd = of_entries("edge", &[entry("pläne", Some("a\"b\n"))]);
        assert_eq!((odd.as_str(), check(&odd)), ("edge.pl_ne_a_b_", Ok(())));
    }

    #[test]
    fn long_paths_and_equal_ones_are_told_apart() {
        let long = |end: &str| of_entries("d", &[entry(&"k".repeat(500), Some(end))]);
        assert_eq!(long("a").len(), MAX_NAME_BYTES);
        assert_ne!(long("a"), long("b"));
        assert_eq!(long("a"), long("a"));
        let one = told_apart("d.a_b_c", "d", &[entry("a_b", Some("c"))]);
        let other = told_apart("d.a_b_c", "d", &[entry("a", Some("b_c"))]);
        assert_ne!(one, other);
        assert_eq!(check(&one), Ok(()));
    }
}
