//! Helpers shared by the law tests: a seeded generator, a list of grants, and accessors of
//! verdicts.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod queued;

use rategate_core::error::ExceedsCapacity;
use rategate_core::rate::Rate;
use rategate_core::verdict::{Grant, Verdict};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;

/// A seeded generator, so that a failure names the one number needed to reproduce it.
#[derive(Debug)]
pub(crate) struct XorShift(u64);

impl XorShift {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number in `low..=high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + (self.0 >> 11) % (high - low + 1)
    }

    /// Returns `true` once in `times` on average.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.between(1, times) == 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let last = u64::try_from(from.len() - 1).unwrap();
        from[usize::try_from(self.between(0, last)).unwrap()]
    }
}

/// All grants, as the oracle of every ceiling.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grants(pub(crate) Vec<(u64, u64)>);

impl Grants {
    pub(crate) fn add(&mut self, start_ns: u64, permits: u64) {
        self.0.push((start_ns, permits));
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|&(_, permits)| permits).sum()
    }

    /// Returns the maximum of permits in any half-open window of `window_ns`: two pointers over
    /// the sorted list.
    pub(crate) fn max_in(&self, window_ns: u64) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let (mut oldest, mut sum, mut max) = (0, 0, 0);
        for &(start_ns, permits) in &sorted {
            sum += permits;
            while start_ns - sorted[oldest].0 >= window_ns {
                sum -= sorted[oldest].1;
                oldest += 1;
            }
            max = max.max(sum);
        }
        max
    }

    /// Compares each span from one grant to another, and so each window, with its ceiling.
    ///
    /// The shortest half-open window around a span is one nanosecond longer than it.
    pub(crate) fn assert_ceiling(&self, what: &str, ceiling: impl Fn(u128) -> u128) {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        for (first, &(from_ns, _)) in sorted.iter().enumerate() {
            let mut sum = 0;
            for &(to_ns, permits) in &sorted[first..] {
                sum += u128::from(permits);
                let max = ceiling(u128::from(to_ns - from_ns) + 1);
                assert!(sum <= max, "{what}: {sum} > {max} permits in {from_ns}..={to_ns}");
            }
        }
    }
}

pub(crate) type Answer = Result<Verdict, ExceedsCapacity>;

/// Returns the grant, if the verdict is one.
pub(crate) fn granted(answer: Answer) -> Option<Grant> {
    match answer {
        Ok(Verdict::Granted(grant)) => Some(grant),
        Ok(Verdict::Denied(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the start of a verdict that must be a grant.
pub(crate) fn start(answer: Answer) -> u64 {
    granted(answer).expect("a grant").start_ns
}

/// Returns the wait of a verdict that must be a denial.
pub(crate) fn retry(answer: Answer) -> u64 {
    match answer {
        Ok(Verdict::Denied(denial)) => denial.retry_after_ns.expect("a wait").get(),
        other => panic!("not a denial: {other:?}"),
    }
}

pub(crate) fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// Returns the numerator and the denominator of a rate, wide enough to multiply.
pub(crate) fn fraction(rate: Rate) -> (u128, u128) {
    let (permits, period_ns) = rate.fraction().unwrap();
    (permits.into(), period_ns.into())
}

/// Rates from one a year to ten thousand million a second, with and without a remainder.
pub(crate) const RATES: [&str; 14] = [
    "1/365d",
    "1/d",
    "7/h",
    "100/min",
    "1/s",
    "3/s",
    "7/s",
    "999983/s",
    "30000000/s",
    "600000000/s",
    "2000000000/s",
    "3000000007/s",
    "4000000000/s",
    "10000000000/s",
];

/// A changing rate: the sixtieths of a permit per nanosecond, and since when.
///
/// It is the oracle of every change, kept in whole numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile(pub(crate) Vec<(u64, u128)>);

impl Profile {
    /// Draws a rate that divides into whole sixtieths and puts it into the profile from
    /// `since_ns` on.
    pub(crate) fn draw(&mut self, random: &mut XorShift, since_ns: u64) -> Rate {
        let period_ns = random.pick(&[1, 2, 3, 5, 10, 12, 20, 30, 60, 60]);
        let permits = random.between(1, 9);
        self.0.push((since_ns, u128::from(permits * (60 / period_ns))));
        Rate::new(permits, std::time::Duration::from_nanos(period_ns)).unwrap()
    }

    /// Returns the sixtieths earned from `from_ns` to `to_ns`; none before the first rate.
    pub(crate) fn integral(&self, from_ns: u64, to_ns: u64) -> u128 {
        let ends = self.0.iter().skip(1).map(|&(since_ns, _)| since_ns).chain([u64::MAX]);
        let pieces = self.0.iter().zip(ends);
        let piece = |(&(since_ns, rate), end_ns): (&(u64, u128), u64)| {
            u128::from(end_ns.min(to_ns).saturating_sub(since_ns.max(from_ns))) * rate
        };
        pieces.map(piece).sum()
    }
}
