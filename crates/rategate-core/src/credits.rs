//! The permits of a window, and the credits that windows leave to later ones.
//!
//! A window that is not used up leaves the rest to the next one, as far as the credits go. So a
//! window is a bucket that is filled at its borders alone: it holds N and the credits, and each
//! border brings N.
//!
//! ```text
//!   N = 5, credits 3       ooo|  ooooooo|ooooo o|      3, 7, 5 and 1 in a row of windows
//!                    +--------+---------+-------+---> time
//!   left           8 |   5  8 |   1   6 | 1   5 |      at most 5 + 3 in the first of them
//! ```
//!
//! # Contract
//!
//! * **Bound.** Any k windows in a row grant at most k N and the credits (docs/theory.md,
//!   section 12).
//! * **As much as that.** What stays within this bound for every row that ends now is granted.
//! * **Fresh.** A limit that was never used has all its credits, as has one that has recovered:
//!   so a table may evict its key.
//! * **None.** Without credits each window stands alone.

use core::num::NonZeroU64;

use crate::debt::Debt;
use crate::error::LimitError;

/// The permits that each window brings, and the maximum that earlier ones leave to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    permits: NonZeroU64,
    credits: u64,
}

impl Allowance {
    pub(crate) const fn new(permits: NonZeroU64) -> Self {
        Self { permits, credits: 0 }
    }

    /// Returns the allowance with credits of at most its permits, which is what a window can leave.
    pub(crate) const fn with_credits(
        self,
        credits: u64,
        max_used: u64,
    ) -> Result<Self, LimitError> {
        let permits = self.permits.get();
        let countable = max_used.saturating_sub(permits);
        let max = if permits < countable { permits } else { countable };
        if credits > max {
            return Err(LimitError::TooManyCredits { max });
        }
        Ok(Self { credits, ..self })
    }

    /// Returns the permits that each window brings.
    pub(crate) const fn permits(self) -> u64 {
        self.permits.get()
    }

    pub(crate) const fn credits(self) -> u64 {
        self.credits
    }

    /// Returns the maximum number of permits in a window.
    pub(crate) const fn capacity(self) -> u64 {
        self.permits.get().saturating_add(self.credits)
    }

    /// Returns the permits in use `borders` later. What exceeds the capacity is forgotten at the
    /// first of them, unless it is carried.
    pub(crate) fn after(self, used: u64, is_carried: bool, borders: u64) -> u64 {
        if borders == 0 {
            return used;
        }
        let counted = if is_carried { used } else { used.min(self.capacity()) };
        counted.saturating_sub(borders.saturating_mul(self.permits.get()))
    }

    /// Returns the number of borders after which at most `available` permits are in use.
    pub(crate) fn borders_until(self, used: u64, is_carried: bool, available: u64) -> u64 {
        if used <= available {
            return 0;
        }
        let counted = if is_carried { used } else { used.min(self.capacity()) };
        counted.saturating_sub(available).div_ceil(self.permits.get()).max(1)
    }

    /// Returns the maximum number of permits that charges bring into a window of this length: a
    /// bound on carried debts is a time, at the rate of the window.
    pub(crate) fn max_used(self, debt: Debt, length_ns: u64, max_counted: u64) -> u64 {
        let max_debt = if debt.is_carried() {
            let max = u128::from(debt.max_ns()).saturating_mul(self.permits.get().into());
            let max = max.checked_div(length_ns.into()).unwrap_or(0);
            u64::try_from(max).unwrap_or(u64::MAX)
        } else {
            u64::MAX
        };
        self.capacity().saturating_add(max_debt).min(max_counted)
    }
}
