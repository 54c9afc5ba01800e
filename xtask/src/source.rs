//! Reads the repository: its files, and Rust source with comments and literals blanked.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};

/// A file with its path from the root, with forward slashes.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Returns every file that git tracks or would track, sorted. Bytes that are not UTF-8 are
/// replaced.
pub(crate) fn repository(root: &Path) -> Result<Vec<File>> {
    let mut paths = tracked(root)?;
    if paths.is_empty() {
        // An unpacked archive has no git: then everything but build output counts.
        below(root, "", &mut paths)?;
    }
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let full: PathBuf = root.join(&path);
        // A tracked file may have been deleted since, and a submodule is a folder.
        if full.is_file() {
            let bytes = std::fs::read(&full).with_context(|| format!("read {path}"))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            files.push(File { path, text });
        }
    }
    Ok(files)
}

/// Returns the files that git lists; none without a git checkout.
fn tracked(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let listed = match listed {
        Ok(output) if output.status.success() => output.stdout,
        _ => Vec::new(),
    };
    let listed = String::from_utf8(listed).context("a file name is not UTF-8")?;
    Ok(listed.split_terminator('\0').map(str::to_owned).collect())
}

fn below(root: &Path, folder: &str, paths: &mut Vec<String>) -> Result<()> {
    let entries = std::fs::read_dir(root.join(folder)).with_context(|| format!("list {folder}"))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("list {folder}"))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if name != "target" && name != ".git" {
                below(root, &path, paths)?;
            }
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

impl File {
    /// Returns the path below `folder` for a Rust file: `rate/float.rs` of
    /// `crates/rategate-core/src/rate/float.rs`.
    pub(crate) fn rust_below(&self, folder: &str) -> Option<&str> {
        let inner = self.path.strip_prefix(folder)?.strip_prefix('/')?;
        inner.ends_with(".rs").then_some(inner)
    }
}

/// Returns the offsets of `word` in `text` as a whole word, so `Instant` is not found in
/// `InstantNs`.
pub(crate) fn find_word<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let rest = &text[at + word.len()..];
        let longer_before = word.starts_with(part_of_word) && text[..at].ends_with(part_of_word);
        let longer_after = word.ends_with(part_of_word) && rest.starts_with(part_of_word);
        !longer_before && !longer_after
    })
}

/// Returns the line number of an offset in a text, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Returns Rust source with every comment, string and character literal blanked, character for
/// character.
///
/// # Panics
///
/// The text is no Rust.
pub(crate) fn code_only(source: &str) -> String {
    let tokens = source.parse().unwrap_or_else(|error| panic!("no Rust: {error}\n{source}"));
    let mut code = Vec::new();
    push_code(source, tokens, &mut code);
    let mut code = code.into_iter().peekable();
    let shown = |(at, character): (usize, char)| {
        while code.next_if(|token: &Range<usize>| token.end <= at).is_some() {}
        let is_code = code.peek().is_some_and(|token| token.start <= at);
        if is_code || character == '\n' { character } else { ' ' }
    };
    source.char_indices().map(shown).collect()
}

/// Collects where the tokens are that are code. A number is code, other literals are not.
fn push_code(source: &str, tokens: TokenStream, code: &mut Vec<Range<usize>>) {
    for token in tokens {
        let range = token.span().byte_range();
        let text = &source[range.clone()];
        match token {
            // A comment of a document is an attribute for the parser.
            _ if text.starts_with("//") || text.starts_with("/*") => {}
            TokenTree::Group(group) => {
                code.push(group.span_open().byte_range());
                push_code(source, group.stream(), code);
                code.push(group.span_close().byte_range());
            }
            TokenTree::Literal(_) if !text.starts_with(|c: char| c.is_ascii_digit()) => {}
            _ => code.push(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{code_only, find_word};

    #[test]
    fn blanks_what_is_not_code_and_keeps_the_lines() {
        let code =
            |source: &str| code_only(source).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code("a // b\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(code(r#"a("{ \" {", b"}", '{', '\'', '\u{7d}') b"#), "a( , , , , ) b");
        assert_eq!(code("fn f<'a>(x: &'a str) { r#\"}\"\"# }"), "fn f<'a>(x: &'a str) { }");
        assert_eq!(code_only("a /* \n */ \"\n\" b").matches('\n').count(), 2);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(find_word("InstantNs, Instant", "Instant").collect::<Vec<_>>(), [11]);
        assert_eq!(find_word("forbid(unsafe_code)", "unsafe").count(), 0);
        assert_eq!(find_word("use std::time, mystd::x", "std::").collect::<Vec<_>>(), [4]);
    }
}
