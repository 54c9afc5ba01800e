//! The changes of a limit that follows measurements, and their reasons.

/// A change of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Why it changed.
    pub reason: Reason,
    /// The limit before.
    pub from: u32,
    /// The limit after.
    pub to: u32,
}

/// Why a limit changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It was reached, and there was no queue or too short a one: it grew.
    Reached,
    /// A queue stood: it was cut.
    Queue,
    /// Too much was dropped: it was cut.
    Dropped,
    /// A probe of the latency without a queue: a short cut, or the end of one.
    Probe,
    /// It began anew, after a long time with nothing in flight or by another method.
    Restart,
    /// Other bounds were put into force, and it was beyond them.
    Bounds,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Reached, Self::Queue, Self::Dropped, Self::Probe, Self::Restart, Self::Bounds];

    /// Returns the word by which it is reported.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Queue => "queue",
            Self::Dropped => "dropped",
            Self::Probe => "probe",
            Self::Restart => "restart",
            Self::Bounds => "bounds",
        }
    }
}

/// The changes of one limit: their number, and the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) count: u32,
    pub(super) last: Option<Change>,
}

impl Changes {
    /// Records a change, if it is one. What had been found differs from the limit in a probe.
    pub(super) fn note(&mut self, reason: Reason, (from, found): (u32, u32), to: u32) {
        if from != to {
            // A limit that is cut at the end of a probe is higher than in it, and lower than
            // before.
            let is_cut = matches!(reason, Reason::Queue | Reason::Dropped);
            let (reason, from) = match (is_cut, to < found) {
                (true, true) => (reason, found),
                (true, false) => (Reason::Probe, from),
                (false, _) => (reason, from),
            };
            self.count = self.count.wrapping_add(1);
            self.last = Some(Change { reason, from, to });
        }
    }
}
