//! A count in a window of a calendar, packed into a part of a word.
//!
//! ```text
//!   value   56 ................ c | c-1 .... 0       c bits count to N
//!           second of the border  | permits          the second is cut to the bits left
//! ```
//!
//! The value has the border at which its window ends, so a decision in that window needs no
//! calendar. Behind the border it does: the value decides nothing then, and the first try of each
//! window takes the policy. An unused value has the second in which it was made. It does not say
//! which window that is in, so it decides nothing either.

use core::num::NonZeroU64;

use super::{MIN_VALIDITY_NS, VALUE_BITS};
use crate::calendar::Calendar;
use crate::debt::{Charged, Debt};
use crate::fixed_window::FixedWindow;
use crate::window_debt;

const SECOND_NS: u64 = 1_000_000_000;

/// The numbers of a limit that counts until a border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Borders {
    permits: u64,
}

/// An unpacked value: the whole second at which the window ends, and the permits used in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    end_s: u64,
    used: u64,
}

impl Borders {
    /// Returns the numbers of a limit, unless it has too many permits.
    pub(crate) fn of(policy: &FixedWindow) -> Option<Self> {
        let borders = Self { permits: policy.permits() };
        let fits = borders.count_bits() <= VALUE_BITS / 2;
        (fits && borders.validity_ns() >= MIN_VALIDITY_NS).then_some(borders)
    }

    pub(super) const fn to_fields(self) -> [u64; 4] {
        [self.permits, 0, 0, 0]
    }

    #[inline]
    pub(super) const fn from_fields([permits, ..]: [u64; 4]) -> Self {
        Self { permits }
    }

    #[inline]
    const fn count_bits(self) -> u32 {
        u64::BITS.saturating_sub(self.permits.leading_zeros())
    }

    /// Returns the mask of a second's bits.
    #[inline]
    const fn second_mask(self) -> u64 {
        (1_u64 << (VALUE_BITS.saturating_sub(self.count_bits()) & 63)).wrapping_sub(1)
    }

    pub(super) const fn validity_ns(self) -> u64 {
        SECOND_NS.saturating_mul((self.second_mask() >> 3).saturating_add(1))
    }

    /// Unpacks a value that was made shortly before or after `now_ns`.
    #[inline]
    const fn count(self, value: u64, now_ns: u64) -> Count {
        let (mask, bits, second) = (self.second_mask(), self.count_bits(), now_ns / SECOND_NS);
        let used = value & (1_u64 << (bits & 63)).wrapping_sub(1);
        let ahead = (value >> (bits & 63)).wrapping_sub(second) & mask;
        // More than half of the range ahead means ago.
        let end_s = if ahead <= mask >> 1 {
            second.wrapping_add(ahead)
        } else {
            second.wrapping_sub(mask.wrapping_sub(ahead).wrapping_add(1))
        };
        Count { end_s, used }
    }

    #[inline]
    const fn value(self, Count { end_s, used }: Count) -> u64 {
        ((end_s & self.second_mask()) << (self.count_bits() & 63)) | used
    }

    /// Returns the time until the window ends; zero if it has, or nothing is used in it.
    #[inline]
    pub(super) const fn fresh_in_ns(self, value: u64, now_ns: u64) -> u64 {
        let Count { end_s, used } = self.count(value, now_ns);
        if used == 0 { 0 } else { end_s.saturating_mul(SECOND_NS).saturating_sub(now_ns) }
    }

    #[inline]
    pub(super) const fn full_at(self, now_ns: u64) -> u64 {
        self.value(Count { end_s: now_ns / SECOND_NS, used: 0 })
    }

    #[inline]
    pub(super) const fn is_full(self, value: u64, now_ns: u64) -> bool {
        let Count { end_s, used } = self.count(value, now_ns);
        // A later value of a used slot ends later. A later unused one may be of the same second.
        if used == 0 { now_ns / SECOND_NS > end_s } else { now_ns / SECOND_NS >= end_s }
    }

    pub(super) const fn full_after(self, value: u64, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.fresh_in_ns(value, now_ns))
    }

    #[inline]
    pub(super) fn decide(
        self,
        value: u64,
        now_ns: u64,
        permits: u64,
    ) -> Option<Result<u64, NonZeroU64>> {
        let available = self.permits.checked_sub(permits).filter(|_| permits > 0)?;
        let wait_ns = NonZeroU64::new(self.fresh_in_ns(value, now_ns))?;
        let used = self.count(value, now_ns).used;
        Some(match available.checked_sub(used) {
            Some(_) => Ok(value.wrapping_add(permits)),
            None => Err(wait_ns),
        })
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
        let is_in_window = self.fresh_in_ns(value, now_ns) > 0;
        (!debt.is_carried() && is_in_window).then_some(())?;
        let used = self.count(value, now_ns).used.checked_add(permits)?;
        (used < 1_u64 << (self.count_bits() & 63)).then_some(())?;
        let charged = Charged::of(permits, permits, used.saturating_sub(self.permits));
        Some((value.wrapping_add(permits), charged))
    }

    /// Returns the permits used in the window around `now_ns`.
    #[inline]
    const fn used(self, value: u64, now_ns: u64) -> u64 {
        if self.fresh_in_ns(value, now_ns) == 0 { 0 } else { self.count(value, now_ns).used }
    }

    /// Returns by how many permits the limit is exceeded.
    #[inline]
    pub(super) const fn debt(self, value: u64, now_ns: u64) -> u64 {
        self.used(value, now_ns).saturating_sub(self.permits)
    }

    #[inline]
    pub(super) const fn remaining(self, value: u64, now_ns: u64) -> u64 {
        self.permits.saturating_sub(self.used(value, now_ns))
    }

    /// Returns what an unused limit grants at once.
    #[inline]
    pub(super) const fn capacity(self) -> u64 {
        self.permits
    }

    /// Packs a count, unless its window is none of the calendar, or too long.
    pub(crate) fn pack(
        self,
        count: window_debt::Count,
        now_ns: u64,
        calendar: &Calendar,
    ) -> Option<u64> {
        let window_debt::Count { start_ns, end_ns, used } = count;
        let left_ns = end_ns.saturating_sub(now_ns);
        if used == 0 || left_ns == 0 {
            return Some(self.full_at(now_ns));
        }
        let window = calendar.window(end_ns.saturating_sub(1));
        let is_own = (window.start_ns, window.end_ns) == (start_ns, end_ns);
        let count = Count { end_s: end_ns / SECOND_NS, used };
        let value = self.value(count);
        let fits = end_ns.is_multiple_of(SECOND_NS) && left_ns <= self.validity_ns();
        (is_own && fits && self.count(value, now_ns) == count).then_some(value)
    }

    pub(crate) fn unpack(self, value: u64, now_ns: u64, calendar: &Calendar) -> window_debt::Count {
        let Count { end_s, used } = self.count(value, now_ns);
        if used == 0 {
            // An unused value does not say in which window it was made.
            return window_debt::Count { start_ns: 0, end_ns: 0, used };
        }
        let end_ns = end_s.saturating_mul(SECOND_NS);
        let start_ns = calendar.window(end_ns.saturating_sub(1)).start_ns;
        window_debt::Count { start_ns, end_ns, used }
    }
}
