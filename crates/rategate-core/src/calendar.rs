//! Calendars: the days, weeks, months or years of a zone, as the windows of a
//! [fixed window](crate::fixed_window). They have unequal lengths.
//!
//! ```text
//!   N = 3   |  ooo            |o   oo     |                  | a month in New York:
//!           +-----------------+-----------+------------------+---> time
//!        1 Mar (31 days - 1 h)   (30 days)     (31 days)       30 d 23 h in March, by its clocks
//! ```
//!
//! The limit counts. A [`Grid`] says where the borders are: it knows the zone and the calendar,
//! and the core knows neither. Instants are nanoseconds since the grid's origin, by convention the
//! year 1970 in UTC.
//!
//! # Example
//!
//! ```
//! use rategate_core::calendar::{Calendar, Grid, Window};
//! use rategate_core::fixed_window::FixedWindow;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::verdict::Verdict;
//!
//! /// Shifts of 8 and 16 hours, by a clock of hours.
//! #[derive(Debug)]
//! struct Shifts;
//!
//! impl Grid for Shifts {
//!     fn text(&self) -> &str {
//!         "shifts of 8 and 16"
//!     }
//!
//!     fn window(&self, at: u64) -> Window {
//!         let (day, is_late) = (at / 24, at % 24 >= 8);
//!         let number = day * 2 + u64::from(is_late);
//!         let start_ns = day * 24 + if is_late { 8 } else { 0 };
//!         Window { start_ns, end_ns: start_ns + if is_late { 16 } else { 8 }, number }
//!     }
//!
//!     fn start_of(&self, number: u64) -> Option<u64> {
//!         Some(number / 2 * 24 + number % 2 * 8)
//!     }
//! }
//!
//! let mut limit = Ledger::new(FixedWindow::of_calendar(1, Calendar::new(&Shifts))?, 0);
//! assert!(matches!(limit.try_acquire(7, 1)?, Verdict::Granted(_)));
//! assert!(matches!(limit.try_acquire(8, 1)?, Verdict::Granted(_)), "a border lies between");
//! let Verdict::Denied(denial) = limit.try_acquire(10, 1)? else { unreachable!() };
//! assert_eq!(denial.retry_after_ns.map(u64::from), Some(14), "until midnight");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::fmt::Debug;
use core::ptr;

/// The windows of a calendar: they follow each other without gaps from the clock's zero on.
pub trait Grid: Debug + Send + Sync {
    /// Returns the calendar's own text. Calendars with the same text have the same borders, except
    /// that the rules of a zone can change.
    fn text(&self) -> &str;

    /// Returns the window around `at_ns`: it starts then or before, and ends later.
    ///
    /// A policy calls this under locks. It must not block.
    fn window(&self, at_ns: u64) -> Window;

    /// Returns the start of the window with this number, or `None` if it lies beyond the clock.
    fn start_of(&self, number: u64) -> Option<u64>;

    /// Returns by how many seconds the zone's clocks are ahead of UTC at an instant, for those who
    /// show it. The default is 0.
    fn offset_s(&self, _at_ns: u64) -> i32 {
        0
    }
}

/// A window of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first instant.
    pub start_ns: u64,
    /// The first instant after it, or `u64::MAX` for a window that lasts to the clock's end.
    pub end_ns: u64,
    /// Its number: that of the window before it, and one. The window around zero has the number 0.
    pub number: u64,
}

/// The end of a window that lasts to the clock's end.
pub(crate) const NEVER: u64 = u64::MAX;

/// A calendar.
#[derive(Clone, Copy, Debug)]
pub struct Calendar {
    /// The digest of the calendar's text.
    digest: u64,
    /// Absent in a calendar that was saved, which does not say where the borders are.
    grid: Option<&'static dyn Grid>,
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// The bits of a digest, which a number of JSON or Lua can hold.
const DIGEST_BITS: u32 = 52;

/// Returns an FNV digest of a text, by bytes.
fn digest_of(text: &str) -> u64 {
    let digest = text
        .bytes()
        .fold(FNV_START, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (digest ^ digest >> DIGEST_BITS) & ((1 << DIGEST_BITS) - 1)
}

impl Window {
    /// Returns the length in nanoseconds.
    #[must_use]
    pub const fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

impl Calendar {
    /// Creates a calendar of these windows.
    #[must_use]
    pub fn new(grid: &'static dyn Grid) -> Self {
        Self { digest: digest_of(grid.text()), grid: Some(grid) }
    }

    /// Returns the calendar's own text. It is empty for one that was saved.
    #[must_use]
    pub fn text(&self) -> &'static str {
        self.grid.map_or("", Grid::text)
    }

    /// Returns a digest of the calendar's own text, by which a store tells calendars apart: 52 bits.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the border that comes `later` borders after the one at `border_ns`, or `None` if it
    /// lies beyond the clock.
    #[must_use]
    pub fn later_border(&self, border_ns: u64, later: u64) -> Option<u64> {
        match later {
            0 => Some(border_ns),
            _ => self.grid?.start_of(self.window(border_ns).number.checked_add(later)?),
        }
    }

    /// Returns the window around `at_ns`.
    ///
    /// A calendar that was saved has one window for all time, so that a limit never
    /// grants too much.
    #[must_use]
    pub fn window(&self, at_ns: u64) -> Window {
        let all = Window { start_ns: 0, end_ns: NEVER, number: 0 };
        let window = self.grid.map_or(all, |grid| grid.window(at_ns));
        // A grid with an error stays a grid: the instant is in its window.
        let end_ns = window.end_ns.max(at_ns.saturating_add(1));
        Window { start_ns: window.start_ns.min(at_ns), end_ns, ..window }
    }

    /// Returns by how many seconds the zone's clocks are ahead of UTC at an instant.
    #[must_use]
    pub fn offset_s(&self, at_ns: u64) -> i32 {
        self.grid.map_or(0, |grid| grid.offset_s(at_ns))
    }

    /// Returns `true` if the borders are known.
    pub(crate) const fn is_known(&self) -> bool {
        self.grid.is_some()
    }

    /// Returns this calendar with the borders of another, if its own are not known.
    pub(crate) fn known_as(self, other: &Self) -> Self {
        Self { grid: self.grid.or(other.grid), ..self }
    }
}

/// A calendar is saved as its digest. No borders follow from it without a zone.
#[cfg(feature = "serde")]
impl serde::Serialize for Calendar {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.digest.serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Calendar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(|digest| Self { digest, grid: None })
    }
}

/// Calendars are equal if they are the same grid. One with the same text and newer rules of its
/// zone differs, so that it can be put into force.
impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
            && match (self.grid, other.grid) {
                (Some(own), Some(other)) => ptr::addr_eq(own, other),
                (None, None) => true,
                _ => false,
            }
    }
}

impl Eq for Calendar {}
