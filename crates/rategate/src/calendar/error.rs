//! The reasons for which a calendar cannot be made.

use std::error::Error;
use std::fmt;

use rategate_core::error::LimitError;

use super::MAX_CALENDARS;

/// The reason for which a calendar cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CalendarError {
    /// The unit is none of day, week, month, quarter and year.
    Unit(String),
    /// The zone is not in the IANA database, or cannot be read.
    Zone {
        /// The name as it was given.
        name: String,
        /// The error of the database.
        why: String,
    },
    /// The anchor is no local date and time in whole seconds.
    Anchor {
        /// The text as it was given.
        text: String,
        /// The error in it.
        why: String,
    },
    /// The anchor is before the year 1900 or after 2500.
    AnchorRange(String),
    /// A window of zero units, or of more than a hundred years.
    Every(u32),
    /// The text is no calendar's own text.
    Text(String),
    /// The process has as many calendars as it can keep: [`MAX_CALENDARS`].
    TooMany,
    /// The limit has no permits.
    Limit(LimitError),
}

impl From<LimitError> for CalendarError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(unit) => {
                write!(f, "{unit:?} is no unit: write day, week, month, quarter or year")
            }
            Self::Zone { name, why } => write!(f, "no time zone {name:?}: {why}"),
            Self::Anchor { text, why } => {
                write!(f, "the anchor {text:?} is no local time: {why}; write \"2026-01-31T00:00\"")
            }
            Self::AnchorRange(text) => {
                write!(f, "the anchor {text:?} is not between the years 1900 and 2500")
            }
            Self::Every(0) => f.write_str("a window of 0 units; write at least 1"),
            Self::Every(every) => {
                write!(f, "a window of {every} units is longer than a hundred years")
            }
            Self::Text(text) => write!(
                f,
                "{text:?} is no calendar: write \"month in Europe/Rome from 2026-01-31T00:00 \
                 every 1\""
            ),
            Self::TooMany => {
                write!(f, "this process has {MAX_CALENDARS} different calendars, the maximum")
            }
            Self::Limit(error) => error.fmt(f),
        }
    }
}

impl Error for CalendarError {}
