//! The clock of one node, with its own origin and an error of its rate in parts per million.

/// A node's clock, whose reading is a function of true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeClock {
    /// The reading at the true instant 0.
    pub(super) origin_ns: u64,
    /// The rate error in parts per million: too fast, or too slow if negative.
    pub(super) drift_ppm: i64,
}

const MILLION: i128 = 1_000_000;

impl NodeClock {
    /// Returns the reading at a true instant.
    pub(super) fn reading_ns(self, true_ns: u64) -> u64 {
        let off_ns = (i128::from(true_ns) * i128::from(self.drift_ppm)).div_euclid(MILLION);
        u64::try_from(i128::from(self.origin_ns) + i128::from(true_ns) + off_ns).unwrap()
    }

    /// Returns the first true instant at which the clock shows `reading_ns` or more.
    pub(super) fn true_ns(self, reading_ns: u64) -> u64 {
        let ran_ns = i128::from(reading_ns.saturating_sub(self.origin_ns));
        let pace = MILLION + i128::from(self.drift_ppm);
        // t + floor(t d / 10^6) >= r exactly when t (10^6 + d) >= r 10^6.
        u64::try_from((ran_ns * MILLION + pace - 1).div_euclid(pace)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::NodeClock;
    use rategate_core::random::Random;

    #[test]
    fn a_reading_and_its_instant_agree() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let drift_ppm = i64::try_from(random.bits() % 400_000).unwrap() - 200_000;
            let clock = NodeClock { origin_ns: random.bits() >> 20, drift_ppm };
            let reading_ns = clock.reading_ns(0) + (random.bits() >> 30);
            let true_ns = clock.true_ns(reading_ns);
            assert!(clock.reading_ns(true_ns) >= reading_ns, "{clock:?}");
            assert!(true_ns == 0 || clock.reading_ns(true_ns - 1) < reading_ns, "{clock:?}");
        }
    }
}
