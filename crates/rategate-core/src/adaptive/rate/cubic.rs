//! A rate that grows along a cubic curve, through the rate at the last refusal.

use super::measured::Measured;
use super::{End, MILLION, RateBounds};

/// The time since a refusal beyond which the curve is as steep as it gets: twelve days.
const LONGEST_US: i128 = 1 << 40;

/// The rate of calls to a server that refuses what is too much: seven tenths of it at each refusal,
/// and back along a cubic curve, which is flat around the rate that was refused and steep far from
/// it.
///
/// ```text
///   rate |                              /       w: the rate at the refusal
///      w |..........____________-------'        K: the cube root of 3/4 w, in seconds
///  0.7 w |  .-------'
///        +--+-----------+-----------------> time since the refusal
///           0           K
/// ```
///
/// It is off, at the ceiling, until the first refusal. It never exceeds twice the measured rate.
/// The rule and its constants are those of botocore, the AWS library for Python.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cubic {
    bounds: RateBounds,
    measured: Measured,
    /// The rate in force, in millionths of a permit per second.
    rate: u64,
    /// The rate at the last refusal, and the instant.
    refused: u64,
    refused_at_ns: u64,
    /// Set by the first refusal.
    is_on: bool,
}

impl Cubic {
    pub(super) const fn new(bounds: RateBounds, now_ns: u64) -> Self {
        let (rate, measured) = (bounds.ceiling, Measured::since(now_ns));
        Self { bounds, measured, rate, refused: 0, refused_at_ns: now_ns, is_on: false }
    }

    /// Returns one that has found a rate.
    pub(super) fn beginning_with(bounds: RateBounds, rate: u64, now_ns: u64) -> Self {
        if rate < bounds.ceiling {
            Self::refused_to(bounds, rate, now_ns)
        } else {
            Self::new(bounds, now_ns)
        }
    }

    /// Returns one that was refused at `now_ns` and has this rate since.
    fn refused_to(bounds: RateBounds, rate: u64, now_ns: u64) -> Self {
        let refused = rate.saturating_mul(10) / 7;
        Self { rate, refused, is_on: true, ..Self::new(bounds, now_ns) }
    }

    pub(super) const fn rebound(&mut self, bounds: RateBounds) {
        self.bounds = bounds;
    }

    pub(super) fn rate(&self) -> u64 {
        self.bounds.clamp(if self.is_on { self.rate } else { self.bounds.ceiling })
    }

    pub(super) fn end(&mut self, end: End) {
        let measured = self.measured.count(end.now_ns, end.permits);
        let rate = if end.is_refused {
            self.refused = if self.is_on { measured.min(self.rate) } else { measured };
            self.refused_at_ns = end.now_ns;
            self.is_on = true;
            self.refused.saturating_mul(7) / 10
        } else {
            self.curve(end.now_ns)
        };
        self.rate = self.bounds.clamp(rate.min(measured.saturating_mul(2)));
    }

    /// Returns the rate on the curve: `w + 0.4 (t - K)^3` per second, with `t` in seconds.
    fn curve(&self, now_ns: u64) -> u64 {
        let since_us = now_ns.saturating_sub(self.refused_at_ns) / 1_000;
        let back_us = cube_root(u128::from(self.refused).saturating_mul(750_000 * MILLION));
        let past_us = i128::from(since_us).saturating_sub(i128::from(back_us));
        let past_us = past_us.clamp(LONGEST_US.saturating_neg(), LONGEST_US);
        let cube = past_us.saturating_mul(past_us).saturating_mul(past_us);
        let more = cube.saturating_mul(4).div_euclid(10_000_000_000_000);
        let rate = i128::from(self.refused).saturating_add(more).max(0);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// Returns the largest number of which the third power is at most `of`, bit by bit.
fn cube_root(of: u128) -> u64 {
    let mut root = 0_u128;
    for bit in (0..43).rev() {
        let tried = root | 1 << bit;
        let cube = tried.saturating_mul(tried).checked_mul(tried);
        if cube.is_some_and(|cube| cube <= of) {
            root = tried;
        }
    }
    u64::try_from(root).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: RateBounds = RateBounds { floor: 500_000, ceiling: u64::MAX };

    fn end(now_ns: u64, is_refused: bool) -> End {
        End { now_ns, permits: 1, is_refused }
    }

    /// Allows for instants in whole microseconds, and for the rounding of each figure.
    fn is_near(rate: u64, expected: u64) -> bool {
        rate.abs_diff(expected).saturating_mul(1_000_000) <= expected
    }

    #[test]
    fn cube_roots_are_rounded_down() {
        for root in (0..1000).chain([1 << 20, (1 << 42) - 1, 1 << 42]) {
            let cube = u128::from(root).pow(3);
            assert_eq!(cube_root(cube), root);
            assert_eq!(cube_root(cube + 1), root.max(u64::from(root == 0)));
            assert!(root == 0 || cube_root(cube - 1) == root - 1);
        }
        assert_eq!(cube_root(u128::MAX), 6_981_463_658_331);
    }

    /// The cases "success" and "mixed" of `TestAdaptiveRateLimit_cubic` in aws-sdk-go-v2, which the
    /// SDKs for Rust, Java, C++ and JavaScript share: rates at whole seconds since a refusal.
    ///
    /// In "mixed" two refusals follow. There the test takes the rate after the last cut, 0.49 of
    /// the curve's second figure, for the rate that was refused.
    #[test]
    fn the_curve_is_that_of_aws() {
        let success =
            [7_000_000, 9_648_936, 10_000_031, 10_453_285, 13_408_697, 21_266_268, 36_425_999];
        let mixed = [4_670_126, 4_770_870, 6_011_820, 10_792_973];
        for (refused, first, expected) in [(10_000_000, 0, &success[..]), (4_727_979, 1, &mixed)] {
            let cubic = Cubic { refused, ..Cubic::refused_to(BOUNDS, 0, 5_000_000_000) };
            for (second, &expected) in (first..).zip(expected) {
                let rate = cubic.curve((5 + second) * 1_000_000_000);
                assert!(is_near(rate, expected), "{refused}, {second}: {rate} {expected}");
            }
        }
    }

    /// The figures of the AWS SDKs' test of a client's rate: a call ends each fifth of a second,
    /// and two are refused.
    #[test]
    fn the_rate_of_a_client_is_that_of_aws() {
        let measured = [
            0, 0, 4_800_000, 4_800_000, 4_160_000, 4_160_000, 4_160_000, 5_632_000, 5_632_000,
            4_326_400, 4_326_400, 4_326_400, 5_665_280, 5_665_280, 4_333_056, 4_333_056, 4_333_056,
        ];
        let rates = [
            500_000, 500_000, 500_000, 500_000, 500_000, 691_200, 1_097_600, 1_638_400, 2_332_800,
            3_028_480, 3_486_639, 3_821_874, 4_053_386, 4_200_373, 4_282_037, 2_997_426, 3_452_226,
        ];
        let mut cubic = Cubic::new(BOUNDS, 0);
        for (call, (measured, rate)) in (1..).zip(measured.into_iter().zip(rates)) {
            cubic.end(end(call * 200_000_000, call == 10 || call == 16));
            assert!(is_near(cubic.measured.rate(), measured), "call {call}: {cubic:?}");
            assert!(is_near(cubic.rate, rate), "call {call}: {cubic:?}");
        }
    }

    #[test]
    fn no_number_is_too_large() {
        let mut cubic = Cubic::new(BOUNDS, u64::MAX);
        for is_refused in [true, false, true] {
            for now_ns in [0, u64::MAX, 1] {
                cubic.end(End { now_ns, permits: u64::MAX, is_refused });
                assert!(cubic.rate() >= BOUNDS.floor);
            }
        }
    }
}
