//! Charges of what has been used already, and the debt that they leave.
//!
//! The cost of a page, of a query or of a model's reply is known when it is done. A charge books
//! it whether it fits or not. What exceeds the limit is a *debt*: until it has ended, no try
//! passes.
//!
//! ```text
//!   N = 3     used   3 |          x                      charged 4 while 1 was left
//!                    2 |    x          debt 2:           every try is denied
//!                    1 |  x            it ends with the window, as its permits leave the log,
//!                    0 +------------+  or by later windows (carried), or as the bucket fills
//! ```
//!
//! # Contract
//!
//! * **Never refused.** A charge is booked in full. What would exceed [the bound on
//!   debts](Debt::at_most), or what the state can count, is forgiven, and the outcome counts it.
//! * **In debt** tries and reservations are denied, with the exact instant at which they would
//!   pass. Refunds and further charges go on.
//! * **Full is no debt.** A limit is in debt when *more* than it allows has been used.
//! * **Bound.** With charges of at most `U` permits beyond what was left, the effects in any
//!   window of length `W` are at most `C(W) + U` (docs/theory.md, section 2.7).
//! * **End.** A token bucket earns a debt back at its rate, always. In a window or a log a debt
//!   ends as all use does (forgotten), or is paid by later windows (carried): see [`Debt`]. A
//!   schedule moves on by what was charged, and a log that carries a debt holds its parts for
//!   later starts, as promises that no caller waits for.

use core::time::Duration;

use crate::span::whole_ns;

/// The way in which a debt ends, and the bound on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Debt {
    is_carried: bool,
    max_ns: u64,
}

impl Debt {
    /// A debt that ends with its window, or as its permits leave the log. The default.
    pub const FORGOTTEN: Self = Self { is_carried: false, max_ns: u64::MAX };
    /// A debt that is paid by later windows: each of them starts with what is still owed.
    pub const CARRIED: Self = Self { is_carried: true, max_ns: u64::MAX };

    /// Bounds the time that later calls have to wait for a debt alone. What would exceed it is
    /// forgiven.
    ///
    /// A forgotten debt of a window or a log ends by itself and has no other bound.
    #[must_use]
    pub const fn at_most(self, max: Duration) -> Self {
        Self { max_ns: whole_ns(max), ..self }
    }

    /// Returns the terms as a word, for callers that change them while others read.
    ///
    /// Of an odd number of nanoseconds, one is lost.
    #[must_use]
    pub const fn bits(self) -> u64 {
        (self.max_ns & !1) | (if self.is_carried { 1 } else { 0 })
    }

    /// Returns the terms from their [bits](Self::bits).
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        let max_ns = if bits | 1 == u64::MAX { u64::MAX } else { bits & !1 };
        Self { is_carried: bits & 1 == 1, max_ns }
    }

    /// Returns `true` if later windows pay the debt.
    #[must_use]
    pub const fn is_carried(self) -> bool {
        self.is_carried
    }

    /// Returns the longest time that a debt lasts, in nanoseconds.
    #[must_use]
    pub const fn max_ns(self) -> u64 {
        self.max_ns
    }
}

impl Default for Debt {
    fn default() -> Self {
        Self::FORGOTTEN
    }
}

/// A charge as a policy receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The instant of the charge.
    pub now_ns: u64,
    /// The number of permits used.
    pub permits: u64,
    /// The way in which a debt ends.
    pub debt: Debt,
}

/// The outcome of a charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// The permits booked.
    pub booked: u64,
    /// The permits not booked, because a debt has a bound or the state can count no more.
    pub forgiven: u64,
    /// The permits by which the limit is exceeded after the charge. Zero if a try for as many
    /// would have passed.
    pub debt: u64,
}

impl Charged {
    /// Returns the outcome of a charge of `permits`, of which `booked` were, with `debt` after it.
    pub(crate) const fn of(permits: u64, booked: u64, debt: u64) -> Self {
        Self { booked, forgiven: permits.saturating_sub(booked), debt }
    }

    /// Returns the outcome of a charge of several limits together: the largest debt, and the
    /// permits that all of them booked.
    pub(crate) const fn and(self, other: Self) -> Self {
        const fn max(a: u64, b: u64) -> u64 {
            if a > b { a } else { b }
        }
        let all = self.booked.saturating_add(self.forgiven);
        let forgiven = max(self.forgiven, other.forgiven);
        Self::of(all, all.saturating_sub(forgiven), max(self.debt, other.debt))
    }
}
