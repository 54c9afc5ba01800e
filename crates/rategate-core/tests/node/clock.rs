//! A node's clock, with another origin and another rate than the store's.

use fastrand::Rng;

const WHOLE_PPM: i128 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeClock {
    origin_ns: u64,
    off_ppm: i128,
}

impl NodeClock {
    /// Returns a clock whose rate is off by at most `drift_ppm`, usually by all of it.
    pub(crate) fn any(random: &mut Rng, drift_ppm: u32) -> Self {
        let drift = i128::from(drift_ppm);
        let off_ppm = random.choice([-drift, -drift / 2, 0, drift / 3, drift]).unwrap();
        Self { origin_ns: random.u64(0..=1_000_000), off_ppm }
    }

    /// Returns its reading at an instant of the store's clock.
    pub(crate) fn at(&self, true_ns: u64) -> u64 {
        let passed = i128::from(true_ns) * (WHOLE_PPM + self.off_ppm) / WHOLE_PPM;
        self.origin_ns + u64::try_from(passed).unwrap()
    }

    /// Returns the first instant of the store's clock at which it shows `local_ns`.
    pub(crate) fn first(&self, local_ns: u64) -> u64 {
        let passed = i128::from(local_ns.saturating_sub(self.origin_ns)) * WHOLE_PPM;
        let mut true_ns = u64::try_from(passed / (WHOLE_PPM + self.off_ppm)).unwrap();
        while true_ns > 0 && self.at(true_ns - 1) >= local_ns {
            true_ns -= 1;
        }
        while self.at(true_ns) < local_ns {
            true_ns += 1;
        }
        true_ns
    }
}
