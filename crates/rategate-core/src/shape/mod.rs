//! Shapes of load: a rate over time, and the instant at which each operation is due.
//!
//! A [`Shape`] is a rate over time, built of a few forms that combine. [`Operations`] are due along
//! it: evenly, or at random as a Poisson process, and in parts for several machines. A recorded
//! trace is a sequence of operations as well. A [`Load`] is operations as text, such as
//! `ramp:0/s>100/s@10s then constant:100/s`.
//!
//! ```text
//!   rate ^                      ramp, constant, ramp     spike          sine
//!        |     ________                                   _
//!        |    /        \                                 | |         .-.     .-.
//!        |   /          \                            ____| |____    /   \   /   \
//!        |  /            \                                              '-'
//!        +------------------> time
//! ```
//!
//! # Contract
//!
//! `L(t)` is the integral of the rate from the start to `t`: the operations that the shape has
//! brought by then.
//!
//! * **Due.** Operation `n`, counted from 0, is due at the least `t` with `L(t) >= n`, rounded up
//!   to a nanosecond. Operation 0 is due at the start, whatever the rate.
//! * **Exact.** Lines are rounded up in the 128th bit of an operation, which changes no instant
//!   unless the common denominator of all rates and lengths exceeds some 120 bits; it is early by
//!   1 ns then. A sine is within some `2^-120` of the operations of a cycle, and exact after each
//!   whole cycle. No instant is more than 1 ns off where the rate is not zero.
//! * **Carried.** Fractions of an operation are carried over from part to part.
//! * **Random access.** [`Shape::due`] takes as long for any `n`.
//! * **Total.** What cannot be computed is a [`ShapeError`] at construction; nothing panics.
//! * **Bound.** In any `W + 1` consecutive nanoseconds at most [`Shape::max_within`] `W` operations
//!   are due.
//!
//! # Example
//!
//! ```
//! use rategate_core::rate::Rate;
//! use rategate_core::shape::Shape;
//!
//! // From nothing to 1/s in 5 s, 1/s for 1 s, and down to nothing in 5 s.
//! let one = Rate::per_second(1);
//! let load = Shape::ramp(Rate::NEVER, one, 5_000_000_000)?
//!     .then(Shape::constant(one)?.lasting(1_000_000_000)?)?
//!     .then(Shape::ramp(one, Rate::NEVER, 5_000_000_000)?)?;
//! assert_eq!(load.due(1), Some(3_162_277_661));
//! assert_eq!(load.due(3), Some(5_500_000_000));
//! assert_eq!(load.due(6), Some(11_000_000_000));
//! assert_eq!(load.due(7), None);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod change;
mod curve;
mod error;
mod line;
mod operations;
mod search;
mod sine;
mod text;
mod total;
mod window;

use crate::decimal::gcd;
use crate::rate::Rate;
use crate::schedule::{self, Schedule};
use crate::wide::Wide;

pub use self::change::Factor;
pub use self::error::ShapeError;
pub use self::operations::{DueInstants, Operations};
pub use self::text::{Load, LoadError, LoadFault};

use self::change::Change;
use self::curve::{Course, Curve};
use self::line::{Slope, Steady};
use self::sine::Sine;
use self::total::Total;

/// The maximum number of parts of a shape: of constants, ramps and sines, and of the shapes that
/// combine them.
pub const MAX_PARTS: u32 = 65_536;
/// The maximum depth to which shapes are nested.
pub const MAX_DEPTH: u32 = 32;
/// The maximum number of parts into which factors of time divide a nanosecond.
pub const MAX_TICKS_PER_NS: u64 = 1 << 20;

/// The end of all clocks, in the smallest ticks.
const END: u128 = 1 << 84;

/// A rate over time, from its start at 0.
///
/// A shape that has a length is over then: no operation is due later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    curve: Curve,
    /// The unit of all lengths, and of the periods of rates, is `1 / ticks_per_ns` ns.
    ticks_per_ns: u64,
    parts: u32,
    depth: u32,
}

impl Shape {
    /// Returns a rate that never changes and never ends.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Unlimited`] for [`Rate::UNLIMITED`].
    pub fn constant(rate: Rate) -> Result<Self, ShapeError> {
        Ok(Self::simple(Curve::unending(Course::Steady(Steady::of(rate)?))))
    }

    /// Returns a rate that moves evenly from `from` to `to` over `over_ns`, and ends.
    /// [`Rate::NEVER`] stands for zero.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Unlimited`] for an unlimited end, [`ShapeError::NoTime`] for a ramp over no
    /// time, [`ShapeError::TooFine`] where its integral exceeds 128 bits.
    pub fn ramp(from: Rate, to: Rate, over_ns: u64) -> Result<Self, ShapeError> {
        let slope = Slope::new(Steady::of(from)?, Steady::of(to)?, over_ns.into())?;
        Self::simple(Curve::unending(Course::Slope(slope))).lasting(over_ns)
    }

    /// Returns rates that stay for a time each, one after the other.
    ///
    /// # Errors
    ///
    /// [`ShapeError::NoTime`] without a step or for one that takes no time; the other errors of
    /// [`constant`](Self::constant) and [`then`](Self::then).
    pub fn steps(steps: impl IntoIterator<Item = (Rate, u64)>) -> Result<Self, ShapeError> {
        let mut steps = steps.into_iter().map(|(rate, ns)| Self::constant(rate)?.lasting(ns));
        let first = steps.next().ok_or(ShapeError::NoTime)??;
        steps.try_fold(first, |shape, step| shape.then(step?))
    }

    /// Returns ramps from each rate to the next, as the stages of k6: from `first` to the rate of
    /// the first stage over its time, from there to that of the second, and so on.
    ///
    /// # Errors
    ///
    /// [`ShapeError::NoTime`] without a stage; the errors of [`ramp`](Self::ramp) and
    /// [`then`](Self::then).
    pub fn stages(
        first: Rate,
        stages: impl IntoIterator<Item = (Rate, u64)>,
    ) -> Result<Self, ShapeError> {
        let mut from = first;
        let mut stages = stages.into_iter().map(|(to, over_ns)| {
            let stage = Self::ramp(from, to, over_ns);
            from = to;
            stage
        });
        let first = stages.next().ok_or(ShapeError::NoTime)??;
        stages.try_fold(first, |shape, stage| shape.then(stage?))
    }

    /// Returns `base` for ever, but `peak` from `at_ns` on for `lasting_ns`.
    ///
    /// # Errors
    ///
    /// The errors of [`steps`](Self::steps).
    pub fn spike(base: Rate, peak: Rate, at_ns: u64, lasting_ns: u64) -> Result<Self, ShapeError> {
        Self::steps([(base, at_ns), (peak, lasting_ns)])?.then(Self::constant(base)?)
    }

    /// Returns a rate that moves from `from` to `to` over each `cycle_ns`, again and again for
    /// ever.
    ///
    /// # Errors
    ///
    /// The errors of [`ramp`](Self::ramp).
    pub fn sawtooth(from: Rate, to: Rate, cycle_ns: u64) -> Result<Self, ShapeError> {
        Self::ramp(from, to, cycle_ns)?.repeated(u64::MAX)
    }

    /// Returns the rate `mean + amplitude * sin(phase + t / cycle)` for ever, angles in turns: with
    /// a phase of [`Factor::ONE`] it begins at the mean and rises.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Amplitude`] if the rate would be negative, [`ShapeError::NoTime`] for a cycle
    /// of no time, [`ShapeError::Unlimited`] for an unlimited rate, and [`ShapeError::TooFine`] if
    /// the sine moves 2^96 operations or more in a cycle.
    pub fn sine(
        mean: Rate,
        amplitude: Rate,
        cycle_ns: u64,
        phase: Factor,
    ) -> Result<Self, ShapeError> {
        let (mean, amplitude) = (Steady::of(mean)?, Steady::of(amplitude)?);
        if amplitude.exceeds(mean) {
            return Err(ShapeError::Amplitude);
        }
        if cycle_ns == 0 {
            return Err(ShapeError::NoTime);
        }
        let high = phase.numerator().checked_rem(phase.denominator()).unwrap_or(0);
        let phase = Wide { high, low: 0 }.div_rem(phase.denominator());
        let phase = phase.map_or(0, |(phase, _)| phase);
        let sine = Sine::new(mean, amplitude, cycle_ns.into(), phase).ok_or(ShapeError::TooFine)?;
        Ok(Self::simple(Curve::unending(Course::Sine(sine))))
    }

    const fn simple(curve: Curve) -> Self {
        Self { curve, ticks_per_ns: 1, parts: 1, depth: 1 }
    }

    /// Returns the first `length_ns` of this shape, or all of it if it is shorter.
    ///
    /// # Errors
    ///
    /// [`ShapeError::NoTime`] if that is zero.
    pub fn lasting(mut self, length_ns: u64) -> Result<Self, ShapeError> {
        if length_ns == 0 {
            return Err(ShapeError::NoTime);
        }
        // At most 84 bits.
        let length = u128::from(length_ns).saturating_mul(self.ticks_per_ns.into());
        self.curve.length = Some(self.curve.length.map_or(length, |own| own.min(length)));
        Ok(self)
    }

    /// Returns this shape, and `next` from its end on.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Unending`] if this shape has no length. [`ShapeError::TooManyParts`],
    /// [`TooDeep`](ShapeError::TooDeep), [`TooFine`](ShapeError::TooFine) and
    /// [`TooLong`](ShapeError::TooLong) if the two together exceed a bound.
    pub fn then(self, next: Self) -> Result<Self, ShapeError> {
        self.with(next, Curve::then)
    }

    /// Returns the sum of the rates of this shape and `other`, both from the start on.
    ///
    /// # Errors
    ///
    /// As [`then`](Self::then), but neither needs a length.
    pub fn plus(self, other: Self) -> Result<Self, ShapeError> {
        self.with(other, |curve, other| Ok(curve.plus(other)))
    }

    /// Returns this shape `times` times, one after the other.
    ///
    /// # Errors
    ///
    /// [`ShapeError::NoRepetition`] for zero times; those of [`then`](Self::then).
    pub fn repeated(self, times: u64) -> Result<Self, ShapeError> {
        if times == 0 {
            return Err(ShapeError::NoRepetition);
        }
        let Self { curve, ticks_per_ns, parts, depth } = self;
        let (parts, depth) = (parts.saturating_add(1), depth.saturating_add(1));
        Self { curve: curve.repeated(times)?, ticks_per_ns, parts, depth }.bounded()
    }

    /// Returns this shape with `factor` times the rate at each instant.
    ///
    /// # Errors
    ///
    /// [`ShapeError::TooFine`] where the numbers exceed 128 bits.
    pub fn with_rate_times(mut self, factor: Factor) -> Result<Self, ShapeError> {
        self.curve = self.curve.changed(Change::of_rate(factor))?;
        Ok(self)
    }

    /// Returns this shape with all instants `factor` times as late: as many operations, in another
    /// time.
    ///
    /// # Errors
    ///
    /// [`ShapeError::TooFine`] where the numbers exceed 128 bits, [`ShapeError::TooLong`] where
    /// a part exceeds 584 years.
    pub fn with_time_times(self, factor: Factor) -> Result<Self, ShapeError> {
        let ticks_per_ns = u128::from(self.ticks_per_ns).checked_mul(factor.denominator());
        let ticks_per_ns = ticks_per_ns.ok_or(ShapeError::TooFine)?;
        // The old ticks times the numerator are the new ones, of which as few as will do.
        let lengths = self.curve.common(0).checked_mul(factor.numerator());
        let common = gcd(ticks_per_ns, lengths.ok_or(ShapeError::TooLong)?).max(1);
        let ticks_per_ns = ticks_per_ns.checked_div(common).unwrap_or(ticks_per_ns);
        let change = Change::of_ticks(factor.numerator(), common);
        Ok(Self { curve: self.curve.changed(change)?, ticks_per_ns: ticks(ticks_per_ns)?, ..self })
    }

    /// Returns the instant at which operation `n`, counted from 0, is due, in nanoseconds since
    /// the start. `None` if there is no such operation within 584 years.
    #[must_use]
    pub fn due(&self, n: u64) -> Option<u64> {
        self.first(Total::of(n.into()))
    }

    /// Returns the number of operations that are due by `at_ns`, itself included.
    #[must_use]
    pub fn due_by(&self, at_ns: u64) -> u64 {
        let whole = self.reached(at_ns.into()).whole;
        u64::try_from(whole.saturating_add(1)).unwrap_or(u64::MAX)
    }

    /// Returns the maximum number of operations that are due from an instant on to `window_ns`
    /// after it, both included.
    ///
    /// That is `max(L(t + window + 1 ns) - L(t))`, rounded up; the window at the start has
    /// operation 0 besides. `None` for what combines a sine with others, and for more lines than
    /// 16 384.
    #[must_use]
    pub fn max_within(&self, window_ns: u64) -> Option<u64> {
        // At most 85 bits.
        let span = u128::from(window_ns).saturating_add(1).wrapping_mul(self.ticks_per_ns.into());
        let most = window::max_reached(&self.curve, span)?;
        let most = u64::try_from(most.ceil()).unwrap_or(u64::MAX);
        Some(most.max(self.due_by(window_ns)))
    }

    /// Returns the instant by which the integral has reached `target`, rounded up.
    fn first(&self, target: Total) -> Option<u64> {
        let first = self.curve.first(target)?;
        u64::try_from(first.div_ceil(self.ticks_per_ns.into())).ok()
    }

    fn reached(&self, at_ns: u128) -> Total {
        self.curve.reached(at_ns.saturating_mul(self.ticks_per_ns.into()))
    }

    /// Returns this shape and `other` as one.
    fn with(
        self,
        other: Self,
        join: impl FnOnce(Curve, Curve) -> Result<Curve, ShapeError>,
    ) -> Result<Self, ShapeError> {
        let (own, others) = (u128::from(self.ticks_per_ns), u128::from(other.ticks_per_ns));
        let common = gcd(own, others);
        let finer = others.checked_div(common).unwrap_or(1);
        let others_finer = own.checked_div(common).unwrap_or(1);
        let ticks_per_ns = ticks(own.saturating_mul(finer))?;
        let in_ticks = |curve: Curve, finer: u128| match finer {
            1 => Ok(curve),
            _ => curve.changed(Change::of_ticks(finer, 1)),
        };
        let curve = join(in_ticks(self.curve, finer)?, in_ticks(other.curve, others_finer)?)?;
        // A list of parts grows in length alone.
        let flat = matches!(&curve.course, Course::Then(parts) if parts.len() > 2)
            || matches!(&curve.course, Course::Sum(curves) if curves.len() > 2);
        let more = u32::from(!flat);
        let depth = self.depth.saturating_add(more).max(other.depth.saturating_add(1));
        let parts = self.parts.saturating_add(other.parts).saturating_add(more);
        Self { curve, ticks_per_ns, parts, depth }.bounded()
    }

    fn bounded(self) -> Result<Self, ShapeError> {
        if self.parts > MAX_PARTS {
            return Err(ShapeError::TooManyParts);
        }
        if self.depth > MAX_DEPTH { Err(ShapeError::TooDeep) } else { Ok(self) }
    }
}

fn ticks(per_ns: u128) -> Result<u64, ShapeError> {
    let ticks = u64::try_from(per_ns).ok().filter(|&ticks| ticks <= MAX_TICKS_PER_NS);
    ticks.ok_or(ShapeError::TooFine)
}

impl TryFrom<Schedule> for Shape {
    type Error = ShapeError;

    /// Returns the shape of a schedule from its start on.
    fn try_from(schedule: Schedule) -> Result<Self, ShapeError> {
        match schedule.0 {
            schedule::Form::Constant(rate) => Self::constant(rate),
            schedule::Form::Ramp(ramp) => {
                let end = |permits| Steady { permits, period: ramp.period_ns() };
                let slope = Slope::new(end(ramp.from), end(ramp.to), ramp.over_ns.get().into())?;
                let ramped = Self::simple(Curve::unending(Course::Slope(slope)));
                ramped.lasting(ramp.over_ns.get())?.then(Self::constant(ramp.last_rate())?)
            }
        }
    }
}
