//! Suggestions for misspelt and unknown names.

/// The maximum length of a name that is compared, in characters.
const MAX_LENGTH: usize = 64;
/// The maximum number of names that are compared with one word.
const MAX_NAMES: usize = 1_000;
/// The maximum number of names that are listed for an unknown one.
const MAX_LISTED: usize = 5;

/// Returns the help for an unknown name: the most similar name, if any, and all valid names.
pub(crate) fn one_of(word: &str, names: &str) -> String {
    let all = names.split(", ");
    match nearest(word, all) {
        Some(name) => format!("did you mean {name}? It is one of {names}"),
        None => format!("it is one of {names}"),
    }
}

/// Returns the name that differs from `word` in the fewest letters, if at most a third of the
/// word's letters, rounded up, differ.
pub(crate) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = word.chars().take(MAX_LENGTH.saturating_add(1)).count();
    if letters > MAX_LENGTH {
        return None;
    }
    let max = letters.div_ceil(3);
    // The distance is at least the difference of the lengths.
    let near =
        |name: &&str| name.len() <= MAX_LENGTH && name.chars().count().abs_diff(letters) <= max;
    let distances = names.filter(near).take(MAX_NAMES).map(|name| (distance(word, name), name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= max).then_some(name)
}

/// Returns the first of the known names, for an unknown one. Clients may send any number of those,
/// so that none is compared.
pub(crate) fn a_few<'a>(known: impl Iterator<Item = &'a str>) -> String {
    let mut known = known.map(|name| format!("`{name}`"));
    let first: Vec<String> = known.by_ref().take(MAX_LISTED).collect();
    let first = first.join(", ");
    match known.next() {
        None if first.is_empty() => "none is known".to_owned(),
        None => format!("known: {first}"),
        Some(_) => format!("known: {first} and others"),
    }
}

/// Returns the number of letters to insert, delete or change, ignoring case.
fn distance(word: &str, name: &str) -> usize {
    strsim::levenshtein(&word.to_ascii_lowercase(), &name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_letters_make_a_name_near() {
        let of = |word| nearest(word, ["limit", "algorithm", "burst", "fixed-window"].into_iter());
        assert_eq!(of("limt"), Some("limit"));
        assert_eq!(of("Limits"), Some("limit"));
        assert_eq!(of("algoritm"), Some("algorithm"));
        assert_eq!(of("fixed_window"), Some("fixed-window"));
        assert_eq!(of("token"), None);
        assert_eq!(of(""), None);
        assert_eq!(of(&"x".repeat(1_000_000)), None);
        assert_eq!(
            one_of("shard", "here, shared"),
            "did you mean shared? It is one of here, shared"
        );
        assert_eq!(one_of("redis", "here, exact"), "it is one of here, exact");
    }

    #[test]
    fn some_known_names_are_listed() {
        assert_eq!(a_few([].into_iter()), "none is known");
        assert_eq!(a_few(["a", "b"].into_iter()), "known: `a`, `b`");
        let six = a_few(["a", "b", "c", "d", "e", "f"].into_iter());
        assert_eq!(six, "known: `a`, `b`, `c`, `d`, `e` and others");
    }

    #[test]
    fn a_distance_counts_letters() {
        let of = distance;
        assert_eq!((of("", "abc"), of("abc", ""), of("abc", "abc")), (3, 3, 0));
        assert_eq!((of("kitten", "sitting"), of("flaw", "lawn")), (3, 2));
    }
}
