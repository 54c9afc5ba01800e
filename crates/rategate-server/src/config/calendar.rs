//! Limits of a calendar as they are written, and the instants of their borders as text.

use jiff::Timestamp;
use jiff::tz::Offset;
use rategate::FixedWindow;
use rategate::calendar::{Calendar, CalendarError, CalendarSpec, Unit as CalendarUnit};
use toml::Value as Toml;

use super::limit::Written;
use crate::nearest::nearest;
use crate::rule::{DisplayLimit, Unit};

/// The zone of a calendar that names none.
const ZONE: &str = "UTC";

/// The windows of a calendar as they are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenCalendar<'t> {
    pub(crate) per: &'t str,
    pub(crate) zone: Option<&'t str>,
    pub(crate) anchor: Option<&'t str>,
    pub(crate) every: Option<u32>,
}

impl WrittenCalendar<'_> {
    /// Returns the limit of so many permits in each window.
    pub(crate) fn limit(self, permits: u64) -> Result<Written, String> {
        let spec = CalendarSpec::new(self.per, self.zone.unwrap_or(ZONE));
        let spec = spec.and_then(|spec| match self.anchor {
            Some(anchor) => spec.anchored(anchor),
            None => Ok(spec),
        });
        let spec = spec.and_then(|spec| spec.every(self.every.unwrap_or(1)));
        let spec = spec.map_err(|error| match &error {
            CalendarError::Zone { name, .. } => format!("{error}; {}", zone_help(name)),
            _ => error.to_string(),
        })?;
        Ok(match permits {
            0 => Written::Nothing(display_limit(0, &spec)),
            _ => Written::Calendar { permits, spec },
        })
    }
}

/// Returns the help for an unknown time zone: the most similar name, if any.
pub(super) fn zone_help(zone: &str) -> String {
    let known: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
    match nearest(zone, known.iter().map(String::as_str)) {
        Some(name) => format!("did you mean {name:?}?"),
        None => "write a name like \"Europe/Berlin\" or \"UTC\"".to_owned(),
    }
}

impl Written {
    /// Returns the limit without its own calendar, which the process would keep.
    pub(crate) fn without_calendar(self) -> Self {
        match (self, CalendarSpec::new("day", ZONE)) {
            (Self::Calendar { permits, .. }, Ok(spec)) => Self::Calendar { permits, spec },
            (other, _) => other,
        }
    }
}

/// Returns the displayed form of a limit in each window.
pub(super) fn display_limit(permits: u64, spec: &CalendarSpec) -> DisplayLimit {
    let (unit, units) = match spec.unit() {
        CalendarUnit::Day => (Unit::Day, 1),
        CalendarUnit::Week => (Unit::Week, 1),
        CalendarUnit::Month => (Unit::Month, 1),
        CalendarUnit::Quarter => (Unit::Month, 3),
        CalendarUnit::Year => (Unit::Year, 1),
    };
    DisplayLimit { permits, multiplier: u64::from(spec.units()).saturating_mul(units), unit }
}

/// Returns the limit as TOML.
pub(super) fn to_toml(window: &FixedWindow) -> Option<String> {
    let spec: CalendarSpec = window.calendar()?.text().parse().ok()?;
    let quoted = |text: &str| Toml::String(text.to_owned()).to_string();
    let (permits, per, every) = (window.permits(), spec.unit().name(), spec.units());
    let (zone, anchor) = (quoted(spec.zone()), quoted(&spec.anchor()));
    Some(format!(
        "{{ permits = {permits}, per = \"{per}\", zone = {zone}, anchor = {anchor}, every = {every} }}"
    ))
}

/// Returns an instant, in nanoseconds since 1970, as the zone's local time with its offset, by
/// RFC 3339.
#[must_use]
pub fn local_time(calendar: &Calendar, at_ns: u64) -> String {
    let instant = Timestamp::from_nanosecond(i128::from(at_ns)).unwrap_or(Timestamp::MAX);
    let offset = Offset::from_seconds(calendar.offset_s(at_ns)).unwrap_or(Offset::UTC);
    instant.display_with_offset(offset).to_string()
}

/// Parses an instant like `2026-01-31T00:00:00Z` or `2026-01-31T00:00:00-05:00`, from 1970 to 2554.
/// Returns the nanoseconds since 1970.
///
/// # Errors
///
/// The reason for which it is none.
pub fn instant(text: &str) -> Result<u64, String> {
    let instant: Timestamp = text.parse().map_err(|error: jiff::Error| {
        format!("{error}; write an instant with its time and offset, as in 2026-01-31T00:00:00Z")
    })?;
    u64::try_from(instant.as_nanosecond())
        .map_err(|_| "it is not between the years 1970 and 2554".to_owned())
}
