//! How long a waiter whose start has come may leave its permits untaken.

/// The shortest grace period that is chosen without being asked for.
pub const MIN_GRACE_NS: u64 = 10_000_000;
/// The longest one.
pub const MAX_GRACE_NS: u64 = 60_000_000_000;

/// A grace period, as set, or a few times the largest lateness seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grace {
    set_ns: Option<u64>,
    largest_late_ns: u64,
}

impl Grace {
    /// Returns the period in force.
    pub(super) fn ns(&self) -> u64 {
        let seen_ns = self.largest_late_ns.saturating_mul(4);
        self.set_ns.unwrap_or_else(|| seen_ns.clamp(MIN_GRACE_NS, MAX_GRACE_NS))
    }

    /// Sets the period, or has it chosen again.
    pub(super) const fn set(&mut self, grace_ns: Option<u64>) {
        self.set_ns = grace_ns;
    }

    /// Notes how late a waiter took its permits. A single large lateness fades.
    pub(super) fn saw(&mut self, late_ns: u64) {
        let faded_ns = self.largest_late_ns.saturating_sub(self.largest_late_ns >> 6);
        self.largest_late_ns = faded_ns.max(late_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_follows_the_lateness_within_its_bounds() {
        let mut grace = Grace::default();
        assert_eq!(grace.ns(), MIN_GRACE_NS);
        grace.saw(20_000_000);
        assert_eq!(grace.ns(), 80_000_000);
        grace.saw(u64::MAX);
        assert_eq!(grace.ns(), MAX_GRACE_NS);
        (0..5_000).for_each(|_| grace.saw(0));
        assert_eq!(grace.ns(), MIN_GRACE_NS);
        grace.set(Some(7));
        assert_eq!(grace.ns(), 7);
    }
}
