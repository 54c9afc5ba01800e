//! Grants that come back or are released, each once and by their own limiter.

use std::error::Error;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of a grant: which limiter it is of, and how much of it has come back.
///
/// A limit remembers no single grants, so the object that a caller has of a grant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The [id](crate::Limiter::id) of the limiter, or of the key; 0 in a copy.
    pub limiter: u64,
    /// The permits that have come back; all there can be once the grant is released.
    pub returned: u64,
}

/// The reason for which a grant cannot be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnError {
    /// The grant is of another limiter, or of another key of a table.
    OtherLimiter,
    /// The grant is a copy, whose original may have been returned.
    Copy,
    /// More was to come back than the rest of the grant.
    Returned {
        /// The permits that were to come back.
        permits: u64,
        /// The permits of the grant that have not.
        left: u64,
    },
    /// The grant has been released.
    Ended,
}

impl Receipt {
    const ENDED: u64 = u64::MAX;

    /// Creates the receipt of a new grant.
    #[must_use]
    pub const fn new(limiter: u64) -> Self {
        Self { limiter, returned: 0 }
    }

    /// Brings back `permits` of a grant of `granted`, by a call that returns how many came back.
    ///
    /// # Errors
    ///
    /// [`ReturnError`]; the call is not made then.
    pub fn refund<E>(
        &mut self,
        limiter: u64,
        granted: u64,
        permits: u64,
        refund: impl FnOnce() -> Result<u64, E>,
    ) -> Result<Result<u64, E>, ReturnError> {
        self.check(limiter)?;
        let left = granted.saturating_sub(self.returned);
        if permits > left {
            return Err(ReturnError::Returned { permits, left });
        }
        let back = refund();
        if let Ok(back) = back {
            self.returned = self.returned.saturating_add(back);
        }
        Ok(back)
    }

    /// Releases a whole grant, by a call that does.
    ///
    /// # Errors
    ///
    /// [`ReturnError`]; the call is not made then. If the call fails, the grant stays as it is.
    pub fn end<T, E>(
        &mut self,
        limiter: u64,
        end: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, ReturnError> {
        self.check(limiter)?;
        if self.returned > 0 {
            return Err(ReturnError::Ended);
        }
        let ended = end();
        if ended.is_ok() {
            self.returned = Self::ENDED;
        }
        Ok(ended)
    }

    fn check(&self, limiter: u64) -> Result<(), ReturnError> {
        match self.limiter {
            0 => Err(ReturnError::Copy),
            own if own == limiter => Ok(()),
            _ => Err(ReturnError::OtherLimiter),
        }
    }
}

impl fmt::Display for ReturnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherLimiter => f.write_str(
                "the grant is of another limiter or key; only the one that granted it takes it back",
            ),
            Self::Copy => f.write_str(
                "the grant is a copy, such as of a pickle; only what the limiter returned comes back",
            ),
            Self::Returned { permits, left } => write!(
                f,
                "{permits} permits of the grant cannot come back: {left} are left of it, and each \
                 comes back once"
            ),
            Self::Ended => f.write_str(
                "the grant has been released; it is released once",
            ),
        }
    }
}

impl Error for ReturnError {}

/// Returns the number of a key's limiter, of the number of its table.
pub(crate) fn id_of_key(table: u64, key: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (table, key).hash(&mut hasher);
    hasher.finish()
}

/// Returns a number that no other limiter of this process has. Never 0.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
