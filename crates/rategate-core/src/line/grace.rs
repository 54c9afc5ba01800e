//! The grace period: how long a waiter whose start has come may leave its permits untaken.

/// The shortest grace period that the queue chooses.
pub const MIN_GRACE_NS: u64 = 10_000_000;
/// The longest grace period that the queue chooses.
pub const MAX_GRACE_NS: u64 = 60_000_000_000;

/// A grace period, as set, or a few times the largest lateness seen.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "all are lengths, and wear their unit")]
pub(super) struct Grace {
    set_ns: Option<u64>,
    largest_late_ns: u64,
    /// The largest lateness of waiters that came after their provisional grants were withdrawn.
    withdrawn_late_ns: u64,
}

impl Grace {
    /// Returns the period in force.
    ///
    /// A set period is lengthened for waiters that came too late for it. Otherwise waiters that
    /// are all later than the period would take the provisional grant from each other for ever.
    pub(super) fn ns(&self) -> u64 {
        let chosen_ns = |late_ns: u64, min_ns: u64| late_ns.saturating_mul(4).max(min_ns);
        match self.set_ns {
            Some(set_ns) => chosen_ns(self.withdrawn_late_ns, set_ns),
            None => chosen_ns(self.largest_late_ns, MIN_GRACE_NS),
        }
    }

    /// Returns the time that a promise leaves for the waiters before it to be late.
    ///
    /// It is twice the largest lateness seen.
    pub(super) const fn margin_ns(&self) -> u64 {
        self.largest_late_ns.saturating_mul(2)
    }

    /// Sets the period, or lets the queue choose it again.
    pub(super) const fn set(&mut self, grace_ns: Option<u64>) {
        self.set_ns = grace_ns;
    }

    /// Records how late a waiter came for its permits.
    pub(super) fn record_lateness(&mut self, late_ns: u64) {
        self.largest_late_ns = decayed(self.largest_late_ns, late_ns);
        self.withdrawn_late_ns = decayed(self.withdrawn_late_ns, 0);
    }

    /// Records how late a waiter came whose provisional grant had been withdrawn.
    pub(super) fn record_withdrawal(&mut self, late_ns: u64) {
        self.largest_late_ns = decayed(self.largest_late_ns, late_ns);
        self.withdrawn_late_ns = decayed(self.withdrawn_late_ns, late_ns);
    }
}

/// Returns the larger of a decayed earlier lateness and a new one.
///
/// A lateness fades within some tens of waiters that are on time. No lateness counts for more
/// than the longest period.
fn decayed(largest_ns: u64, late_ns: u64) -> u64 {
    let faded_ns = largest_ns.saturating_sub(largest_ns.div_ceil(16));
    faded_ns.max(late_ns.min(MAX_GRACE_NS >> 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_follows_the_lateness_within_its_bounds() {
        let mut grace = Grace::default();
        assert_eq!(grace.ns(), MIN_GRACE_NS);
        grace.record_lateness(20_000_000);
        assert_eq!(grace.ns(), 80_000_000);
        grace.record_lateness(u64::MAX);
        assert_eq!(grace.ns(), MAX_GRACE_NS);
        (0..150).for_each(|_| grace.record_lateness(0));
        assert_eq!(grace.ns(), MIN_GRACE_NS);
        grace.set(Some(7));
        assert_eq!(grace.ns(), 7);
        grace.record_lateness(9);
        assert_eq!(grace.ns(), 7, "late, but within a period of before");
        grace.record_withdrawal(9);
        assert_eq!(grace.ns(), 36);
        (0..50).for_each(|_| grace.record_lateness(0));
        assert_eq!(grace.ns(), 7);
    }
}
