//! Reads the repository: its files, and Rust source with comments and literals blanked.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

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

/// Returns Rust source with every comment, string and character literal blanked, line for line.
pub(crate) fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    let mut after_word = false;
    while let Some(first) = rest.chars().next() {
        // In `number"…` no raw string begins: its `r` must start a word.
        let hidden = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if first == '"' {
            string(rest)
        } else if first == '\'' {
            character(rest)
        } else if after_word {
            0
        } else {
            raw_string(rest)
        };
        if hidden > 0 {
            code.extend(rest[..hidden].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[hidden..];
            after_word = false;
        } else {
            code.push(first);
            // The `b` of `br"…"` and the `c` of `cr"…"` belong to the prefix.
            after_word = (first.is_alphanumeric() || first == '_') && !"bc".contains(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// Returns the length of the block comment that `rest` begins with; they nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while at < rest.len() {
        let step = if rest[at..].starts_with("/*") {
            depth += 1;
            2
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Returns the length of the string literal that `rest` begins with.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of the character literal that `rest` begins with; 0 for a lifetime such as
/// `'a`.
fn character(rest: &str) -> usize {
    let mut inner = rest.char_indices().skip(1);
    match inner.next() {
        Some((_, '\\')) => {
            // Past the escaped character, which may itself be a quote.
            inner.next();
            inner.find(|&(_, c)| c == '\'').map_or(rest.len(), |(at, _)| at + 1)
        }
        Some(_) => match inner.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

/// Returns the length of the raw string that `rest` begins with (`r"…"`, `r#"…"#`); 0 if there is
/// none.
fn raw_string(rest: &str) -> usize {
    let Some(after_r) = rest.strip_prefix('r') else { return 0 };
    let body = after_r.trim_start_matches('#');
    let hashes = after_r.len() - body.len();
    let Some(body) = body.strip_prefix('"') else { return 0 };
    let close = format!("\"{}", "#".repeat(hashes));
    let opening = 1 + hashes + 1;
    body.find(&close).map_or(rest.len(), |at| opening + at + close.len())
}

#[cfg(test)]
mod tests {
    use super::{code_only, find_word};

    #[test]
    fn blanks_what_is_not_code_and_keeps_the_lines() {
        let code =
            |source: &str| code_only(source).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code("a // b\nc /* d /* e */ f */ g"), "a c g");
        assert_eq!(code(r#"a("{ \" {", b"}", '{', '\'', '\u{7d}') b"#), "a( , b , , , ) b");
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
