//! A clock that can be wrong: it drifts, stands still, and is set forward or back.
//!
//! Time in the world passes evenly; what the clock shows is another matter. Limits decide by what
//! it shows, and clamp it; whoever sleeps by it looks again on waking.
//!
//! ```
//! use rategate_sim::clock::VirtualClock;
//!
//! let clock = VirtualClock::new(1_000)
//!     .drifting(100_000) // a tenth too fast, in parts per million
//!     .stalled(500, 100)
//!     .stepped(900, -50);
//! assert_eq!(clock.reading_ns(400), 1_440);
//! assert_eq!(clock.reading_ns(550), 1_550, "it stands still");
//! assert_eq!(clock.reading_ns(700), 1_660, "and goes on from there");
//! assert_eq!(clock.reading_ns(900), 1_830, "set back by 50");
//! ```

/// What a clock shows while true time passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualClock {
    start_ns: u64,
    drift_ppm: i64,
    /// `(from, lasting)`, in true nanoseconds since the start.
    stalls: Vec<(u64, u64)>,
    /// `(at, by)`: set by so many nanoseconds.
    steps: Vec<(u64, i64)>,
}

impl VirtualClock {
    /// A true clock that shows `start_ns` at first.
    #[must_use]
    pub const fn new(start_ns: u64) -> Self {
        Self { start_ns, drift_ppm: 0, stalls: Vec::new(), steps: Vec::new() }
    }

    /// Too fast by so many parts per million, or too slow if negative: half as fast at the least.
    #[must_use]
    pub fn drifting(mut self, ppm: i64) -> Self {
        self.drift_ppm = ppm.max(-500_000);
        self
    }

    /// Standing still for `lasting_ns` from `from_ns` of true time on, and going on from there.
    /// Stalls that overlap stand one after the other.
    #[must_use]
    pub fn stalled(mut self, from_ns: u64, lasting_ns: u64) -> Self {
        self.stalls.push((from_ns, lasting_ns));
        self
    }

    /// Set forward, or back if negative, by `by_ns` at `at_ns` of true time.
    #[must_use]
    pub fn stepped(mut self, at_ns: u64, by_ns: i64) -> Self {
        self.steps.push((at_ns, by_ns));
        self
    }

    /// The first reading.
    #[must_use]
    pub const fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// What the clock shows after `true_ns` of true time. At the ends of 64 bits it stands still.
    #[must_use]
    pub fn reading_ns(&self, true_ns: u64) -> u64 {
        let stalled = self.stalls.iter().fold(0_u64, |sum, &(from_ns, lasting_ns)| {
            sum.saturating_add(true_ns.saturating_sub(from_ns).min(lasting_ns))
        });
        let ran_ns = i128::from(true_ns.saturating_sub(stalled));
        let drift_ns = ran_ns.saturating_mul(self.drift_ppm.into()).div_euclid(1_000_000);
        let steps = self.steps.iter().filter(|(at_ns, _)| *at_ns <= true_ns);
        let steps_ns = steps.fold(0_i128, |sum, &(_, by_ns)| sum.saturating_add(by_ns.into()));
        let reading_ns = i128::from(self.start_ns)
            .saturating_add(ran_ns)
            .saturating_add(drift_ns)
            .saturating_add(steps_ns);
        u64::try_from(reading_ns.max(0)).unwrap_or(u64::MAX)
    }
}
