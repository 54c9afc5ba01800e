//! The calendar quota: at most N permits in each day, week, month or year of a calendar, whose
//! windows have unequal lengths.
//!
//! ```text
//!   N = 3   |  ooo            |o   oo     |                  | a month in New York:
//!           +-----------------+-----------+------------------+---> time
//!        1 Mar (31 days - 1 h)   (30 days)     (31 days)       30 d 23 h in March, by its clocks
//! ```
//!
//! The policy counts. A [`Grid`] says where the borders are: it knows the zone and the calendar,
//! and the core knows neither.
//!
//! # Contract
//!
//! * **Units.** Nanoseconds since the grid's origin, by convention the year 1970 in UTC.
//! * **Ceiling.** At most N permits in each window of the grid; in any span of time that touches
//!   k windows at most k N.
//! * **Retry.** Exact: the next border, or sooner if the request fits now. In a carried debt it may
//!   be a later border.
//! * **Clock.** Going backwards stays in the newest window; at the end of 64 bits nothing wraps.
//! * **Refund.** Exact within the grant's window, under the same numbers. Later nothing comes back.
//! * **Charge.** Counts in the window, past N too. A debt ends with its window, or, if it is
//!   carried, N of it at each border.
//! * **Change.** Under another calendar the count carries over into the window around the change.
//!   Under the same one, whose zone got new rules, the window ends where it would have, and later
//!   windows follow the new rules.
//! * **Saved.** The state has its window and can be read without the zone. A window that ends at
//!   no border of the grid by then lasts until the next one.
//! * **Cost.** 32 bytes, and two comparisons within a window. A new window asks the grid.
//!
//! # Example
//!
//! ```
//! use rategate_core::calendar::{Calendar, Grid, Window};
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
//! let mut limit = Ledger::new(Calendar::new(1, &Shifts), 0);
//! assert!(matches!(limit.try_acquire(7, 1)?, Verdict::Granted(_)));
//! assert!(matches!(limit.try_acquire(8, 1)?, Verdict::Granted(_)), "a border lies between");
//! let Verdict::Denied(denial) = limit.try_acquire(10, 1)? else { unreachable!() };
//! assert_eq!(denial.retry_after_ns.map(u64::from), Some(14), "until midnight");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::fmt::Debug;
use core::num::NonZeroU64;
use core::ptr;

use crate::debt::{Charge, Charged};
use crate::error::{LimitError, or_panic};
use crate::policy::{Policy, Taken};
use crate::portable::{Portable, Reader, WordsError, Writer, tag};
use crate::refund::Refund;
use crate::verdict::{Opening, Refusal};
use crate::window_debt::{self, Count};

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

/// A limit of at most `permits` in each window of a calendar.
#[derive(Clone, Copy, Debug)]
pub struct Calendar {
    permits: NonZeroU64,
    /// The digest of the calendar's text.
    digest: u64,
    /// Absent in a policy that was read from words, which do not say where the borders are.
    grid: Option<&'static dyn Grid>,
}

/// The count of the newest window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    start_ns: u64,
    end_ns: u64,
    used: u64,
    /// `true` if later windows pay what exceeds the limit.
    is_carried: bool,
}

/// The end of a window that lasts to the clock's end.
const NEVER: u64 = u64::MAX;

/// The maximum number of permits that charges bring into a window.
pub const MAX_CHARGED: u64 = CARRIED - 1;

/// The bit that marks the count of a carried debt where a state is kept in words.
const CARRIED: u64 = 1 << 63;

/// Returns a text in words of eight bytes, of which the last is filled up with zeros.
fn words_of(text: &str) -> impl Iterator<Item = u64> + '_ {
    let chunks = text.as_bytes().chunks(8);
    chunks.map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Returns an FNV digest with another word.
const fn digest_of(digest: u64, word: u64) -> u64 {
    (digest ^ word).wrapping_mul(0x0100_0000_01b3)
}

impl Window {
    /// Returns the length in nanoseconds.
    #[must_use]
    pub const fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

impl Calendar {
    /// Creates a limit of at most `permits` in each window of `grid`.
    ///
    /// # Panics
    ///
    /// Panics where [`try_new`](Self::try_new) fails.
    #[must_use]
    #[track_caller]
    pub fn new(permits: u64, grid: &'static dyn Grid) -> Self {
        or_panic(Self::try_new(permits, grid))
    }

    /// Creates a limit of at most `permits` in each window of `grid`.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`].
    pub fn try_new(permits: u64, grid: &'static dyn Grid) -> Result<Self, LimitError> {
        let permits = NonZeroU64::new(permits).ok_or(LimitError::ZeroPermits)?;
        let digest = words_of(grid.text()).fold(FNV_START, digest_of);
        Ok(Self { permits, digest, grid: Some(grid) })
    }

    /// Returns the maximum number of permits in a window.
    #[must_use]
    pub const fn permits(&self) -> u64 {
        self.permits.get()
    }

    /// Returns the calendar's own text. It is empty for a policy that was read from words alone.
    #[must_use]
    pub fn text(&self) -> &'static str {
        self.grid.map_or("", Grid::text)
    }

    /// Returns a policy of another number of permits in each window of the same calendar.
    ///
    /// # Errors
    ///
    /// [`LimitError::ZeroPermits`].
    pub fn with_permits(self, permits: u64) -> Result<Self, LimitError> {
        let permits = NonZeroU64::new(permits).ok_or(LimitError::ZeroPermits)?;
        Ok(Self { permits, ..self })
    }

    /// Returns a digest of the calendar's own text, by which a store tells calendars apart.
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
    /// A policy that was read from words alone has one window for all time, so never grants too
    /// much.
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

    /// Returns the permits used in the window around `at_ns`, which is the newest or a later one.
    fn used(&self, state: &State, at_ns: u64) -> u64 {
        if !state.is_over(at_ns) {
            state.used
        } else if state.used > 0 && state.is_carried {
            let later = self.window(at_ns).number.saturating_sub(self.window(state.end_ns).number);
            window_debt::after(self.permits, state.used, later.saturating_add(1))
        } else {
            0
        }
    }

    /// Returns the border at which at most `available` permits are used, or `None` if it lies
    /// beyond the clock. More than those are used in the newest window.
    fn opens_ns(&self, state: &State, available: u64) -> Option<u64> {
        let end_ns = Some(state.end_ns).filter(|&end_ns| end_ns != NEVER)?;
        let (used, is_carried) = (state.used, state.is_carried);
        let borders = window_debt::borders_until(self.permits, used, is_carried, available);
        self.later_border(end_ns, borders.saturating_sub(1))
    }

    /// Returns the state in the window around `at_ns`.
    pub(crate) fn moved_to(&self, state: &State, at_ns: u64) -> State {
        let mut state = *state;
        if self.used(&state, at_ns) == 0 {
            return State::default();
        }
        self.count(&mut state, at_ns, 0, false);
        state
    }

    /// Returns the window around `at_ns` and its count, unless later windows pay some of it.
    pub(crate) fn count_at(&self, state: &State, at_ns: u64) -> Option<Count> {
        let State { start_ns, end_ns, used, is_carried } = self.moved_to(state, at_ns);
        if used == 0 {
            let Window { start_ns, end_ns, .. } = self.window(at_ns);
            return Some(Count { start_ns, end_ns, used });
        }
        (!is_carried).then_some(Count { start_ns, end_ns, used })
    }

    /// Counts permits in the window around `at_ns`, or in the newest if that is later. A debt is
    /// carried if it was, or from now on.
    fn count(&self, state: &mut State, at_ns: u64, permits: u64, is_carried: bool) {
        let used = self.used(state, at_ns);
        let is_carried = is_carried || (state.is_carried && used > self.permits());
        if state.is_over(at_ns) {
            let Window { start_ns, end_ns, .. } = self.window(at_ns);
            (state.start_ns, state.end_ns) = (start_ns.max(state.end_ns), end_ns);
        }
        self.set_used(state, used.saturating_add(permits), is_carried);
    }

    /// Begins the window around `at_ns` with the count.
    fn begin_at(&self, state: &mut State, at_ns: u64) {
        let Window { start_ns, end_ns, .. } = self.window(at_ns);
        (state.start_ns, state.end_ns) = (start_ns, end_ns);
    }

    const fn set_used(&self, state: &mut State, used: u64, is_carried: bool) {
        state.used = used;
        state.is_carried = is_carried && used > self.permits();
    }

    /// Returns the end of the window and the count, if the window is one of the grid and the count
    /// ends with it.
    pub(crate) fn end_and_used(&self, state: &State) -> Option<(u64, u64)> {
        let State { start_ns, end_ns, used, is_carried } = *state;
        let window = self.window(end_ns.saturating_sub(1));
        let is_own = used == 0 || (window.start_ns, window.end_ns) == (start_ns, end_ns);
        (is_own && !is_carried).then_some((end_ns, used))
    }

    /// Returns the state of a count in the window that ends at `end_ns`.
    pub(crate) fn with_end(&self, end_ns: u64, used: u64) -> State {
        let start_ns = match used {
            0 => 0,
            _ => self.window(end_ns.saturating_sub(1)).start_ns,
        };
        State::of_count(Count { start_ns, end_ns, used })
    }
}

/// Calendars are equal if they are the same grid. One with the same text and newer rules of its
/// zone differs, so that it can be put into force.
impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        (self.permits, self.digest) == (other.permits, other.digest)
            && match (self.grid, other.grid) {
                (Some(own), Some(other)) => ptr::addr_eq(own, other),
                (None, None) => true,
                _ => false,
            }
    }
}

impl Eq for Calendar {}

impl State {
    /// Returns `true` if the window has ended by then. A fresh state's has.
    const fn is_over(&self, at_ns: u64) -> bool {
        self.end_ns <= at_ns && self.end_ns != NEVER
    }

    pub(crate) const fn of_count(Count { start_ns, end_ns, used }: Count) -> Self {
        if used == 0 {
            return Self { start_ns: 0, end_ns: 0, used, is_carried: false };
        }
        Self { start_ns, end_ns, used, is_carried: false }
    }

    /// Returns the begin of the newest window.
    pub(crate) const fn start_ns(&self) -> u64 {
        self.start_ns
    }

    const fn contains(&self, at_ns: u64) -> bool {
        self.start_ns <= at_ns && !self.is_over(at_ns)
    }

    /// Returns the count, marked if it is carried.
    const fn used_word(&self) -> u64 {
        if self.is_carried { self.used | CARRIED } else { self.used }
    }
}

impl Policy for Calendar {
    type State = State;

    fn fresh(&self, _now_ns: u64) -> State {
        State::default()
    }

    fn opening(
        &self,
        state: &State,
        from_ns: u64,
        permits: NonZeroU64,
    ) -> Result<Opening, Refusal> {
        let Some(available) = self.permits().checked_sub(permits.get()) else {
            return Err(Refusal::exceeds(permits, self.permits()));
        };
        if self.used(state, from_ns) <= available {
            return Ok(Opening::at(from_ns));
        }
        let opens_ns = self.opens_ns(state, available);
        opens_ns.map(Opening::at).ok_or(Refusal::BeyondClock { wait_ns: NEVER })
    }

    fn take(&self, state: &mut State, grant: Taken) {
        self.count(state, grant.start_ns, grant.permits.get(), false);
    }

    fn remaining(&self, state: &State, now_ns: u64) -> u64 {
        self.permits().saturating_sub(self.used(state, now_ns))
    }

    /// Takes permits back only while the grant's window lasts. A new grid may have counted them
    /// in another.
    fn refund(&self, state: &mut State, refund: Refund) -> u64 {
        let is_current = state.contains(refund.start_ns) && state.contains(refund.now_ns);
        if refund.returned.is_none() || !is_current {
            return 0;
        }
        let permits = refund.permits.min(state.used);
        self.set_used(state, state.used.saturating_sub(permits), state.is_carried);
        permits
    }

    /// Lowers the window's count, at most to zero.
    fn credit(&self, state: &mut State, now_ns: u64, permits: u64) -> u64 {
        let back = permits.min(self.used(state, now_ns));
        if back > 0 {
            self.count(state, now_ns, 0, false);
            self.set_used(state, state.used.saturating_sub(back), state.is_carried);
        }
        back
    }

    fn charge(&self, state: &mut State, charge: Charge) -> Option<Charged> {
        let Charge { now_ns, permits, debt } = charge;
        // By the rate of this window: others have other lengths.
        let length_ns = if debt.is_carried() { self.window(now_ns).length_ns().max(1) } else { 1 };
        let max_used = window_debt::max_used(self.permits, debt, length_ns, MAX_CHARGED);
        let booked = permits.min(max_used.saturating_sub(self.used(state, now_ns)));
        if booked > 0 {
            self.count(state, now_ns, booked, debt.is_carried());
        }
        Some(Charged::of(permits, booked, self.debt(state, now_ns)))
    }

    fn debt(&self, state: &State, now_ns: u64) -> u64 {
        self.used(state, now_ns).saturating_sub(self.permits())
    }

    fn debt_ends_ns(&self, state: &State, from_ns: u64) -> Option<u64> {
        match self.debt(state, from_ns) {
            0 => Some(from_ns),
            _ => self.opens_ns(state, self.permits()),
        }
    }

    /// Returns the first border at which the count is zero.
    fn fresh_at_ns(&self, state: &State) -> Option<u64> {
        if state.used == 0 { Some(0) } else { self.opens_ns(state, 0) }
    }

    fn rebase(&self, state: &mut State, old: &Self, now_ns: u64) {
        // A policy that was read from words does not know its later borders.
        let old_grid = Self { grid: old.grid.or(self.grid), ..*old };
        let used = old_grid.used(state, now_ns);
        if used == 0 {
            *state = State::default();
            return;
        }
        // A clock that went back stays in the newest window.
        let now_ns = now_ns.max(state.start_ns);
        if state.is_over(now_ns) || old.digest != self.digest {
            self.begin_at(state, now_ns);
        } else if old.grid.is_none() && self.grid.is_some() {
            self.begin_at(state, state.end_ns.saturating_sub(1));
        }
        self.set_used(state, used, state.is_carried && used > old.permits());
    }
}

impl Portable for Calendar {
    fn tag(&self) -> u16 {
        tag::CALENDAR
    }

    /// Writes the permits and the calendar's text.
    fn write_numbers(&self, words: &mut Writer) {
        words.word(self.permits());
        words.word(u64::try_from(self.text().len()).unwrap_or(u64::MAX));
        words_of(self.text()).for_each(|word| words.word(word));
    }

    /// Reads the permits and the digest of the text. No borders follow from it without a zone.
    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::CALENDAR)?;
        let permits = NonZeroU64::new(words.word()?).ok_or(LimitError::ZeroPermits)?;
        let (bytes, mut digest) = (words.word()?, FNV_START);
        for _ in 0..bytes.div_ceil(8) {
            digest = digest_of(digest, words.word()?);
        }
        Ok(Self { permits, digest, grid: None })
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        let state = self.moved_to(state, words.now_ns());
        words.word(state.used_word());
        words.instant(state.start_ns.into());
        words.instant(state.end_ns.into());
    }

    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let word = words.word()?;
        let (start_ns, end_ns) = (words.instant()?.on_clock(), words.instant()?.on_clock());
        let (used, is_carried) = (word & MAX_CHARGED, word & CARRIED != 0);
        let mut state = State { start_ns, end_ns: end_ns.max(1), used, is_carried };
        if used == 0 || (state.is_over(words.since().now_ns) && !is_carried) {
            return Ok(State::default());
        }
        if self.grid.is_some() {
            self.begin_at(&mut state, end_ns.saturating_sub(1));
        }
        Ok(state)
    }
}
