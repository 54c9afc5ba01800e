//! The part of a limit on operations in flight that some of them may fill: load shedding by
//! priority.
//!
//! Operations of a lower priority have a smaller share. When a server is busy they are denied
//! first, and the rest of the limit is left for those of a higher one.
//!
//! ```text
//!   limit 10    whole    |==========|
//!               70 %     |=======|            denied while seven or more are in flight,
//!               30 %     |===|                of whatever priority
//! ```
//!
//! # Contract
//!
//! * **Ceiling.** A try within a share finds, itself included, no more than the share of the
//!   present limit in flight, rounded up: those of all priorities count. So one operation starts
//!   at an idle limit, however small the share.
//! * **Waiters.** Permits that are held for a waiter whose start has come count as in flight.
//! * **No waits.** A share is for tries. A caller in the wait queue waits for the whole limit.
//! * **Retry.** None: time alone cannot help. A try for more permits than its share of a limit has
//!   is denied each time, as the limit may grow; one for more than the limit could ever grant is an
//!   error.
//!
//! ```
//! use rategate_core::concurrency::Concurrency;
//! use rategate_core::ledger::Ledger;
//! use rategate_core::share::Share;
//! use rategate_core::verdict::Verdict;
//!
//! let mut limit = Ledger::new(Concurrency::new(10), 0);
//! let batch = Share::percent(30);
//! assert!(matches!(limit.try_acquire_in_share(0, 3, batch)?, Some(Verdict::Granted(_))));
//! assert!(matches!(limit.try_acquire_in_share(0, 1, batch)?, Some(Verdict::Denied(_))));
//! assert!(matches!(limit.try_acquire(0, 7)?, Verdict::Granted(_)));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::fmt;

use crate::error::LimitError;

/// A part of a limit, in whole percent.
///
/// Give those of the highest priority the [whole](Self::WHOLE) limit, and the others at least a
/// quarter. Where their share alone is reached, a limit that [follows
/// measurements](crate::adaptive) moves so that the share is what the server bears; the limit is
/// then above that, until operations of a higher priority fill it. In a share below a quarter no
/// limit grows. Rounding up favours small shares of small limits: 60 % of two is two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
#[cfg_attr(feature = "serde", serde(try_from = "u8"))]
pub struct Share(u8);

impl Share {
    /// All of a limit.
    pub const WHOLE: Self = Self(100);

    /// The share of the rate at which a slow start begins, unless another one is set.
    pub(crate) const TENTH: Self = Self(10);

    /// Creates a share of so many percent.
    ///
    /// # Panics
    ///
    /// Panics unless `1 <= percent <= 100`.
    #[must_use]
    #[track_caller]
    pub const fn percent(percent: u8) -> Self {
        match Self::try_percent(percent) {
            Ok(share) => share,
            Err(_) => panic!("a share is from 1 to 100 percent"),
        }
    }

    /// Creates a share of so many percent.
    ///
    /// # Errors
    ///
    /// [`LimitError::Share`] unless `1 <= percent <= 100`.
    pub const fn try_percent(percent: u8) -> Result<Self, LimitError> {
        if percent < 1 || percent > 100 {
            return Err(LimitError::Share);
        }
        Ok(Self(percent))
    }

    /// Returns the number of percent.
    #[must_use]
    pub const fn as_percent(self) -> u8 {
        self.0
    }

    /// Returns `true` if it is all of a limit.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.0 == Self::WHOLE.0
    }

    /// Returns the share of a limit, rounded up.
    #[must_use]
    pub fn of(self, limit: u64) -> u64 {
        let part = u128::from(limit).saturating_mul(self.0.into()).div_ceil(100);
        u64::try_from(part).unwrap_or(limit)
    }
}

/// Writes the percentage, as in `60%`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl TryFrom<u8> for Share {
    type Error = LimitError;

    fn try_from(percent: u8) -> Result<Self, LimitError> {
        Self::try_percent(percent)
    }
}
