//! The bounds on what a reservation holds of a rule, and for how long.

use std::time::Duration;

/// The bounds on the reservations of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldBounds {
    /// The time of a reservation that states none.
    pub ttl: Duration,
    /// The maximum time of a reservation.
    pub max_ttl: Duration,
    /// The share of the limit, of 10 000, that one reservation holds at most. An estimate beyond it
    /// is cut to it.
    pub max_held: Option<u16>,
}

impl HoldBounds {
    /// The bounds of a rule that states none.
    pub const DEFAULT: Self =
        Self { ttl: Duration::from_secs(60), max_ttl: Duration::from_secs(600), max_held: None };

    /// The maximum of a rule's own maximum time.
    pub const MAX_TTL: Duration = Duration::from_secs(86_400);

    /// Returns the part of an estimate that one reservation holds of a limit: at least one permit
    /// of an estimate of any.
    #[must_use]
    pub fn cut(&self, estimate: u64, capacity: u64) -> u64 {
        let Some(share) = self.max_held else { return estimate };
        let most = u128::from(capacity).saturating_mul(share.into()) / 10_000;
        // A share of a limit is never more than the limit.
        estimate.min(u64::try_from(most).unwrap_or(u64::MAX).max(1))
    }
}

impl Default for HoldBounds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_cut_to_a_share_rounded_down_and_never_to_nothing() {
        let cut = |share, estimate, capacity| {
            HoldBounds { max_held: Some(share), ..HoldBounds::DEFAULT }.cut(estimate, capacity)
        };
        assert_eq!(HoldBounds::DEFAULT.cut(u64::MAX, 1), u64::MAX);
        assert_eq!([cut(5_000, 800, 1_000), cut(5_000, 500, 1_000)], [500, 500]);
        assert_eq!([cut(5_000, 499, 1_000), cut(5_000, 800, 999)], [499, 499]);
        assert_eq!([cut(1, 5, 9_999), cut(1, 0, 9_999), cut(1, 5, 20_000)], [1, 0, 2]);
        let max = u64::MAX;
        assert_eq!([cut(10_000, max, max), cut(5_000, max, max)], [max, max / 2]);
    }
}
