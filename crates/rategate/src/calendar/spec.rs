//! The windows of a quota as they are written.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use super::error::CalendarError;

/// The unit in which a calendar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A day.
    Day,
    /// A week, which starts on Monday unless it is anchored elsewhere.
    Week,
    /// A month.
    Month,
    /// Three months.
    Quarter,
    /// A year.
    Year,
}

/// A unit's step: days, or months whose lengths differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Days(i64),
    Months(i64),
}

/// The windows of a quota: a unit, a zone, an anchor, and how many units a window lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarSpec {
    pub(super) unit: Unit,
    pub(super) zone: TimeZone,
    pub(super) anchor: DateTime,
    pub(super) every: u32,
}

impl Unit {
    const ALL: [Self; 5] = [Self::Day, Self::Week, Self::Month, Self::Quarter, Self::Year];

    /// Returns its name in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        }
    }

    pub(super) const fn step(self) -> Step {
        match self {
            Self::Day => Step::Days(1),
            Self::Week => Step::Days(7),
            Self::Month => Step::Months(1),
            Self::Quarter => Step::Months(3),
            Self::Year => Step::Months(12),
        }
    }

    /// Returns the number of units in a hundred years, rounded up.
    const fn per_century(self) -> u32 {
        match self {
            Self::Day => 36_525,
            Self::Week => 5_218,
            Self::Month => 1_200,
            Self::Quarter => 400,
            Self::Year => 100,
        }
    }

    /// Returns the border that is an anchor by default: the first of 1970, for weeks a Monday.
    fn first(self) -> DateTime {
        let day = if self == Self::Week { 5 } else { 1 };
        Date::constant(1970, 1, day).at(0, 0, 0, 0)
    }
}

impl FromStr for Unit {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let found = Self::ALL.into_iter().find(|unit| unit.name() == text);
        found.ok_or_else(|| CalendarError::Unit(text.to_owned()))
    }
}

impl CalendarSpec {
    /// Creates windows of one `unit` in a `zone` of the IANA database, such as `"Europe/Rome"`.
    /// They begin at midnight; weeks on Monday, quarters with January.
    ///
    /// # Errors
    ///
    /// [`CalendarError::Unit`] and [`CalendarError::Zone`].
    pub fn new(unit: &str, zone: &str) -> Result<Self, CalendarError> {
        let unit: Unit = unit.parse()?;
        let zone = TimeZone::get(zone).map_err(|error| CalendarError::Zone {
            name: zone.to_owned(),
            why: error.to_string(),
        })?;
        Ok(Self { unit, zone, anchor: unit.first(), every: 1 })
    }

    /// Counts the windows from this local time: `"2026-01-31T00:00"`, or a date for its midnight.
    /// It may lie in the future.
    ///
    /// # Errors
    ///
    /// [`CalendarError::Anchor`] and [`CalendarError::AnchorRange`].
    pub fn anchored(self, anchor: &str) -> Result<Self, CalendarError> {
        let wrong =
            |why: &str| CalendarError::Anchor { text: anchor.to_owned(), why: why.to_owned() };
        let local: DateTime =
            anchor.parse().map_err(|error: jiff::Error| wrong(&error.to_string()))?;
        if local.subsec_nanosecond() != 0 {
            return Err(wrong("it has a part of a second"));
        }
        if !(1900..=2500).contains(&local.year()) {
            return Err(CalendarError::AnchorRange(anchor.to_owned()));
        }
        Ok(Self { anchor: local, ..self })
    }

    /// Makes each window last for this many units.
    ///
    /// # Errors
    ///
    /// [`CalendarError::Every`] for zero, or more than a hundred years.
    pub fn every(self, every: u32) -> Result<Self, CalendarError> {
        if (1..=self.unit.per_century()).contains(&every) {
            Ok(Self { every, ..self })
        } else {
            Err(CalendarError::Every(every))
        }
    }

    /// Returns the unit of the windows.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the number of units in a window.
    #[must_use]
    pub const fn units(&self) -> u32 {
        self.every
    }

    /// Returns the name of the zone.
    #[must_use]
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Returns the local time from which the windows are counted.
    #[must_use]
    pub fn anchor(&self) -> String {
        self.anchor.to_string()
    }
}

/// The calendar's own text: `month in America/New_York from 2026-01-31T00:00:00 every 1`.
impl fmt::Display for CalendarSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, every) = (self.unit.name(), self.every);
        write!(f, "{unit} in {} from {} every {every}", self.zone(), self.anchor)
    }
}

impl FromStr for CalendarSpec {
    type Err = CalendarError;

    /// Reads a calendar's [own text](rategate_core::calendar::Calendar::text).
    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let wrong = || CalendarError::Text(text.to_owned());
        let [unit, "in", zone, "from", anchor, "every", every] =
            *text.split(' ').collect::<Vec<_>>()
        else {
            return Err(wrong());
        };
        Self::new(unit, zone)?.anchored(anchor)?.every(every.parse().map_err(|_| wrong())?)
    }
}
