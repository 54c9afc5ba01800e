//! The time before its start at which a task is woken, where a limit makes up for no lateness.

use rategate_core::line::Rousing;

/// The longest lead: a poll spends at most so long looking at the clock.
pub(crate) const MAX_LEAD_NS: u64 = 100_000;

/// The time after its start at which a task that was roused is made due in its absence.
const PATIENCE_NS: u64 = 100_000;

/// The mean lateness of the tasks of a limiter: from when its timer should have woken one until its
/// poll.
#[derive(Debug, Default)]
pub(crate) struct Lead {
    late_ns: u64,
    /// The instant for which the timer was set that has woken a task, until that is polled.
    woken_for_ns: Option<u64>,
}

impl Lead {
    /// Returns when tasks are roused and made due.
    ///
    /// A poll that is not late spins on the clock for the whole lead. So the lead is a quarter
    /// shorter than the mean, which costs a little of the rate and saves much of that time.
    pub(crate) const fn rousing(&self) -> Rousing {
        let lead_ns = self.late_ns.saturating_sub(self.late_ns >> 2);
        Rousing { lead_ns, patience_ns: PATIENCE_NS }
    }

    /// Notes that a task is woken by a timer that was set for `for_ns`.
    pub(crate) const fn woke(&mut self, for_ns: u64) {
        self.woken_for_ns = Some(for_ns);
    }

    /// Notes that it has been polled at `now_ns`, and how late that was.
    pub(crate) fn polled(&mut self, now_ns: u64) {
        let Some(for_ns) = self.woken_for_ns.take() else { return };
        let seen_ns = now_ns.saturating_sub(for_ns).min(MAX_LEAD_NS);
        self.late_ns = self.late_ns.saturating_mul(15).saturating_add(seen_ns) >> 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_is_most_of_the_mean_lateness_within_its_bound() {
        let mut lead = Lead::default();
        lead.polled(5_000_000);
        assert_eq!(lead.rousing().lead_ns, 0, "a poll by itself tells nothing");
        for (late_ns, ideal) in [(40_000, 29_900..=30_000), (1 << 40, 74_900..=75_000)] {
            for at_ns in (0..200).map(|n| n * 1_000_000) {
                lead.woke(at_ns);
                lead.polled(at_ns.saturating_add(late_ns));
            }
            assert!(ideal.contains(&lead.rousing().lead_ns), "{lead:?}");
        }
    }
}
