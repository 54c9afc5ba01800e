//! The borders of a calendar: from the anchor's local time to instants, and back.

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp};
use rategate_core::calendar::Window;

use super::spec::{CalendarSpec, Step};

const SECOND_NS: u64 = 1_000_000_000;

/// The last year of which a transition may skip a whole day: later ones follow a yearly rule.
const LAST_LISTED: Timestamp = Timestamp::constant(4_102_444_800, 0);

/// Borders, by their number k from the anchor on.
#[derive(Debug)]
pub(super) struct Borders {
    zone: TimeZone,
    anchor: DateTime,
    /// The days or months from one border to the next.
    step: Step,
    /// The number of the border that begins the window around 1970.
    first: i64,
    /// The numbers of the borders that fall on the same instant as the next.
    coinciding: Vec<i64>,
}

impl Borders {
    pub(super) fn new(spec: &CalendarSpec) -> Self {
        let every = i64::from(spec.every);
        let step = match spec.unit.step() {
            Step::Days(days) => Step::Days(days.saturating_mul(every)),
            Step::Months(months) => Step::Months(months.saturating_mul(every)),
        };
        let (zone, anchor) = (spec.zone.clone(), spec.anchor);
        let mut borders = Self { zone, anchor, step, first: 0, coinciding: Vec::new() };
        borders.first = borders.last_by(Timestamp::UNIX_EPOCH);
        borders.coinciding = borders.find_coinciding();
        borders
    }

    /// Returns by how many seconds the zone's clocks are ahead of UTC.
    pub(super) fn offset_s(&self, at_ns: u64) -> i32 {
        self.zone.to_offset(instant(at_ns)).seconds()
    }

    /// Returns the window around an instant.
    pub(super) fn window(&self, at_ns: u64) -> Window {
        let border = self.last_by(instant(at_ns));
        let passed = border.saturating_sub(self.first);
        let empty = self.coinciding.iter().filter(|&&number| number < border).count();
        let passed = passed.saturating_sub(i64::try_from(empty).unwrap_or(i64::MAX));
        Window {
            start_ns: on_clock(self.border(border)),
            end_ns: on_clock(self.border(border.saturating_add(1))),
            number: u64::try_from(passed).unwrap_or(0),
        }
    }

    /// Returns the start of the window with this number, if it is on the clock.
    pub(super) fn start_of(&self, number: u64) -> Option<u64> {
        let mut border = self.first.saturating_add(i64::try_from(number).ok()?);
        for &coinciding in &self.coinciding {
            if coinciding <= border {
                border = border.saturating_add(1);
            }
        }
        Some(on_clock(self.border(border))).filter(|&start_ns| start_ns < u64::MAX)
    }

    /// Returns the number of the last border that is not after `at`. Of those that coincide it is
    /// the last.
    ///
    /// It is estimated from the local date, and then corrected: by the time of the day, clamped
    /// days, gaps and overlaps it can be wrong by one or two.
    fn last_by(&self, at: Timestamp) -> i64 {
        let local = self.zone.to_datetime(at).date();
        let from = self.anchor.date();
        let mut number = match self.step {
            Step::Days(days) => days_between(from, local).div_euclid(days),
            Step::Months(months) => {
                months_of(local).saturating_sub(months_of(from)).div_euclid(months)
            }
        };
        while self.border(number) > at {
            number = number.saturating_sub(1);
        }
        while self.border(number.saturating_add(1)) <= at {
            number = number.saturating_add(1);
        }
        number
    }

    /// Returns the instant of a border.
    fn border(&self, number: i64) -> Timestamp {
        let date = match self.step {
            Step::Days(days) => add_days(self.anchor.date(), number.saturating_mul(days)),
            Step::Months(months) => add_months(self.anchor.date(), number.saturating_mul(months)),
        };
        date.map_or(Timestamp::MAX, |date| self.first_instant(date.to_datetime(self.anchor.time())))
    }

    /// Returns the first instant at which the zone's clocks show a local time or a later one.
    fn first_instant(&self, local: DateTime) -> Timestamp {
        let ambiguous = self.zone.to_ambiguous_timestamp(local);
        let (before, after) = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset }
            | AmbiguousOffset::Fold { before: offset, .. } => {
                return offset.to_timestamp(local).unwrap_or(Timestamp::MAX);
            }
            AmbiguousOffset::Gap { before, after } => (before, after),
        };
        // The gap ends between the two instants that the offsets on its sides give, and both its
        // sides are within a day or two of that.
        let Ok(latest) = before.to_timestamp(local) else { return Timestamp::MAX };
        let later = latest.saturating_add(Span::new().nanoseconds(1)).unwrap_or(Timestamp::MAX);
        let is_end = |transition: &Timestamp| {
            before.to_datetime(*transition) <= local && local < after.to_datetime(*transition)
        };
        let mut transitions = self.zone.preceding(later).map(|transition| transition.timestamp());
        transitions.find(is_end).unwrap_or(latest)
    }

    /// Finds the borders that coincide with the next one: only a gap of a day or more joins two.
    fn find_coinciding(&self) -> Vec<i64> {
        let mut found = Vec::new();
        let transitions = self.zone.following(Timestamp::UNIX_EPOCH);
        for transition in transitions.map(|transition| transition.timestamp()) {
            if transition > LAST_LISTED {
                break;
            }
            let mut border = self.last_by(transition);
            let mut at_once = Vec::new();
            while self.border(border.saturating_sub(1)) == self.border(border) {
                border = border.saturating_sub(1);
                at_once.push(border);
            }
            found.extend(at_once.into_iter().rev());
        }
        found.dedup();
        found
    }
}

/// Returns an instant of the core's clock.
fn instant(at_ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(at_ns)).unwrap_or(Timestamp::MAX)
}

/// Returns an instant in nanoseconds since 1970, or the end of the clock on which it lies.
fn on_clock(instant: Timestamp) -> u64 {
    match u64::try_from(instant.as_second()) {
        Ok(seconds) => seconds.saturating_mul(SECOND_NS),
        Err(_) => 0,
    }
}

fn days_between(from: Date, to: Date) -> i64 {
    i64::from(to.since(from).map_or(0, |span| span.get_days()))
}

fn months_of(date: Date) -> i64 {
    i64::from(date.year()).saturating_mul(12).saturating_add(i64::from(date.month()))
}

fn add_days(date: Date, days: i64) -> Option<Date> {
    date.checked_add(Span::new().try_days(days).ok()?).ok()
}

/// Returns the date some months later, or the month's last day if it has no such day.
fn add_months(date: Date, months: i64) -> Option<Date> {
    date.checked_add(Span::new().try_months(months).ok()?).ok()
}
