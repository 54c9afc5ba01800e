//! A fixed window, or a log with all its permits at one grid point, packed into a part of a word.
//!
//! Both count permits in one *cell* of a grid and drop them together, some time after its begin.
//! For a window that is its end; for a grid point it is the time for which the log retains
//! permits.
//!
//! ```text
//!   value   56 ................ c | c-1 .... 0       c bits count to N
//!           number of the cell    | permits          the cell's number is cut to the bits left
//! ```
//!
//! A log with a second point does not fit until the first has left it. An unused value has the
//! cell of the instant at which it was made. A clock that goes back before that counts as in that
//! cell, so no number comes twice.

use core::num::NonZeroU64;

use super::{MIN_VALIDITY_NS, VALUE_BITS};
use crate::debt::{Charged, Debt};
use crate::fixed_window::{Anchor, FixedWindow, Windows};
use crate::sliding_log::{self, SlidingLog};
use crate::window_debt::Count;

/// The numbers of a limit that counts in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    cell_ns: NonZeroU64,
    /// The time from a cell's begin until its permits expire.
    held_ns: u64,
    permits: u64,
    /// `true` if a grant belongs to the next cell, unless it is at the begin of one.
    ///
    /// A log counts a grant as made no sooner than it was.
    counts_later: bool,
}

/// An unpacked value: the cell's whole number, and the permits used in it.
#[derive(Clone, Copy, Debug)]
struct Cell {
    number: u64,
    used: u64,
}

impl Cells {
    /// Returns the numbers of a window on the clock's own grid.
    pub(crate) fn of_window(policy: &FixedWindow) -> Option<Self> {
        let Windows::Even { period_ns, anchor: Anchor::Epoch } = policy.windows() else {
            return None;
        };
        let (held_ns, permits) = (period_ns.get(), policy.permits());
        Self { cell_ns: period_ns, held_ns, permits, counts_later: false }.validated()
    }

    /// Returns the numbers of a log on a grid.
    ///
    /// A log to the nanosecond keeps its bound for callers whose clocks disagree, where a slot knows
    /// only the latest of their readings.
    pub(crate) fn of_log(policy: &SlidingLog) -> Option<Self> {
        (policy.resolution_ns() > 1).then_some(())?;
        let (permits, held_ns) = (policy.permits(), policy.held_for_ns());
        let cell_ns = NonZeroU64::new(policy.resolution_ns())?;
        Self { cell_ns, held_ns, permits, counts_later: true }.validated()
    }

    /// Returns itself, unless its values fade too soon, or before permits expire.
    fn validated(self) -> Option<Self> {
        let fits = self.count_bits() <= VALUE_BITS / 2;
        let validity_ns = self.validity_ns();
        (fits && validity_ns >= MIN_VALIDITY_NS && validity_ns >= self.held_ns).then_some(self)
    }

    pub(super) const fn to_fields(self) -> [u64; 4] {
        let later = if self.counts_later { 1 } else { 0 };
        [self.cell_ns.get(), self.held_ns, self.permits, later]
    }

    #[inline]
    pub(super) const fn from_fields([cell_ns, held_ns, permits, later]: [u64; 4]) -> Self {
        let cell_ns = match NonZeroU64::new(cell_ns) {
            Some(cell_ns) => cell_ns,
            None => NonZeroU64::MIN,
        };
        Self { cell_ns, held_ns, permits, counts_later: later != 0 }
    }

    #[inline]
    const fn count_bits(self) -> u32 {
        u64::BITS.saturating_sub(self.permits.leading_zeros())
    }

    /// Returns the number of bits of a cell's number.
    #[inline]
    const fn number_bits(self) -> u32 {
        VALUE_BITS.saturating_sub(self.count_bits())
    }

    #[inline]
    const fn number_mask(self) -> u64 {
        (1_u64 << (self.number_bits() & 63)).wrapping_sub(1)
    }

    pub(super) const fn validity_ns(self) -> u64 {
        let cells = 1_u64 << (self.number_bits().saturating_sub(3) & 63);
        self.cell_ns.get().saturating_mul(cells)
    }

    /// Returns the cell to which a grant at `now_ns` belongs.
    #[inline]
    const fn number_at(self, now_ns: u64) -> u64 {
        if self.counts_later {
            now_ns.div_ceil(self.cell_ns.get())
        } else {
            match now_ns.checked_div(self.cell_ns.get()) {
                Some(number) => number,
                None => 0,
            }
        }
    }

    /// Unpacks a value that was made shortly before or after `now`.
    #[inline]
    const fn cell(self, value: u64, now: u64) -> Cell {
        let (mask, bits) = (self.number_mask(), self.count_bits());
        let used = value & (1_u64 << (bits & 63)).wrapping_sub(1);
        let ago = now.wrapping_sub(value >> (bits & 63)) & mask;
        // More than half of the range ago means ahead: the clock has gone back.
        let number = if ago <= mask >> 1 {
            now.wrapping_sub(ago)
        } else {
            now.wrapping_add(mask.wrapping_sub(ago).wrapping_add(1))
        };
        Cell { number, used }
    }

    #[inline]
    const fn value(self, cell: Cell) -> u64 {
        ((cell.number & self.number_mask()) << (self.count_bits() & 63)) | cell.used
    }

    /// Returns the time until a cell's permits expire; zero once they have.
    #[inline]
    fn held_for_ns(self, cell: Cell, now_ns: u64) -> u64 {
        let begin_ns = cell.number.saturating_mul(self.cell_ns.get());
        let end_ns = u128::from(begin_ns).saturating_add(self.held_ns.into());
        let left_ns = end_ns.saturating_sub(now_ns.into());
        u64::try_from(left_ns).unwrap_or(u64::MAX)
    }

    #[inline]
    pub(super) const fn full_at(self, now_ns: u64) -> u64 {
        self.value(Cell { number: self.number_at(now_ns), used: 0 })
    }

    #[inline]
    pub(super) fn is_full(self, value: u64, now_ns: u64) -> bool {
        let now = self.number_at(now_ns);
        let cell = self.cell(value, now);
        // No thread writes the number of a cell that is over.
        now > cell.number && (cell.used == 0 || self.held_for_ns(cell, now_ns) == 0)
    }

    pub(super) fn full_after(self, value: u64, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.fresh_in_ns(value, now_ns))
    }

    /// Returns the time until all permits have expired.
    #[inline]
    pub(super) fn fresh_in_ns(self, value: u64, now_ns: u64) -> u64 {
        let cell = self.cell(value, self.number_at(now_ns));
        if cell.used == 0 { 0 } else { self.held_for_ns(cell, now_ns) }
    }

    #[inline]
    pub(super) fn decide(
        self,
        value: u64,
        now_ns: u64,
        permits: u64,
    ) -> Option<Result<u64, NonZeroU64>> {
        let available = self.permits.checked_sub(permits).filter(|_| permits > 0)?;
        let now = self.number_at(now_ns);
        let cell = self.cell(value, now);
        let held_for_ns = if cell.used == 0 { 0 } else { self.held_for_ns(cell, now_ns) };
        let next = match NonZeroU64::new(held_for_ns) {
            None => Cell { number: now.max(cell.number), used: permits },
            Some(wait_ns) if cell.used > available => return Some(Err(wait_ns)),
            // A second cell does not fit.
            Some(_) if now > cell.number => return None,
            Some(_) => Cell { used: cell.used.wrapping_add(permits), ..cell },
        };
        Some(Ok(self.value(next)))
    }

    /// Returns the value behind a charge, and its outcome, if the count fits. A debt that later
    /// windows pay does not.
    #[inline]
    pub(super) fn charge(
        self,
        value: u64,
        now_ns: u64,
        permits: u64,
        debt: Debt,
    ) -> Option<(u64, Charged)> {
        (!debt.is_carried()).then_some(())?;
        let now = self.number_at(now_ns);
        let cell = self.cell(value, now);
        let is_held = cell.used > 0 && self.held_for_ns(cell, now_ns) > 0;
        // A second cell does not fit.
        (!is_held || now <= cell.number).then_some(())?;
        let used = if is_held { cell.used } else { 0 }.checked_add(permits)?;
        (used < 1_u64 << (self.count_bits() & 63)).then_some(())?;
        let value = self.value(Cell { number: now.max(cell.number), used });
        Some((value, Charged::of(permits, permits, used.saturating_sub(self.permits))))
    }

    /// Returns by how many permits the limit is exceeded.
    #[inline]
    pub(super) fn debt(self, value: u64, now_ns: u64) -> u64 {
        let cell = self.cell(value, self.number_at(now_ns));
        let is_over = self.held_for_ns(cell, now_ns) == 0;
        if is_over { 0 } else { cell.used.saturating_sub(self.permits) }
    }

    /// Returns `now_ns`, or the first instant of the cell if that is later.
    #[inline]
    pub(super) const fn start_ns(self, value: u64, now_ns: u64) -> u64 {
        let number = self.cell(value, self.number_at(now_ns)).number;
        let before_ns = number.saturating_sub(1).saturating_mul(self.cell_ns.get());
        let first_ns = if self.counts_later {
            before_ns.saturating_add(1)
        } else {
            number.saturating_mul(self.cell_ns.get())
        };
        if now_ns < first_ns && number > 0 { first_ns } else { now_ns }
    }

    #[inline]
    pub(super) fn remaining(self, value: u64, now_ns: u64) -> u64 {
        let cell = self.cell(value, self.number_at(now_ns));
        let is_over = self.held_for_ns(cell, now_ns) == 0;
        if is_over { self.permits } else { self.permits.saturating_sub(cell.used) }
    }

    /// Returns what an unused limit grants at once.
    #[inline]
    pub(super) const fn capacity(self) -> u64 {
        self.permits
    }

    fn pack(self, cell: Cell, now_ns: u64) -> Option<u64> {
        if cell.used == 0 || self.held_for_ns(cell, now_ns) == 0 {
            return Some(self.full_at(now_ns));
        }
        // State left by other numbers may be more than fits, or further away.
        let value = self.value(cell);
        let again = self.cell(value, self.number_at(now_ns));
        (again.used == cell.used && again.number == cell.number).then_some(value)
    }

    pub(crate) fn pack_window(self, count: Count, now_ns: u64) -> Option<u64> {
        self.pack(Cell { number: count.start_ns / self.cell_ns, used: count.used }, now_ns)
    }

    pub(crate) fn unpack_window(self, value: u64, now_ns: u64) -> Count {
        let Cell { number, used } = self.cell(value, self.number_at(now_ns));
        let start_ns = number.saturating_mul(self.cell_ns.get());
        Count { start_ns, end_ns: start_ns.saturating_add(self.cell_ns.get()), used }
    }

    pub(crate) fn pack_log(
        self,
        state: &sliding_log::State,
        now_ns: u64,
        policy: &SlidingLog,
    ) -> Option<u64> {
        let (number, used) = policy.only_cell(state, now_ns)?;
        self.pack(Cell { number, used }, now_ns)
    }

    pub(crate) fn unpack_log(self, value: u64, now_ns: u64) -> sliding_log::State {
        let Cell { number, used } = self.cell(value, self.number_at(now_ns));
        SlidingLog::with_cell(number, used)
    }
}
