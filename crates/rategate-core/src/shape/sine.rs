//! A rate that swings around a mean, in fixed point.

use crate::wide::Wide;

use super::line::Steady;
use super::search::least;
use super::total::Total;

/// The largest number of operations that a swing moves, in bits.
const MAX_SWING_BITS: u32 = 96;
/// `1 / pi` in `1 / 2^128`.
const OVER_PI: u128 = 0x517c_c1b7_2722_0a94_fe13_abe8_fa9a_6ee0;
/// `pi / 4` in `1 / 2^128`.
const QUARTER_PI: u128 = 0xc90f_daa2_2168_c234_c4c6_628b_80dc_1cd1;
/// One, as [`half_versine`] counts.
const ONE: u128 = 1 << 127;
const QUARTER_TURN: u128 = 1 << 126;

/// The rate `mean + amplitude * sin(phase + t / cycle)`, angles in turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sine {
    pub(super) mean: Steady,
    pub(super) amplitude: Steady,
    pub(super) cycle: u128,
    /// In `1 / 2^128` of a turn.
    pub(super) phase: u128,
    /// The operations of `amplitude * cycle / pi`: the most that the swing moves, there or back.
    swing: Total,
}

impl Sine {
    /// Returns the sine, or `None` if its swing moves 2^96 operations or more.
    pub(super) fn new(mean: Steady, amplitude: Steady, cycle: u128, phase: u128) -> Option<Self> {
        let Total { whole, part } = amplitude.reached(cycle);
        if whole >> MAX_SWING_BITS > 0 {
            return None;
        }
        let Wide { high, low } = Wide::product(whole, OVER_PI);
        let rest = Total { whole: 0, part: Wide::product(part, OVER_PI).high };
        let swing = Total { whole: high, part: low }.plus(rest);
        Some(Self { mean, amplitude, cycle, phase, swing })
    }

    pub(super) fn reached(&self, t: u128) -> Total {
        let line = self.mean.reached(t);
        let (now, first) = (half_versine(self.angle(t)), half_versine(self.phase));
        if now >= first {
            line.plus(self.moved(now.wrapping_sub(first)))
        } else {
            line.minus(self.moved(first.wrapping_sub(now)))
        }
    }

    pub(super) fn first(&self, target: Total) -> Option<u128> {
        let low = match target.minus(self.swing) {
            Total::ZERO => 0,
            sooner => self.mean.first(sooner)?,
        };
        let high = self.mean.first(target.plus(self.swing))?;
        Some(least(low, high, |t| self.reached(t) >= target))
    }

    /// Returns the most that is reached within `span`, wherever it begins: the mean, and the swing
    /// around its peak. It is rounded up.
    pub(super) fn max_within(&self, span: u128) -> Total {
        let line = self.mean.reached(span);
        let angle = self.angle(span).wrapping_sub(self.phase);
        if angle == 0 {
            return line;
        }
        // Between a quarter of a turn before and after half of the angle, the rate is highest.
        let half = angle >> 1;
        let rise = half_versine(QUARTER_TURN.wrapping_add(half))
            .wrapping_sub(half_versine(QUARTER_TURN.wrapping_sub(half)));
        // Far more than the errors of the angles and of the sine.
        let slack = Total { whole: 0, part: self.swing.whole.saturating_add(1) << 16 };
        line.plus(self.moved(rise)).plus(slack)
    }

    /// Returns the angle at `t`, rounded down.
    fn angle(&self, t: u128) -> u128 {
        let high = t.checked_rem(self.cycle).unwrap_or(0);
        let turned = Wide { high, low: 0 }.div_rem(self.cycle).map_or(0, |(turned, _)| turned);
        self.phase.wrapping_add(turned)
    }

    /// Returns `share` of the swing, in `1 / 2^127`.
    fn moved(&self, share: u128) -> Total {
        let double = |Wide { high, low }| (high << 1) | (low >> 127);
        let whole = Wide::product(self.swing.whole, share);
        let part = double(Wide::product(self.swing.part, share));
        Total { whole: double(whole), part: whole.low << 1 }.plus(Total { whole: 0, part })
    }
}

/// Returns `(1 - cos(angle)) / 2` in `1 / 2^127`, for an angle in `1 / 2^128` of a turn. It is
/// exact at quarters of a turn, and elsewhere within some 2^-122.
fn half_versine(angle: u128) -> u128 {
    let angle = if angle > 2 * QUARTER_TURN { angle.wrapping_neg() } else { angle };
    if angle == QUARTER_TURN {
        return ONE >> 1;
    }
    if angle > QUARTER_TURN {
        return ONE.wrapping_sub(half_versine((2 * QUARTER_TURN).wrapping_sub(angle)));
    }
    // (1 - cos 2y) / 2 = sin^2 y, where y is at most a quarter of pi.
    let y = Wide::product(angle << 2, QUARTER_PI).high;
    let square = Wide::product(y, y).high;
    let series =
        SERIES.iter().rev().fold(0, |sum, term| term.wrapping_sub(Wide::product(square, sum).high));
    let sine = y.wrapping_sub(Wide::product(y, Wide::product(square, series).high).high);
    Wide::product(sine, sine).high >> 1
}

/// One over 3!, 5!, 7! and so on, in `1 / 2^128`.
const SERIES: [u128; 17] = {
    let mut terms = [0; 17];
    let (mut rest, mut term, mut factor) = (terms.as_mut_slice(), u128::MAX, 2_u128);
    while let Some((next, others)) = rest.split_first_mut() {
        term = term.wrapping_div(factor.wrapping_mul(factor.wrapping_add(1)));
        *next = term;
        factor = factor.wrapping_add(2);
        rest = others;
    }
    terms
};
