//! Parsing of log lines into calls for the limit.

mod clf;
mod json;
mod lines;
mod time;

use super::args::Dialect;
use super::key::Source;

pub(super) use lines::{Lines, Next};
pub(super) use time::{Utc, whole_number};

/// The needed content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) at_ns: u64,
    /// The caller's text in the log; never empty.
    pub(super) key: &'a [u8],
    pub(super) status: Option<u16>,
    pub(super) bytes: u64,
}

/// The reason why a line is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The line is not of this format.
    Malformed,
    /// The line has no date that can be parsed.
    NoTime,
    /// The line lacks the part that identifies the caller.
    NoKey,
    /// The line is longer than the maximum.
    TooLong,
    /// The line is more than a day ahead of the lines around it.
    Ahead,
}

impl Unread {
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Malformed => "not a line of an access log",
            Self::NoTime => "no valid date",
            Self::NoKey => "no caller in the line",
            Self::TooLong => "longer than 65536 bytes",
            Self::Ahead => "more than a day ahead of the lines around it",
        }
    }
}

/// A parser for the lines of one log after another.
#[derive(Debug)]
pub(super) struct Parser {
    dialect: Dialect,
    source: Source,
    remembered: time::Remembered,
}

impl Parser {
    pub(super) fn new(dialect: Dialect, source: Source) -> Self {
        Self { dialect, source, remembered: time::Remembered::default() }
    }

    /// Parses any bytes, without ever panicking.
    pub(super) fn read<'a>(&mut self, line: &'a [u8]) -> Result<Entry<'a>, Unread> {
        let is_json = match self.dialect {
            Dialect::Auto => line.trim_ascii_start().starts_with(b"{"),
            Dialect::Common => false,
            Dialect::Json => true,
        };
        if is_json { json::read(self, line) } else { clf::read(self, line) }
    }
}

/// Parses a status of three digits.
fn status(digits: &[u8]) -> Option<u16> {
    let number = whole_number(digits).filter(|_| digits.len() == 3)?;
    u16::try_from(number).ok()
}

#[cfg(test)]
mod tests;
