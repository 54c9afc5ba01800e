//! Calendars: quotas of a day, a week, a month, a quarter or a year in a time zone.
//!
//! A [`CalendarSpec`] says which windows a quota has; with a number of permits it makes a
//! [`FixedWindow`](crate::FixedWindow). Its clock must show the time since 1970, as [`clock`] does.
//!
//! ```
//! use rategate::calendar::{self, CalendarSpec};
//! use rategate::{Decision, Keyed};
//!
//! let monthly = CalendarSpec::new("month", "America/New_York")?.anchored("2026-01-31T00:00")?;
//! let quota = monthly.quota(2_000_000)?;
//! let tokens: Keyed<str, _> = Keyed::with_clock(quota, Default::default(), calendar::clock());
//! assert!(matches!(tokens.try_acquire("tenant", 1_200)?, Decision::Granted(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contract
//!
//! * **Borders.** Border k is the anchor's local time plus k units, counted from the anchor. A day
//!   that a month lacks is its last: from 31 January come 28 February and 31 March, and from a
//!   29 February come 28 Februaries and, in leap years, 29 Februaries.
//! * **Gaps and overlaps.** A border whose local time is skipped is the first instant after the
//!   gap. One whose local time comes twice is the first of the two.
//! * **No empty windows.** Borders that fall on one instant are one, as on 30 December 2011 in
//!   Apia, a day that did not exist.
//! * **Lengths.** A day lasts as long as it does there: 23, 23.5, 24, 24.5 or 25 hours.
//! * **Bound.** A process has at most [`MAX_CALENDARS`] different calendars, which it keeps.

mod borders;
mod error;
mod grid;
mod spec;

pub use rategate_core::calendar::{Calendar, Grid, Window};

pub use self::error::CalendarError;
pub use self::spec::{CalendarSpec, Unit};
use crate::clock::{Clock as _, MonotonicClock, wall_ns};

/// The most different calendars of a process. Those with new rules of a zone count as different.
pub const MAX_CALENDARS: usize = 4_096;

/// Returns a clock that shows the nanoseconds since 1970.
///
/// It reads the wall clock when it is made, in some microseconds: a reading that the scheduler
/// interrupts is made again. Later corrections of the wall clock do not affect it, except that its
/// rate follows the system's.
#[must_use]
pub fn clock() -> MonotonicClock {
    let own = MonotonicClock::new();
    let (mut clock, mut least_ns) = (own, u64::MAX);
    for _ in 0..MAX_READINGS {
        let before_ns = own.now_ns();
        let shown_ns = wall_ns();
        let after_ns = own.now_ns();
        let took_ns = after_ns.saturating_sub(before_ns);
        if took_ns < least_ns {
            (clock, least_ns) = (own.showing(shown_ns, before_ns.midpoint(after_ns)), took_ns);
        }
        if took_ns <= EXACT_NS {
            break;
        }
    }
    clock
}

/// The time of a reading of the wall clock that is exact enough, and the maximum number of
/// readings.
const EXACT_NS: u64 = 20_000;
const MAX_READINGS: u32 = 1_000;
