//! On which terms permits are lent, and how a length on one clock is brought to another whose rate is not quite
//! the same.

use core::error::Error;
use core::fmt;
use core::num::NonZeroU64;

/// All of something, in parts per million.
const WHOLE_PPM: u64 = 1_000_000;

/// The largest error of a clock's rate that terms can allow for.
pub const MAX_DRIFT_PPM: u32 = 500_000;

/// On which terms a node borrows permits from a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    length_ns: NonZeroU64,
    usable_ns: NonZeroU64,
    most_units: NonZeroU64,
    drift_ppm: u32,
    pause_ns: u64,
    longest_pause_ns: u64,
}

impl Terms {
    /// Permits are lent for `length_ns`, at most `most_units` to one node at a time; of the node's clock and
    /// the store's, neither gains on the other more than `drift_ppm` parts in a million.
    ///
    /// # Errors
    ///
    /// [`TermsError`].
    pub fn new(
        length_ns: NonZeroU64,
        most_units: NonZeroU64,
        drift_ppm: u32,
    ) -> Result<Self, TermsError> {
        if drift_ppm > MAX_DRIFT_PPM {
            return Err(TermsError::Drift);
        }
        let usable_ns = NonZeroU64::new(at_least_ns(length_ns.get(), drift_ppm));
        let usable_ns = usable_ns.ok_or(TermsError::TooShort)?;
        Ok(Self { length_ns, usable_ns, most_units, drift_ppm, pause_ns: 0, longest_pause_ns: 0 })
    }

    /// A store that had less than was asked for is left alone for `pause_ns`, or longer if it says so: calls are denied
    /// meanwhile. Without it, a limit that is in demand is asked again for each permit that it earns; with it,
    /// once for all that it earns in a pause, as long as the limit does not reach its burst in that time.
    #[must_use]
    pub const fn with_pause_ns(self, pause_ns: u64) -> Self {
        Self { pause_ns, longest_pause_ns: pause_ns, ..self }
    }

    /// Doubles the pause with each answer in a row that brought less than was asked for, up to `longest_pause_ns`, and a
    /// lease at most: a node that goes on being denied asks less and less. A debit that brings all begins anew. What the
    /// limit earns in the longest pause has to fit its burst, or the rest of it is lost.
    #[must_use]
    pub const fn with_longest_pause_ns(self, longest_pause_ns: u64) -> Self {
        let longest_pause_ns =
            if longest_pause_ns < self.pause_ns { self.pause_ns } else { longest_pause_ns };
        Self { longest_pause_ns, ..self }
    }

    /// For how long a store is left alone after so many answers in a row that brought too little.
    #[must_use]
    pub fn pause_after_ns(&self, answers: u32) -> u64 {
        let doubled = 1_u64.checked_shl(answers.saturating_sub(1)).unwrap_or(u64::MAX);
        self.pause_ns.saturating_mul(doubled).min(self.longest_pause_ns)
    }

    /// For how long a store is left alone that had too little.
    #[must_use]
    pub const fn pause_ns(&self) -> u64 {
        self.pause_ns
    }

    /// For how long a lease holds on the store's clock.
    #[must_use]
    pub const fn length_ns(&self) -> NonZeroU64 {
        self.length_ns
    }

    /// For how long a node uses it, on its own clock, from the instant it sent the question. However slowly the
    /// node's clock goes, the lease's length is not over by then.
    #[must_use]
    pub const fn usable_ns(&self) -> NonZeroU64 {
        self.usable_ns
    }

    /// The most permits that one node has at a time.
    #[must_use]
    pub const fn most_units(&self) -> NonZeroU64 {
        self.most_units
    }

    /// By how much the rates of two clocks may differ, in parts per million.
    #[must_use]
    pub const fn drift_ppm(&self) -> u32 {
        self.drift_ppm
    }
}

/// While a length passes on one clock, at least this much passes on another.
pub(super) fn at_least_ns(length_ns: u64, drift_ppm: u32) -> u64 {
    scaled(length_ns, WHOLE_PPM.saturating_sub(drift_ppm.into()), false)
}

/// While a length passes on one clock, at most this much passes on another.
pub(super) fn at_most_ns(length_ns: u64, drift_ppm: u32) -> u64 {
    scaled(length_ns, WHOLE_PPM.saturating_add(drift_ppm.into()), true)
}

fn scaled(length_ns: u64, ppm: u64, is_up: bool) -> u64 {
    // Two factors of 64 bits.
    let parts = u128::from(length_ns).wrapping_mul(ppm.into());
    let whole = u128::from(WHOLE_PPM);
    let scaled = if is_up { Some(parts.div_ceil(whole)) } else { parts.checked_div(whole) };
    scaled.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(u64::MAX)
}

/// Which terms nobody can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TermsError {
    /// Clocks that differ by more than [`MAX_DRIFT_PPM`] tell nothing.
    Drift,
    /// Nothing is left of the length once the clocks' difference is taken off.
    TooShort,
    /// A sign of life that counts no longer than until the next one: the member would lose its share each time.
    LengthWithinBeat,
}

impl fmt::Display for TermsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drift => write!(f, "clocks that differ by more than {MAX_DRIFT_PPM} ppm"),
            Self::TooShort => {
                f.write_str("a length of which the clocks' difference leaves nothing; at least 2ns")
            }
            Self::LengthWithinBeat => f.write_str(
                "a sign of life must count for longer than the time between two of them",
            ),
        }
    }
}

impl Error for TermsError {}

#[cfg(test)]
mod tests {
    use super::{at_least_ns, at_most_ns};

    #[test]
    fn rounds_to_the_side_that_grants_less() {
        assert_eq!(at_least_ns(1_000_000, 200), 999_800);
        assert_eq!(at_least_ns(999, 200), 998);
        assert_eq!(at_most_ns(999, 200), 1_000);
        assert_eq!(at_most_ns(999, 0), 999);
        assert_eq!(at_most_ns(u64::MAX, 1), u64::MAX);
    }
}
