//! Why the command ends early, and the exit status that says so.

use std::fmt;
use std::io::{self, Write as _};

/// An end that is no success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments cannot be honoured; the text says which, why, and what would be right.
    Usage(String),
    /// The world refused something; the text says what it was.
    Io(String, io::Error),
    /// A service gives no answer that says yes or no; the text says which, and why.
    Unanswered(String),
    /// A service says that what was asked is not for the rule; the text says why.
    NotForIt(String),
    /// Whoever read the output has left: a quiet end.
    OutputClosed,
}

impl Failure {
    /// A complaint about the argument `name`, which was given as `text`.
    pub(crate) fn argument(name: &str, text: &str, complaint: impl fmt::Display) -> Self {
        Self::Usage(format!("{name} \"{}\": {complaint}", text.escape_debug()))
    }

    /// What went wrong with the output.
    pub(crate) fn of_output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Io("the output".to_owned(), error),
        }
    }

    /// Says it on stderr, and returns the exit status.
    pub(crate) fn report(&self) -> u8 {
        match self {
            Self::Usage(complaint) | Self::Unanswered(complaint) | Self::NotForIt(complaint) => {
                complain(complaint);
                2
            }
            Self::Io(what, error) => {
                complain(format_args!("{what}: {error}"));
                1
            }
            Self::OutputClosed => 0,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Unanswered(text) | Self::NotForIt(text) => f.write_str(text),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
            Self::OutputClosed => f.write_str("the output is closed"),
        }
    }
}

/// One line on stderr.
pub(crate) fn complain(complaint: impl fmt::Display) {
    // With stderr gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "rategate: {complaint}");
}
