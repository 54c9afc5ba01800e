//! Plain wording for errors of deserializers, with the types of a file instead of a program's.

/// The names of types in a program, and in a file.
const TYPES: [(&str, &str); 19] = [
    ("a string", "a text"),
    ("path string", "a path as text"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("map", "a table"),
    ("sequence", "a list"),
    ("u64", "a whole number from 0 to 18446744073709551615"),
    ("usize", "a whole number from 0 on"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u16", "a whole number from 0 to 65535"),
    ("a nonzero usize", "a whole number from 1 on"),
    ("a nonzero u32", "a whole number from 1 to 4294967295"),
    ("a nonzero u64", "a whole number from 1 to 18446744073709551615"),
    ("NonZeroUsize", "a whole number from 1 on"),
    ("string or table", "a word"),
    ("wanted string or table", "a word"),
    ("enum", "a word"),
    ("unit", "nothing"),
];

/// Converts a deserializer's error into a sentence about a file.
pub(super) fn plain(message: &str) -> String {
    // A number beyond 64 bits has the right type but a wrong value.
    let is_long = [" as i128, ", " as u128, "].iter().any(|long| message.contains(long));
    let of_type = message.strip_prefix("invalid type: ");
    let of_value = message.strip_prefix("invalid value: ");
    if let Some((found, wanted)) =
        of_type.or(of_value).and_then(|description| description.split_once(", expected "))
    {
        let what = if of_type.is_some() && !is_long { "wrong type" } else { "wrong value" };
        return format!("{what}: {}, not {}", value(found), name(wanted));
    }
    match message.strip_prefix("missing field ") {
        Some(key) => format!("the key {key} is missing"),
        None => message.to_owned(),
    }
}

/// Formats a value as it is written in a file.
fn value(found: &str) -> String {
    let found = found.trim_end_matches(" as i128").trim_end_matches(" as u128");
    let of = |kind: &str| found.strip_prefix(kind).map(|text| text.trim_matches('`').to_owned());
    let number = of("integer ").or_else(|| of("floating point ")).or_else(|| of("boolean "));
    number.or_else(|| of("string ")).unwrap_or_else(|| name(found))
}

/// Formats the expected type in the words of a file.
fn name(wanted: &str) -> String {
    let known = TYPES.iter().find(|(program, _)| *program == wanted);
    match known {
        Some((_, file)) => (*file).to_owned(),
        None if wanted.starts_with("struct ") => "a table".to_owned(),
        None if wanted.starts_with("enum ") || wanted.starts_with("variant ") => {
            "a word".to_owned()
        }
        None => wanted.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_name_the_types_of_a_file() {
        for (program, file) in [
            ("invalid type: integer `5`, expected a string", "wrong type: 5, not a text"),
            (
                "invalid type: string \"x\", expected struct RuleTable",
                "wrong type: \"x\", not a table",
            ),
            (
                "invalid value: integer `-1`, expected u64",
                "wrong value: -1, not a whole number from 0 to 18446744073709551615",
            ),
            (
                "invalid type: floating point `1.5`, expected a nonzero usize",
                "wrong type: 1.5, not a whole number from 1 on",
            ),
            (
                "invalid type: integer `99999999999999999999` as i128, expected u64",
                "wrong value: 99999999999999999999, \
                 not a whole number from 0 to 18446744073709551615",
            ),
            ("missing field `limit`", "the key `limit` is missing"),
            ("a duration of no time", "a duration of no time"),
        ] {
            assert_eq!(plain(program), file);
        }
    }
}
