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

    /// Creates a problem with a value. The path of the value precedes the message, if there is one.
    pub(crate) fn of(path: &str, location: SourceLocation, message: impl fmt::Display) -> Self {
        let sign = if path.is_empty() { "" } else { ": " };
        Self::at(location, format!("{path}{sign}{message}"))
    }

    /// Creates a problem without a position in a file.
    pub(crate) fn nowhere(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None, location: None, path: None, is_warning: false }
    }

    pub(crate) fn of_file(path: &Path, error: &io::Error) -> Self {
        let path = Some(path.to_owned());
        Self { path, ..Self::nowhere(format!("cannot be read: {error}")) }
    }

    /// Adds the correction, unless it is empty.
    pub(crate) fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()).filter(|help| !help.is_empty()), ..self }
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
