//! The figures of adaptive limits.

use rategate::adaptive::{Adaptation, Change, Outcome, Reason};

/// An adaptive limit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveStatus {
    /// The numbers of the limit.
    pub adaptation: Adaptation,
    /// The maximum number of permits in flight.
    pub limit: u64,
    /// The number of permits in flight, which a limit that fell may be below.
    pub in_flight: u64,
    /// The latency without a queue, in nanoseconds, if the method knows one.
    pub base_ns: Option<u64>,
    /// The last change, and how long ago it was, in nanoseconds.
    pub last: Option<(Change, u64)>,
}

/// The numbers of samples and changes of all counters of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdaptiveTally {
    samples: [u64; 3],
    changes: [u64; Reason::ALL.len()],
    /// The sum of the latencies of what was served, in nanoseconds. It wraps.
    served_ns: u64,
}

/// The outcomes, in the order of their tallies, with their names.
pub(crate) const OUTCOMES: [(Outcome, &str); 3] =
    [(Outcome::Served, "served"), (Outcome::Dropped, "dropped"), (Outcome::Ignored, "ignored")];

impl AdaptiveTally {
    /// Returns the samples by the name of their outcome.
    pub fn samples(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OUTCOMES.iter().map(|(_, name)| *name).zip(self.samples)
    }

    /// Returns the changes by the name of their reason.
    pub fn changes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Reason::ALL.iter().map(|reason| reason.name()).zip(self.changes)
    }

    /// Returns the mean latency of what was served since an earlier tally, in nanoseconds.
    pub(crate) fn mean_latency_ns(&self, before: &Self) -> Option<u64> {
        let [served, ..] = self.samples;
        let [served_before, ..] = before.samples;
        let sum_ns = self.served_ns.wrapping_sub(before.served_ns);
        sum_ns.checked_div(served.saturating_sub(served_before))
    }

    pub(super) fn note_sample(&mut self, outcome: Outcome, latency_ns: u64) {
        if outcome == Outcome::Served {
            self.served_ns = self.served_ns.wrapping_add(latency_ns);
        }
        let mut all = OUTCOMES.iter().zip(&mut self.samples);
        if let Some((_, count)) = all.find(|((known, _), _)| *known == outcome) {
            *count = count.saturating_add(1);
        }
    }

    pub(super) fn note_change(&mut self, reason: Reason) {
        let mut all = Reason::ALL.iter().zip(&mut self.changes);
        if let Some((_, count)) = all.find(|(known, _)| **known == reason) {
            *count = count.saturating_add(1);
        }
    }
}
