//! The delay of decisions behind the log, and what may pass in the meantime.

const SECOND_NS: u64 = 1_000_000_000;

/// The delays of a followed log: the wall clock's time minus the log's.
///
/// A log of whole seconds shows up to a second more than the true delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lag {
    pub(super) lines: u64,
    pub(super) worst_ns: u64,
    sum_ns: u64,
    /// The time of the oldest denial that is not on the published list yet.
    unpublished_ns: Option<u64>,
    pub(super) worst_published_ns: u64,
}

impl Lag {
    /// Records that a line was decided.
    pub(super) fn decided(&mut self, at_ns: u64, wall_ns: u64) {
        let delay_ns = wall_ns.saturating_sub(at_ns);
        self.lines = self.lines.saturating_add(1);
        self.worst_ns = self.worst_ns.max(delay_ns);
        self.sum_ns = self.sum_ns.saturating_add(delay_ns);
    }

    /// Records that a line was denied.
    pub(super) fn denied(&mut self, at_ns: u64) {
        self.unpublished_ns = Some(self.unpublished_ns.map_or(at_ns, |oldest| oldest.min(at_ns)));
    }

    /// Records that the list was published.
    pub(super) fn published(&mut self, wall_ns: u64) {
        if let Some(oldest_ns) = self.unpublished_ns.take() {
            self.worst_published_ns =
                self.worst_published_ns.max(wall_ns.saturating_sub(oldest_ns));
        }
    }

    /// Returns how long a denial takes until it is listed: the maximum seen, and at least the
    /// interval of publication.
    pub(super) fn lead_ns(&self, poll_ns: u64) -> u64 {
        self.worst_ns.max(self.worst_published_ns).max(poll_ns)
    }

    pub(super) fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.lines).unwrap_or(0)
    }

    pub(super) fn overshoot(&self, max_in_second: u64) -> u64 {
        overshoot(max_in_second, self.worst_ns.max(self.worst_published_ns))
    }
}

/// Returns the maximum amount one caller can have passed over the limit before it was listed.
///
/// `max_in_second` is the amount in the fullest second of any caller. The bound is
/// `lambda_peak * D` and one second more, because `D` touches that many seconds; see
/// `docs/theory.md`, section 5.10.
pub(super) fn overshoot(max_in_second: u64, delay_ns: u64) -> u64 {
    max_in_second.saturating_mul(delay_ns.div_ceil(SECOND_NS).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::{Lag, SECOND_NS};

    /// S3.20: decisions from a log come late, and the amount that may pass meanwhile is bounded.
    #[test]
    fn what_passes_before_the_gate_closes_is_bounded() {
        let mut lag = Lag::default();
        lag.decided(10 * SECOND_NS, 11 * SECOND_NS);
        lag.decided(10 * SECOND_NS, 14 * SECOND_NS);
        lag.denied(12 * SECOND_NS);
        lag.denied(10 * SECOND_NS);
        lag.published(15 * SECOND_NS + 1);
        lag.published(99 * SECOND_NS);
        assert_eq!((lag.worst_ns, lag.mean_ns()), (4 * SECOND_NS, 2_500_000_000));
        assert_eq!(lag.worst_published_ns, 5 * SECOND_NS + 1);
        assert_eq!(lag.overshoot(30), 30 * 7);
        // A clock behind the log's finds no delay.
        lag.decided(10 * SECOND_NS, 9 * SECOND_NS);
        assert_eq!((lag.lines, lag.worst_ns), (3, 4 * SECOND_NS));
    }
}
