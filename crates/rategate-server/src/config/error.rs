//! Problems of a configuration, with their positions.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

use super::source::SourceLocation;

/// The maximum number of problems that are printed. The rest is counted.
const MAX_REPORTED: usize = 50;
/// The number of problems after which reading stops.
pub(crate) const MAX_FOUND: usize = 1_000;

/// The error of a configuration that is refused as a whole. Nothing of it takes effect.
#[derive(Clone, Debug)]
pub struct ConfigError {
    /// The problems in the order of files and lines; at least one.
    problems: Vec<Problem>,
}

/// A defect of a configuration, or a warning.
#[derive(Clone, Debug)]
pub struct Problem {
    message: String,
    help: Option<String>,
    location: Option<SourceLocation>,
    /// The path of a file that could not be read, which has no position.
    path: Option<PathBuf>,
    is_warning: bool,
}

impl ConfigError {
    pub(crate) fn of(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_cached_key(|problem| {
            (problem.file().map(Path::to_owned), problem.line(), problem.column())
        });
        Self { problems }
    }

    /// Returns all problems.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Formats the problems for a terminal, each with its line, a caret and a correction.
    #[must_use]
    pub fn report(&self) -> String {
        report(&self.problems)
    }
}

impl Problem {
    pub(crate) fn at(location: SourceLocation, message: impl Into<String>) -> Self {
        let message = message.into();
        match location.outside() {
            Some(name) => Self::nowhere(format!("{}: {message}", name.display())),
            None => Self { location: Some(location), ..Self::nowhere(message) },
        }
    }

    /// Creates a problem without a position in a file.
    pub(crate) fn nowhere(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None, location: None, path: None, is_warning: false }
    }

    pub(crate) fn of_file(path: &Path, error: &io::Error) -> Self {
        let path = Some(path.to_owned());
        Self { path, ..Self::nowhere(format!("cannot be read: {error}")) }
    }

    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub(crate) fn warning(self) -> Self {
        Self { is_warning: true, ..self }
    }

    /// Returns the description of the problem.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the correction, if one is known.
    #[must_use]
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        let location = self.location.as_ref().map(|location| location.path().as_path());
        location.or(self.path.as_deref())
    }

    /// Returns the line, from 1.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.location.as_ref().map(SourceLocation::line)
    }

    /// Returns the column in characters, from 1.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.location.as_ref().map(SourceLocation::column)
    }

    /// Returns `true` if the configuration is in force in spite of it.
    #[must_use]
    pub const fn is_warning(&self) -> bool {
        self.is_warning
    }
}

/// Formats problems for a terminal.
#[must_use]
pub fn report(problems: &[Problem]) -> String {
    let mut text = String::new();
    for problem in problems.iter().take(MAX_REPORTED) {
        let sign = if problem.is_warning { '!' } else { 'x' };
        let excerpt = problem.location.as_ref().and_then(SourceLocation::excerpt);
        let _ = write!(text, "  {sign} {problem}\n{}", excerpt.unwrap_or_default());
        if let Some(help) = &problem.help {
            let _ = writeln!(text, "  help: {help}");
        }
    }
    text.extend(more_than(problems).map(|line| line + "\n"));
    text
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.location, &self.path) {
            (Some(location), _) => write!(f, "{}: {}", location.origin(), self.message),
            (None, Some(path)) => write!(f, "{}: {}", path.display(), self.message),
            (None, None) => f.write_str(&self.message),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> =
            self.problems.iter().take(MAX_REPORTED).map(ToString::to_string).collect();
        lines.extend(more_than(&self.problems));
        f.write_str(&lines.join("\n"))
    }
}

/// Returns a line that counts the problems that are not printed, if there are any.
fn more_than(problems: &[Problem]) -> Option<String> {
    let omitted = problems.len().saturating_sub(MAX_REPORTED);
    (omitted > 0).then(|| format!("and {omitted} more"))
}

impl std::error::Error for Problem {}
impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn problem(text: &str, needle: &str) -> Problem {
        let source = Source::new(Path::new("rules.toml"), text);
        let start = text.find(needle).unwrap();
        Problem::at(source.location(start..start + needle.len()), "wrong").help("write right")
    }

    #[test]
    fn a_report_shows_the_line_with_carets_and_what_would_be_right() {
        let error = ConfigError::of(vec![problem("a = 1\nlimit = \"x\"\n", "\"x\"")]);
        assert_eq!(error.to_string(), "rules.toml:2:9: wrong");
        let report = error.report();
        for fragment in ["rules.toml:2:9", "limit = \"x\"", "^^^", "write right"] {
            assert!(report.contains(fragment), "{fragment} in {report}");
        }
    }

    #[test]
    fn a_secret_is_not_reported() {
        let report = ConfigError::of(vec![problem("token = \"sesame", "\"sesame")]).report();
        assert!(!report.contains("sesame") && report.contains("rules.toml:1:9"), "{report}");
        assert!(report.contains("write right"));
    }

    #[test]
    fn problems_come_in_the_order_of_lines_and_not_without_end() {
        let text = "a\n".repeat(200);
        let source = Source::new(Path::new("f"), text);
        let at = |line| Problem::at(source.location_at(line, 1), "m");
        let error = ConfigError::of((1..=200).rev().map(at).collect());
        let display = error.to_string();
        assert!(display.starts_with("f:1:1: m\nf:2:1: m"));
        assert!(display.ends_with("and 150 more") && display.lines().count() == 51);
        assert_eq!(error.problems().len(), 200);
    }
}
