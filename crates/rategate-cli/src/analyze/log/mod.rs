//! From the bytes of a line to what is asked of the limit.

mod clf;
mod json;
mod lines;
mod time;

use super::args::Dialect;
use super::key::Source;

pub(super) use lines::{Lines, Next};
pub(super) use time::{Utc, whole_number};

/// What a line says, as far as anybody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) at_ns: u64,
    /// Who it was, as the log writes it; never empty.
    pub(super) key: &'a [u8],
    pub(super) status: Option<u16>,
    pub(super) bytes: u64,
}

/// Why a line is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// Not of this format.
    Malformed,
    /// Without a date that can be read.
    NoTime,
    /// Without what callers are told apart by.
    NoKey,
    /// Longer than a line may be.
    TooLong,
    /// More than a day ahead of the lines around it.
    Ahead,
}

impl Unread {
    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Malformed => "not a line of an access log",
            Self::NoTime => "no date that can be read",
            Self::NoKey => "does not say who called",
            Self::TooLong => "longer than 65536 bytes",
            Self::Ahead => "more than a day ahead of the lines around it",
        }
    }
}

/// Reads lines of one log after the other.
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

    /// Reads any bytes; nothing makes it panic.
    pub(super) fn read<'a>(&mut self, line: &'a [u8]) -> Result<Entry<'a>, Unread> {
        let is_json = match self.dialect {
            Dialect::Auto => line.trim_ascii_start().starts_with(b"{"),
            Dialect::Common => false,
            Dialect::Json => true,
        };
        if is_json { json::read(self, line) } else { clf::read(self, line) }
    }
}

/// A status of three digits.
fn status(digits: &[u8]) -> Option<u16> {
    let number = whole_number(digits).filter(|_| digits.len() == 3)?;
    u16::try_from(number).ok()
}

#[cfg(test)]
mod tests;
