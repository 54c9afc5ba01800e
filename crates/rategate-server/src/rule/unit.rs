//! The units of limits.

use schemars::JsonSchema;
use serde::Deserialize;

/// A unit of time in a configuration. A month has 30 days, a year 365.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 3600 s.
    Hour,
    /// 86 400 s.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All units, the shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// Returns the length of the unit in seconds.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        }
    }

    /// Returns the unit's name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Returns the unit of a number of `envoy.type.v3.RateLimitUnit`. The units of the response
    /// have the same numbers.
    #[must_use]
    pub const fn of_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Second),
            2 => Some(Self::Minute),
            3 => Some(Self::Hour),
            4 => Some(Self::Day),
            5 => Some(Self::Month),
            6 => Some(Self::Year),
            7 => Some(Self::Week),
            _ => None,
        }
    }

    /// Returns the number of the unit.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Second => 1,
            Self::Minute => 2,
            Self::Hour => 3,
            Self::Day => 4,
            Self::Month => 5,
            Self::Year => 6,
            Self::Week => 7,
        }
    }
}
