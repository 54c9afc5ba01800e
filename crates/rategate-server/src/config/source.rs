//! The text of a file, and positions in it.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::Problem;
use crate::rule::Origin;

/// The maximum size of a file, in bytes.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
/// The maximum length of an excerpt of a line, in bytes.
const MAX_SHOWN: usize = 200;
/// The column in bytes beyond which columns are counted in bytes.
const MAX_COUNTED: usize = 4_096;

/// The text of a file.
#[derive(Debug)]
pub(crate) struct Source {
    path: Arc<PathBuf>,
    text: Box<str>,
    /// The offset of each line but the first.
    line_starts: Vec<usize>,
    kind: SourceKind,
}

/// The origin of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceKind {
    File,
    /// A variable or a flag: its path is its name, and its text is not kept.
    Outside,
    /// A resource of a control plane: its path is its name, and its text has the paths of its
    /// descriptors, a line for each.
    Resource,
}

/// The texts of a configuration, one after the other in one range of positions.
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<(usize, Arc<Source>)>);

/// A position in a file.
#[derive(Clone, Debug)]
pub(crate) struct SourceLocation {
    source: Arc<Source>,
    span: Range<usize>,
}

impl Source {
    /// Creates a source from a text under a name.
    pub(crate) fn new(path: &Path, text: impl Into<Box<str>>) -> Arc<Self> {
        let text = text.into();
        let line_starts = memchr::memchr_iter(b'\n', text.as_bytes());
        let line_starts = line_starts.map(|at| at.saturating_add(1)).collect();
        let (path, kind) = (Arc::new(path.to_owned()), SourceKind::File);
        Arc::new(Self { path, text, line_starts, kind })
    }

    /// Creates a source from the paths of a resource's descriptors, a line for each.
    pub(crate) fn of_resource(name: &str, paths: &str) -> Arc<Self> {
        let (path, text) = (Arc::new(name.into()), paths.into());
        Arc::new(Self { path, text, line_starts: Vec::new(), kind: SourceKind::Resource })
    }

    /// Reads a file. Anything else is refused: a pipe could deliver bytes without end.
    pub(crate) fn read(path: &Path) -> Result<Arc<Self>, Problem> {
        let bytes = read_bounded(path).map_err(|error| Problem::of_file(path, &error))?;
        match String::from_utf8(bytes) {
            // An editor may have just truncated the file; all rules must not be dropped because
            // of that.
            Ok(text) if text.trim().is_empty() => {
                let error =
                    io::Error::other("the file is empty; write a comment if that is intended");
                Err(Problem::of_file(path, &error))
            }
            Ok(text) => Ok(Self::new(path, text)),
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let source =
                    Self::new(path, String::from_utf8_lossy(error.as_bytes()).into_owned());
                let message = "a byte that is not UTF-8";
                Err(Problem::at(source.location(valid..valid), message)
                    .help("save the file as UTF-8"))
            }
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn location(self: &Arc<Self>, span: Range<usize>) -> SourceLocation {
        let end = self.text().len();
        let start = span.start.min(end);
        SourceLocation { source: Arc::clone(self), span: start..span.end.clamp(start, end) }
    }

    /// Returns the position at a line and a column in characters, both from 1.
    pub(crate) fn location_at(self: &Arc<Self>, line: usize, column: usize) -> SourceLocation {
        let start = self.line_start(line.saturating_sub(1));
        let rest = self.text().get(start..).unwrap_or_default();
        let ahead = rest.chars().take_while(|c| *c != '\n').take(column.saturating_sub(1));
        let at = start.saturating_add(ahead.map(char::len_utf8).sum());
        self.location(at..at)
    }

    fn line_start(&self, index: usize) -> usize {
        match index.checked_sub(1) {
            None => 0,
            Some(index) => self.line_starts.get(index).copied().unwrap_or(self.text().len()),
        }
    }
}

impl Sources {
    /// Adds a text, and returns the position of its first byte.
    pub(crate) fn add(&mut self, source: Arc<Source>) -> usize {
        let end = |(start, source): &(usize, Arc<Source>)| start.saturating_add(source.text.len());
        let start = self.0.last().map_or(0, |last| end(last).saturating_add(1));
        self.0.push((start, source));
        start
    }

    /// Adds a variable or a flag, and returns its position.
    pub(crate) fn add_outside(&mut self, name: &str) -> Range<usize> {
        let (path, text, line_starts) = (Arc::new(name.into()), "".into(), Vec::new());
        let start =
            self.add(Arc::new(Source { path, text, line_starts, kind: SourceKind::Outside }));
        start..start
    }

    pub(crate) fn location(&self, span: &Range<usize>) -> SourceLocation {
        let Some((start, source)) = self.find(span) else {
            return Source::new(Path::new(""), "").location(0..0);
        };
        source.location(span.start.saturating_sub(start)..span.end.saturating_sub(start))
    }

    /// Returns the text at a position, as it is written.
    pub(crate) fn text(&self, span: &Range<usize>) -> Option<&str> {
        let (start, source) = self.find(span)?;
        source.text.get(span.start.checked_sub(start)?..span.end.checked_sub(start)?)
    }

    fn find(&self, span: &Range<usize>) -> Option<(usize, &Arc<Source>)> {
        let after = self.0.partition_point(|(start, _)| *start <= span.start);
        let (start, source) = self.0.get(after.checked_sub(1)?)?;
        Some((*start, source))
    }
}

impl SourceLocation {
    /// Returns the name of the variable, flag or resource, if it is no position in a file.
    pub(crate) fn outside(&self) -> Option<&Path> {
        (self.source.kind != SourceKind::File).then_some(self.source.path.as_path())
    }

    /// Returns the line, from 1.
    pub(crate) fn line(&self) -> usize {
        let before = self.source.line_starts.partition_point(|start| *start <= self.span.start);
        before.saturating_add(1)
    }

    /// Returns the column in characters from 1; in bytes if far to the right.
    pub(crate) fn column(&self) -> usize {
        let start = self.source.line_start(self.line().saturating_sub(1));
        let before = self.source.text().get(start..self.span.start).unwrap_or_default();
        // Counting characters in a line of megabytes would be slow, and there may be a rule at
        // each of its positions.
        let column = if before.len() > MAX_COUNTED { before.len() } else { before.chars().count() };
        column.saturating_add(1)
    }

    pub(crate) fn path(&self) -> &Arc<PathBuf> {
        &self.source.path
    }

    pub(crate) fn origin(&self) -> Origin {
        let file = Arc::clone(&self.source.path);
        if self.source.kind == SourceKind::Resource {
            let path = self.source.text.get(self.span.clone()).unwrap_or_default();
            let file = format!("{}: {path}", file.display());
            return Origin { file: Arc::new(file.into()), line: 0, column: 0 };
        }
        Origin { file, line: self.line(), column: self.column() }
    }

    /// Returns its first line with carets, or `None` if the line may contain a secret.
    pub(crate) fn excerpt(&self) -> Option<String> {
        let (shown, Range { start, end }) = (self.shown()?, self.span());
        let text = self.source.text();
        let line = text.get(shown.clone())?.trim_end();
        let before = text.get(shown.start..start)?.chars();
        let before: String = before.map(|c| if c == '\t' { c } else { ' ' }).collect();
        let marked = text.get(start..end.min(shown.end).max(start))?.chars().count();
        let (number, carets) = (self.line().to_string(), "^".repeat(marked.max(1)));
        let (margin, origin) = (" ".repeat(number.len()), self.origin());
        Some(format!(
            " {margin} ,-[{origin}]\n {number} | {line}\n {margin} : {before}{carets}\n {margin} `----\n"
        ))
    }

    fn span(&self) -> Range<usize> {
        let Range { start, end } = self.span;
        let text = self.source.text();
        let is_of_line = |c: &char| !matches!(c, '\n' | '\r');
        let next = text.get(start..).and_then(|rest| rest.chars().next()).filter(is_of_line);
        let last =
            text.get(..start).and_then(|before| before.chars().next_back()).filter(is_of_line);
        match (next, last) {
            _ if end > start => start..end,
            (Some(next), _) => start..start.saturating_add(next.len_utf8()),
            (None, Some(last)) => start.saturating_sub(last.len_utf8())..start,
            (None, None) => start..start,
        }
    }

    /// Returns the excerpt of its first line, or `None` if the line may contain a secret.
    fn shown(&self) -> Option<Range<usize>> {
        let first = self.source.line_start(self.line().saturating_sub(1));
        let text = self.source.text();
        let tail = text.get(self.span.start..)?;
        let end = self.span.start.saturating_add(tail.find('\n').unwrap_or(tail.len()));
        let line = text.get(first..end)?;
        if mentions_secret(line) || line.contains("://") && line.contains('@') {
            return None;
        }
        if line.len() <= MAX_SHOWN {
            return Some(first..end);
        }
        let around = MAX_SHOWN / 2;
        let near = self.span.start.saturating_sub(around)..self.span.start.saturating_add(around);
        // No character is cut.
        let from = (near.start.max(first)..end).find(|at| text.is_char_boundary(*at))?;
        let until = (from..near.end.min(end)).rev().find(|at| text.is_char_boundary(*at))?;
        Some(from..until)
    }
}

/// Returns `true` if a key of these lines is, or contains, a word such as token or password. A
/// key `auth_token` was meant to be one. A value with the word, as `token-bucket`, does not
/// count.
fn mentions_secret(lines: &str) -> bool {
    let lines = &*lines.to_ascii_lowercase();
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let is_of_key = |c: char| is_of_word(c) || matches!(c, '.' | '"' | '\'');
    let has_key = lines.match_indices(['=', ':']).any(|(at, _)| {
        let before = lines.get(..at).unwrap_or_default().trim_end_matches([' ', '\t']);
        let key = before.rsplit(|c| !is_of_key(c)).next().unwrap_or_default();
        let value = lines.get(at.saturating_add(1)..).unwrap_or_default().trim_start();
        // Flags such as `auth`, which is `true` or `false`, are no secrets.
        let is_flag = key == "auth" || value.starts_with("true") || value.starts_with("false");
        let mut words = ["token", "password", "secret", "auth"].into_iter();
        !is_flag && words.any(|word| key.contains(word))
    });
    has_key
        || ["token", "password"].into_iter().any(|word| {
            lines.match_indices(word).any(|(at, _)| {
                let before = lines.get(..at).and_then(|before| before.chars().next_back());
                let after = lines.get(at.saturating_add(word.len())..).unwrap_or_default();
                let after = after.trim_start_matches(['"', '\'', ' ', '\t']);
                // An unfinished line may continue with a secret.
                before.is_none_or(|c| !is_of_word(c))
                    && (after.is_empty() || after.starts_with(['=', ':', '.', ']', '\n', '\r']))
            })
        })
}

/// Reads a plain file that is not too long.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(io::Error::other("neither a file nor a folder"));
    }
    let too_long =
        || io::Error::other(format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20));
    if about.len() > MAX_FILE_BYTES {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // The file may be growing.
    File::open(path)?.take(MAX_FILE_BYTES.saturating_add(1)).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= MAX_FILE_BYTES => Ok(bytes),
        _ => Err(too_long()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_count_lines_and_characters_from_one() {
        let source = Source::new(Path::new("a.toml"), "x = 1\nä = \"ö\" # é\n\nlast");
        let at = |needle| {
            let start = source.text().find(needle).unwrap();
            let location = source.location(start..start);
            (location.line(), location.column())
        };
        assert_eq!(at("x"), (1, 1));
        assert_eq!(at("ö"), (2, 6));
        assert_eq!(at("é"), (2, 11));
        assert_eq!(at("last"), (4, 1));
        let back = source.location_at(2, 6);
        assert_eq!((back.line(), back.column()), (2, 6));
        let beyond = source.location(1_000..2_000);
        assert_eq!((beyond.line(), beyond.column()), (4, 5));
        assert_eq!(source.location_at(99, 99).line(), 4);
    }
}
