//! Parsing of log lines into calls for the limit.

mod clf;
mod json;
mod time;

use std::fmt;

use memchr::memchr;
use serde::Serialize;

use crate::input::MAX_LINE;
use crate::key::CallerKey;
use time::whole_number;

pub(crate) use time::Dates;
pub use time::UnixTime;

/// The format of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// JSON if a line begins with a brace, else the common format.
    #[default]
    Auto,
    /// The common or the combined format.
    Common,
    /// A JSON object.
    Json,
}

/// The needed content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) at_ns: u64,
    /// The caller's text in the log; never empty.
    pub(crate) key: &'a [u8],
    pub(crate) status: Option<u16>,
    pub(crate) bytes: u64,
}

/// The reason why a line is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
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

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("not a line of an access log"),
            Self::NoTime => f.write_str("no valid date"),
            Self::NoKey => f.write_str("no caller in the line"),
            Self::TooLong => write!(f, "longer than {MAX_LINE} bytes"),
            Self::Ahead => f.write_str("more than a day ahead of the lines around it"),
        }
    }
}

impl Serialize for SkipReason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A parser for the lines of one log after another.
#[derive(Debug)]
pub(crate) struct Parser {
    dialect: Dialect,
    key: CallerKey,
    dates: Dates,
}

impl Parser {
    pub(crate) fn new(dialect: Dialect, key: CallerKey) -> Self {
        Self { dialect, key, dates: Dates::default() }
    }

    /// Parses any bytes, without ever panicking.
    pub(crate) fn read<'a>(&mut self, line: &'a [u8]) -> Result<Entry<'a>, SkipReason> {
        let is_json = match self.dialect {
            Dialect::Auto => line.trim_ascii_start().starts_with(b"{"),
            Dialect::Common => false,
            Dialect::Json => true,
        };
        if is_json { json::read(self, line) } else { clf::read(self, line) }
    }
}

/// Parses the instant of a line of any dialect, or one that the line consists of.
pub(crate) fn instant(dates: &mut Dates, line: &[u8]) -> Result<u64, SkipReason> {
    if line.starts_with(b"{") {
        json::instant(dates, line)
    } else if memchr(b'"', line).is_some() {
        clf::head(dates, line).map(|head| head.at_ns)
    } else {
        dates.any(line).ok_or(SkipReason::NoTime)
    }
}

/// Parses a status of three digits.
fn status(digits: &[u8]) -> Option<u16> {
    let number = whole_number(digits).filter(|_| digits.len() == 3)?;
    u16::try_from(number).ok()
}

#[cfg(test)]
mod tests;
