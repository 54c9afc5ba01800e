//! The reasons why the command ends early, with their exit statuses.

use std::fmt;
use std::io::{self, Write as _};

use rategate_analyze::AnalyzeError;

/// The reason for an early end.
#[derive(Debug)]
#[cfg_attr(not(feature = "serve"), allow(dead_code, reason = "some are what services report"))]
pub(crate) enum Failure {
    /// The arguments are invalid; the text says which, why, and what is accepted.
    Usage(String),
    /// An operation of the system failed; the text says which.
    Io(String, io::Error),
    /// A service gives no reply that decides; the text says which, and why.
    Unanswered(String),
    /// A service reports that the request does not fit the rule; the text says why.
    RuleMismatch(String),
    /// A configuration has errors; the text lists them like a compiler.
    Invalid(String),
    /// The reader of the output has left: a silent end.
    OutputClosed,
}

impl Failure {
    /// Creates an error about the argument `name`, whose value is `text`.
    pub(crate) fn argument(name: &str, text: &str, complaint: impl fmt::Display) -> Self {
        Self::Usage(format!("{name} \"{}\": {complaint}", text.escape_debug()))
    }

    /// Creates the error of a failed write to the output.
    pub(crate) fn of_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Io("the output".to_owned(), error),
        }
    }

    /// Prints the error to stderr, and returns the exit status.
    pub(crate) fn report(&self) -> u8 {
        match self {
            Self::OutputClosed => return 0,
            Self::Invalid(list) => {
                // A closed stderr leaves no way to report.
                let _ = io::stderr().write_all(list.as_bytes());
            }
            _ => complain(self),
        }
        if matches!(self, Self::Io(..) | Self::Invalid(_)) { 1 } else { 2 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::Unanswered(text)
            | Self::RuleMismatch(text)
            | Self::Invalid(text) => f.write_str(text),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
            Self::OutputClosed => f.write_str("the output is closed"),
        }
    }
}

impl From<AnalyzeError> for Failure {
    fn from(error: AnalyzeError) -> Self {
        match error {
            AnalyzeError::Io(what, error) => Self::Io(what, error),
            other => Self::Usage(other.to_string()),
        }
    }
}

/// Prints one line to stderr.
pub(crate) fn complain(complaint: impl fmt::Display) {
    // A closed stderr leaves no way to report.
    let _ = writeln!(io::stderr(), "rategate: {complaint}");
}
