//! Lease configs, and the conversion of a length between clocks whose rates differ slightly.

use core::error::Error;
use core::fmt;
use core::num::NonZeroU64;

/// The whole of a quantity, in parts per million.
const WHOLE_PPM: u64 = 1_000_000;

/// The largest error of a clock's rate that a lease config can allow for.
pub const MAX_DRIFT_PPM: u32 = 500_000;

/// The lease config by which a node borrows permits from a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    length_ns: NonZeroU64,
    usable_ns: NonZeroU64,
    max_units: NonZeroU64,
    drift_ppm: u32,
    pause_ns: u64,
    max_pause_ns: u64,
}

impl LeaseConfig {
    /// Returns a config of leases of `length_ns`, with at most `max_units` at one node at a
    /// time.
    ///
    /// Of the node's clock and the store's, neither gains on the other more than `drift_ppm`
    /// parts in a million.
    ///
    /// # Errors
    ///
    /// [`NodeConfigError`].
    pub fn new(
        length_ns: NonZeroU64,
        max_units: NonZeroU64,
        drift_ppm: u32,
    ) -> Result<Self, NodeConfigError> {
        if drift_ppm > MAX_DRIFT_PPM {
            return Err(NodeConfigError::Drift);
        }
        let usable_ns = NonZeroU64::new(at_least_ns(length_ns.get(), drift_ppm));
        let usable_ns = usable_ns.ok_or(NodeConfigError::TooShort)?;
        Ok(Self { length_ns, usable_ns, max_units, drift_ppm, pause_ns: 0, max_pause_ns: 0 })
    }

    /// Sets the pause after a reply that brought less than requested, or longer if the store says
    /// so.
    ///
    /// Calls are denied meanwhile. Without a pause, the node sends a request for each permit that
    /// a busy limit earns. With it, one request covers all permits earned in a pause, as long as
    /// the limit does not reach its burst in that time.
    #[must_use]
    pub const fn with_pause_ns(self, pause_ns: u64) -> Self {
        Self { pause_ns, max_pause_ns: pause_ns, ..self }
    }

    /// Doubles the pause with each reply in a row that brought less than requested, up to
    /// `max_pause_ns`.
    ///
    /// The pause is at most a lease. A node that is denied again and again sends fewer and fewer
    /// requests. Each debit that brings all takes one doubling back. The permits that the limit
    /// earns in the longest pause must fit its burst, or the excess is lost.
    #[must_use]
    pub const fn with_max_pause_ns(self, max_pause_ns: u64) -> Self {
        let max_pause_ns = if max_pause_ns < self.pause_ns { self.pause_ns } else { max_pause_ns };
        Self { max_pause_ns, ..self }
    }

    /// Returns the pause after `answers` replies in a row that brought too little.
    #[must_use]
    pub fn pause_after_ns(&self, answers: u32) -> u64 {
        let doubled = 1_u64.checked_shl(answers.saturating_sub(1)).unwrap_or(u64::MAX);
        self.pause_ns.saturating_mul(doubled).min(self.max_pause_ns)
    }

    /// Returns the pause after one reply that brought too little.
    #[must_use]
    pub const fn pause_ns(&self) -> u64 {
        self.pause_ns
    }

    /// Returns the length of a lease on the store's clock.
    #[must_use]
    pub const fn length_ns(&self) -> NonZeroU64 {
        self.length_ns
    }

    /// Returns the time for which a node uses a lease, on its own clock, from sending the
    /// request.
    ///
    /// However slow the node's clock is within the drift, the lease's length is not over by then.
    #[must_use]
    pub const fn usable_ns(&self) -> NonZeroU64 {
        self.usable_ns
    }

    /// Returns the maximum number of permits that one node has at a time.
    #[must_use]
    pub const fn max_units(&self) -> NonZeroU64 {
        self.max_units
    }

    /// Returns the maximum difference between the rates of two clocks, in parts per million.
    #[must_use]
    pub const fn drift_ppm(&self) -> u32 {
        self.drift_ppm
    }
}

/// Returns the minimum time that passes on another clock while `length_ns` passes on one.
pub(super) fn at_least_ns(length_ns: u64, drift_ppm: u32) -> u64 {
    scaled(length_ns, WHOLE_PPM.saturating_sub(drift_ppm.into()), false)
}

/// Returns the maximum time that passes on another clock while `length_ns` passes on one.
pub(super) fn at_most_ns(length_ns: u64, drift_ppm: u32) -> u64 {
    scaled(length_ns, WHOLE_PPM.saturating_add(drift_ppm.into()), true)
}

fn scaled(length_ns: u64, ppm: u64, is_up: bool) -> u64 {
    // The product of two factors of 64 bits fits.
    let parts = u128::from(length_ns).wrapping_mul(ppm.into());
    let whole = u128::from(WHOLE_PPM);
    let scaled = if is_up { Some(parts.div_ceil(whole)) } else { parts.checked_div(whole) };
    scaled.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(u64::MAX)
}

/// An invalid lease config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeConfigError {
    /// The drift exceeds [`MAX_DRIFT_PPM`].
    Drift,
    /// The length leaves no usable time once the drift is subtracted.
    TooShort,
}

impl fmt::Display for NodeConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drift => write!(f, "clock drift exceeds {MAX_DRIFT_PPM} ppm"),
            Self::TooShort => {
                f.write_str("the clock drift uses up the whole length; use at least 2ns")
            }
        }
    }
}

impl Error for NodeConfigError {}

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
