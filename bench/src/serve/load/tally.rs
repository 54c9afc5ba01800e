//! The results of a load.

use hdrhistogram::Histogram;
use rategate_bench::engines::Made;

/// The longest reply time recorded, in nanoseconds.
const MAX_NS: u64 = 20_000_000_000;

/// The replies, and the time of each.
#[derive(Clone, Debug)]
pub(crate) struct LoadTally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) failed: u64,
    /// The text of the first reply that was no decision.
    pub(crate) failure: Option<String>,
    pub(crate) took_ns: Histogram<u64>,
    pub(crate) lasted_ns: u64,
}

impl LoadTally {
    pub(crate) fn nothing() -> Made<Self> {
        Ok(Self {
            allowed: 0,
            denied: 0,
            failed: 0,
            failure: None,
            took_ns: Histogram::new_with_bounds(1, MAX_NS, 3)?,
            lasted_ns: 0,
        })
    }

    #[inline]
    pub(crate) fn answer(&mut self, is_allowed: bool, took_ns: u64) {
        if is_allowed {
            self.allowed += 1;
        } else {
            self.denied += 1;
        }
        self.took_ns.saturating_record(took_ns);
    }

    #[cold]
    pub(crate) fn fail(&mut self, how: &[u8]) {
        self.failed += 1;
        self.failure
            .get_or_insert_with(|| String::from_utf8_lossy(how).chars().take(200).collect());
    }

    pub(crate) fn answers(&self) -> u64 {
        self.allowed + self.denied
    }

    pub(crate) fn per_s(&self) -> f64 {
        self.answers() as f64 * 1e9 / self.lasted_ns.max(1) as f64
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.failed += other.failed;
        self.lasted_ns += other.lasted_ns;
        self.failure = self.failure.take().or_else(|| other.failure.clone());
        self.took_ns += &other.took_ns;
    }
}
