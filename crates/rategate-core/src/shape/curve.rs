//! The integral of a shape and its inverse: a tree of parts, in ticks.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::decimal::gcd;

use super::END;
use super::change::Change;
use super::error::ShapeError;
use super::line::{Slope, Steady};
use super::search::least;
use super::sine::Sine;
use super::total::Total;

/// A rate over time, which is zero after its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Curve {
    /// `None` if it never ends.
    pub(super) length: Option<u128>,
    pub(super) course: Course,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Course {
    Steady(Steady),
    Slope(Slope),
    Sine(Sine),
    /// One after the other.
    Then(Vec<Part>),
    Repeat(Repeat),
    /// All at once.
    Sum(Vec<Curve>),
}

/// A part of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: u128,
    /// The integral before it.
    before: Total,
    pub(super) curve: Curve,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    pub(super) each: Box<Curve>,
    pub(super) times: u64,
    /// The length and the integral of one.
    pub(super) span: u128,
    amount: Total,
}

impl Curve {
    pub(super) const fn unending(course: Course) -> Self {
        Self { length: None, course }
    }

    /// Returns the integral up to `t`, rounded up by less than `2^-128` in each part.
    pub(super) fn reached(&self, t: u128) -> Total {
        let t = self.length.map_or(t, |length| t.min(length));
        match &self.course {
            Course::Steady(steady) => steady.reached(t),
            Course::Slope(slope) => slope.reached(t),
            Course::Sine(sine) => sine.reached(t),
            Course::Then(parts) => {
                let begun = parts.partition_point(|part| part.start <= t);
                let part = begun.checked_sub(1).and_then(|last| parts.get(last));
                part.map_or(Total::ZERO, |part| {
                    part.before.plus(part.curve.reached(t.saturating_sub(part.start)))
                })
            }
            Course::Repeat(repeat) => repeat.reached(t),
            Course::Sum(curves) => {
                curves.iter().fold(Total::ZERO, |sum, curve| sum.plus(curve.reached(t)))
            }
        }
    }

    /// Returns the first tick by which the integral has reached `target`.
    pub(super) fn first(&self, target: Total) -> Option<u128> {
        if target == Total::ZERO {
            return Some(0);
        }
        let first = match &self.course {
            Course::Steady(steady) => steady.first(target),
            Course::Slope(slope) => slope.first(target),
            Course::Sine(sine) => sine.first(target),
            Course::Then(parts) => {
                let begun = parts.partition_point(|part| part.before < target);
                let part = begun.checked_sub(1).and_then(|last| parts.get(last))?;
                let within = part.curve.first(target.minus(part.before))?;
                part.start.checked_add(within)
            }
            Course::Repeat(repeat) => repeat.first(target),
            Course::Sum(_) => {
                let end = self.length.unwrap_or(END);
                (self.reached(end) >= target).then(|| least(0, end, |t| self.reached(t) >= target))
            }
        }?;
        (first <= self.length.unwrap_or(END)).then_some(first)
    }

    /// Returns this curve and `next` after its end.
    pub(super) fn then(self, next: Self) -> Result<Self, ShapeError> {
        let start = self.length.ok_or(ShapeError::Unending)?;
        let before = self.reached(start);
        let length = next.length.map(|length| start.saturating_add(length));
        let whole = self.course_length();
        let mut parts = match self.course {
            // A sequence that was cut short is one part, all of which counts to its new end.
            Course::Then(parts) if whole == Some(start) => parts,
            course => {
                let curve = Self { length: Some(start), course };
                Vec::from([Part { start: 0, before: Total::ZERO, curve }])
            }
        };
        parts.push(Part { start, before, curve: next });
        Ok(Self { length: length.filter(|&length| length <= END), course: Course::Then(parts) })
    }

    /// Returns this curve `times` times, one after the other.
    pub(super) fn repeated(self, times: u64) -> Result<Self, ShapeError> {
        let span = self.length.ok_or(ShapeError::Unending)?;
        let amount = self.reached(span);
        let length = span.checked_mul(times.into()).filter(|&length| length <= END);
        let repeat = Repeat { each: Box::new(self), times, span, amount };
        Ok(Self { length, course: Course::Repeat(repeat) })
    }

    /// Returns the sum of this curve and `other`.
    pub(super) fn plus(self, other: Self) -> Self {
        let length = self.length.zip(other.length).map(|(a, b)| a.max(b));
        let whole = self.course_length();
        let mut curves = match self.course {
            Course::Sum(curves) if whole == self.length => curves,
            course => Vec::from([Self { length: self.length, course }]),
        };
        curves.push(other);
        Self { length, course: Course::Sum(curves) }
    }

    /// Returns the length of a sequence or a sum that was not cut short.
    fn course_length(&self) -> Option<u128> {
        match &self.course {
            Course::Then(parts) => {
                let last = parts.last()?;
                last.start.checked_add(last.curve.length?)
            }
            Course::Sum(curves) => {
                curves.iter().try_fold(0, |most: u128, curve| Some(most.max(curve.length?)))
            }
            _ => None,
        }
    }

    /// Returns the curve with all lengths and rates changed.
    pub(super) fn changed(self, change: Change) -> Result<Self, ShapeError> {
        let length = self.length.map(|length| change.of_length(length)).transpose()?;
        let mut curve = match self.course {
            Course::Steady(steady) => Self::unending(Course::Steady(steady.changed(change)?)),
            Course::Slope(slope) => Self::unending(Course::Slope(slope.changed(change)?)),
            Course::Sine(Sine { mean, amplitude, cycle, phase, .. }) => {
                let (mean, amplitude) = (mean.changed(change)?, amplitude.changed(change)?);
                let sine = Sine::new(mean, amplitude, change.of_length(cycle)?, phase);
                Self::unending(Course::Sine(sine.ok_or(ShapeError::TooFine)?))
            }
            Course::Then(parts) => {
                let mut parts = parts.into_iter().map(|part| part.curve.changed(change));
                let first = parts.next().ok_or(ShapeError::NoTime)??;
                parts.try_fold(first, |sequence, part| sequence.then(part?))?
            }
            Course::Repeat(Repeat { each, times, .. }) => each.changed(change)?.repeated(times)?,
            Course::Sum(curves) => {
                let curves = curves.into_iter().map(|curve| curve.changed(change));
                let curves = curves.collect::<Result<_, _>>()?;
                Self::unending(Course::Sum(curves))
            }
        };
        curve.length = length;
        Ok(curve)
    }

    /// Returns the greatest common divisor of `of` and of all lengths.
    pub(super) fn common(&self, of: u128) -> u128 {
        let of = self.length.map_or(of, |length| gcd(of, length));
        match &self.course {
            Course::Steady(_) => of,
            Course::Slope(slope) => gcd(of, slope.over),
            Course::Sine(sine) => gcd(of, sine.cycle),
            Course::Then(parts) => parts.iter().fold(of, |of, part| part.curve.common(of)),
            Course::Repeat(repeat) => repeat.each.common(of),
            Course::Sum(curves) => curves.iter().fold(of, |of, curve| curve.common(of)),
        }
    }
}

impl Repeat {
    fn reached(&self, t: u128) -> Total {
        let over = t.checked_div(self.span).unwrap_or(0);
        match u64::try_from(over) {
            Ok(over) if over < self.times => {
                let within = t.saturating_sub(self.span.saturating_mul(over.into()));
                self.amount.times(over).plus(self.each.reached(within))
            }
            _ => self.amount.times(self.times),
        }
    }

    fn first(&self, target: Total) -> Option<u128> {
        if self.amount.times(self.times) < target {
            return None;
        }
        let times = |times: u128| self.amount.times(u64::try_from(times).unwrap_or(u64::MAX));
        // The one during which the target is reached, counted from one.
        let over = least(1, self.times.into(), |over| times(over) >= target).saturating_sub(1);
        let within = self.each.first(target.minus(times(over)))?;
        self.span.checked_mul(over)?.checked_add(within)
    }
}
