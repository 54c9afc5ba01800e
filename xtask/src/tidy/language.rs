//! Rejects words that the glossary retires, doc comments that do not open with a statement, and
//! lines of more than 100 columns.

use super::Report;
use crate::source::{File, code_only, find_word, line_of};

/// Words that no comment, message, document or name may use: `docs/glossary.md` has the ones to
/// use instead.
const RETIRED: [&str; 24] = [
    "anybody",
    "forgo",
    "forgoes",
    "forgone",
    "gave back",
    "give back",
    "given back",
    "gives back",
    "giving back",
    "handful",
    "heir",
    "heirs",
    "newcomer",
    "newcomers",
    "nobody",
    "portion",
    "portions",
    "somebody",
    "stranger",
    "strangers",
    "twin",
    "twins",
    "vacate",
    "whoever",
];

/// Words that no name may contain as one of its words, besides the retired ones. In a sentence they
/// are English.
const RETIRED_IN_NAMES: [&str; 9] =
    ["alarm", "asked", "hear", "heard", "seat", "seats", "told", "twinned", "toll"];

/// Openings of a doc comment that make half a sentence of it.
const OPENERS: [&str; 9] =
    ["As above", "How", "The same", "What", "When", "Whether", "Which", "Who", "Whose"];

const COLUMNS: usize = 100;

/// The files that name the retired words, and those of other authors.
const EXEMPT: [&str; 3] = ["docs/glossary.md", "xtask/src/tidy/language.rs", "/vendor/"];

pub(super) fn check(files: &[File], report: &mut Report) {
    let mut checked = 0;
    for file in files.iter().filter(|file| !EXEMPT.iter().any(|path| file.path.contains(path))) {
        let is_rust = file.path.ends_with(".rs");
        if !is_rust && !file.path.ends_with(".md") {
            continue;
        }
        checked += 1;
        let faults = if is_rust { rust(&file.text) } else { retired(&file.text) };
        for (line, fault) in faults {
            report.error(format!("{}:{line}: {fault}", file.path));
        }
    }
    Report::checked(&format!("retired words, doc openers and columns: {checked} files"));
}

fn rust(source: &str) -> Vec<(usize, String)> {
    let code = code_only(source);
    let mut faults = retired(&prose(source, &code));
    faults.extend(names(&code));
    faults.extend(openers(source));
    let lines = source.lines().zip(code.lines()).zip(1..);
    let long = lines.filter(|((line, code), _)| is_long(line, code));
    faults.extend(long.map(|(_, at)| (at, format!("more than {COLUMNS} columns"))));
    faults
}

/// Returns `true` for a long line of code or comment. A literal may be longer where a break would
/// change it.
fn is_long(line: &str, code: &str) -> bool {
    let is_comment = line.trim_start().starts_with("//");
    let literals = line.chars().zip(code.chars()).filter(|(shown, code)| shown != code).count();
    line.chars().count() - if is_comment { 0 } else { literals } > COLUMNS
}

/// Returns the text with its code blanked: comments and literals remain.
fn prose(source: &str, code: &str) -> String {
    let blanked = |(shown, code): (char, char)| match (shown, code) {
        ('\n', _) => '\n',
        (_, ' ') => shown,
        _ => ' ',
    };
    source.chars().zip(code.chars()).map(blanked).collect()
}

fn retired(text: &str) -> Vec<(usize, String)> {
    let text = text.to_ascii_lowercase();
    let found = RETIRED.iter().flat_map(|word| find_word(&text, word).map(move |at| (at, word)));
    found.map(|(at, word)| (line_of(&text, at), format!("retired word \"{word}\""))).collect()
}

fn names(code: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    for (line, at) in code.lines().zip(1..) {
        for name in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let words = words_of(name);
            let retired = RETIRED.iter().chain(&RETIRED_IN_NAMES);
            if let Some(word) = retired.into_iter().find(|word| words.iter().any(|w| w == *word)) {
                faults.push((at, format!("retired word \"{word}\" in the name `{name}`")));
            }
        }
    }
    faults
}

/// Returns the words of a name in snake or camel case, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for character in name.chars() {
        if character == '_' || (character.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        after_lower = character.is_lowercase() || character.is_ascii_digit();
        if character != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(character.to_lowercase());
        }
    }
    words
}

/// Returns the doc comments whose first line opens with half a sentence.
fn openers(source: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let mut is_inside = false;
    for (line, at) in source.lines().zip(1..) {
        let trimmed = line.trim_start();
        let doc = trimmed.strip_prefix("///").or_else(|| trimmed.strip_prefix("//!"));
        let Some(text) = doc else {
            is_inside = false;
            continue;
        };
        let text = text.trim_start();
        let opener = OPENERS.iter().find(|opener| {
            let rest = text.strip_prefix(**opener);
            rest.is_some_and(|rest| rest.starts_with([' ', ',', '\'']))
        });
        if let (false, Some(opener)) = (is_inside, opener) {
            faults.push((at, format!("a doc comment that opens with \"{opener}\"")));
        }
        is_inside = true;
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::{names, openers, prose, retired, rust, words_of};
    use crate::source::code_only;

    #[test]
    fn retired_words_are_found_whole_in_comments_and_literals_only() {
        let source = "let nobody = \"Nobody\"; // a twin\nlet twinkle = 1;";
        let lines: Vec<_> = retired(&prose(source, &code_only(source))).into_iter().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().all(|(line, _)| *line == 1));
    }

    #[test]
    fn names_are_read_word_by_word() {
        assert_eq!(words_of("isTold_again2Now"), ["is", "told", "again2", "now"]);
        assert_eq!(names("fn was_told(x: Heard) {}\nfn untold(hearing: Seated) {}").len(), 2);
    }

    #[test]
    fn a_doc_comment_opens_with_a_statement() {
        assert_eq!(openers("/// What it does.\n/// How it does.\nfn a() {}").len(), 1);
        assert_eq!(openers("    //! Whether.\n//! Returns.\n\n/// Whatever it is.").len(), 0);
    }

    #[test]
    fn long_lines_are_found() {
        assert_eq!(rust(&"x".repeat(100)).len(), 0);
        assert_eq!(rust(&"x".repeat(101)), [(1, "more than 100 columns".to_owned())]);
        assert_eq!(rust(&format!("// {}", "x".repeat(98))).len(), 1);
        assert_eq!(rust(&format!("let x =\n\"{}\"", "x".repeat(101))).len(), 0);
    }
}
