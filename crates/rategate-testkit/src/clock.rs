//! A clock that can be wrong: it drifts, stalls, and steps forward or back.
//!
//! True time passes evenly in the world, but the clock's reading may not. Limits decide by the
//! reading and clamp it. A caller that sleeps by the clock checks it again on waking.
//!
//! ```
//! use rategate_testkit::clock::VirtualClock;
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

/// A virtual clock, whose reading may drift, stall and step while true time passes evenly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualClock {
    start_ns: u64,
    drift_ppm: i64,
    /// Stalls as `(from, lasting)`, in true nanoseconds since the start.
    stalls: Vec<(u64, u64)>,
    /// Steps as `(at, by)`: at the true instant `at`, the reading changes by `by` nanoseconds.
    steps: Vec<(u64, i64)>,
}

impl VirtualClock {
    /// Returns an exact clock whose first reading is `start_ns`.
    #[must_use]
    pub const fn new(start_ns: u64) -> Self {
        Self { start_ns, drift_ppm: 0, stalls: Vec::new(), steps: Vec::new() }
    }

    /// Makes the clock too fast by `ppm` parts per million, or too slow if negative; its rate is
    /// at least half of the true one.
    #[must_use]
    pub fn drifting(mut self, ppm: i64) -> Self {
        self.drift_ppm = ppm.max(-500_000);
        self
    }

    /// Stops the clock for `lasting_ns` from `from_ns` of true time on, after which it continues
    /// from there. The durations of overlapping stalls add up.
    #[must_use]
    pub fn stalled(mut self, from_ns: u64, lasting_ns: u64) -> Self {
        self.stalls.push((from_ns, lasting_ns));
        self
    }

    /// Steps the clock forward, or back if negative, by `by_ns` at `at_ns` of true time.
    #[must_use]
    pub fn stepped(mut self, at_ns: u64, by_ns: i64) -> Self {
        self.steps.push((at_ns, by_ns));
        self
    }

    /// Returns the first reading.
    #[must_use]
    pub const fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Returns the reading after `true_ns` of true time, clamped to 64 bits.
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
    /// Returns the first true time at which a clock that only drifts shows `reading_ns` or more.
    #[cfg(feature = "library")]
    pub(crate) fn true_ns(&self, reading_ns: u64) -> u64 {
        let ran_ns = i128::from(reading_ns.saturating_sub(self.start_ns));
        let pace = 1_000_000 + i128::from(self.drift_ppm);
        // t + floor(t d / 10^6) >= r exactly when t (10^6 + d) >= r 10^6.
        u64::try_from((ran_ns * 1_000_000 + pace - 1).div_euclid(pace)).unwrap_or(u64::MAX)
    }
}

#[cfg(all(test, feature = "library"))]
mod tests {
    use super::VirtualClock;
    use rategate_core::random::Random;

    #[test]
    fn a_reading_and_its_instant_agree() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let drift_ppm = i64::try_from(random.bits() % 400_000).unwrap() - 200_000;
            let clock = VirtualClock::new(random.bits() >> 20).drifting(drift_ppm);
            let reading_ns = clock.start_ns() + (random.bits() >> 30);
            let true_ns = clock.true_ns(reading_ns);
            assert!(clock.reading_ns(true_ns) >= reading_ns, "{clock:?}");
            assert!(true_ns == 0 || clock.reading_ns(true_ns - 1) < reading_ns, "{clock:?}");
        }
    }
}
