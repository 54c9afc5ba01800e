//! The operations of a load: evenly along a shape, at random around it, or as they once came.

use alloc::vec::Vec;
use core::iter::FusedIterator;

use crate::random::Random;

use super::Shape;
use super::change::Factor;
use super::error::ShapeError;
use super::total::Total;

/// A sequence of operations, and when each is due.
///
/// ```
/// use rategate_core::rate::Rate;
/// use rategate_core::shape::{Operations, Shape};
///
/// let all = Operations::evenly(Shape::constant(Rate::per_second(4))?);
/// // Two machines share them.
/// let second = all.clone().split(1, 2)?;
/// assert_eq!(all.due(3), Some(750_000_000));
/// assert_eq!(second.into_iter().take(2).collect::<Vec<_>>(), [250_000_000, 750_000_000]);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operations {
    source: Source,
    /// Of the source's operations, every `of`-th from `part` on.
    part: u64,
    of: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Evenly(Shape),
    Poisson { shape: Shape, seed: u64 },
    Trace { instants_ns: Vec<u64>, speed: Factor },
}

impl Operations {
    /// Returns the operations that are due as the integral of `shape` reaches 0, 1, 2 and so on.
    #[must_use]
    pub const fn evenly(shape: Shape) -> Self {
        Self::all_of(Source::Evenly(shape))
    }

    /// Returns the operations of a Poisson process whose rate is `shape`. Equal seeds give equal
    /// instants on every machine.
    ///
    /// Operation `n` is due as the integral reaches the sum of the first `n + 1` of exponentially
    /// distributed numbers, which have 32 bits of fraction.
    #[must_use]
    pub const fn poisson(shape: Shape, seed: u64) -> Self {
        Self::all_of(Source::Poisson { shape, seed })
    }

    /// Returns operations at `instants_ns / speed`, rounded up.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Backwards`] if an instant is earlier than the one before it.
    pub fn trace(instants_ns: Vec<u64>, speed: Factor) -> Result<Self, ShapeError> {
        let later = instants_ns.iter().skip(1);
        match instants_ns.iter().zip(later).position(|(before, after)| after < before) {
            Some(before) => Err(ShapeError::Backwards { index: before.saturating_add(1) }),
            None => Ok(Self::all_of(Source::Trace { instants_ns, speed })),
        }
    }

    const fn all_of(source: Source) -> Self {
        Self { source, part: 0, of: 1 }
    }

    /// Returns the shape of the rate, of which a split keeps a part. A trace has none.
    #[must_use]
    pub const fn shape(&self) -> Option<&Shape> {
        match &self.source {
            Source::Evenly(shape) | Source::Poisson { shape, .. } => Some(shape),
            Source::Trace { .. } => None,
        }
    }

    /// Returns the operations `part`, `part + of`, `part + 2 of` and so on of these, counted from
    /// 0. All parts together are exactly the whole.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Part`] unless `part < of`, or if the parts of all splits exceed 64 bits.
    pub fn split(mut self, part: u64, of: u64) -> Result<Self, ShapeError> {
        let skipped = self.of.checked_mul(part).and_then(|part| part.checked_add(self.part));
        match (skipped, self.of.checked_mul(of)) {
            (Some(skipped), Some(all)) if part < of => (self.part, self.of) = (skipped, all),
            _ => return Err(ShapeError::Part { part, of }),
        }
        Ok(self)
    }

    /// Returns the instant at which operation `n`, counted from 0, is due, in nanoseconds since
    /// the start. `None` if there is no such operation within 584 years.
    ///
    /// The cost does not grow with `n`, but for a Poisson process: its gaps are added up from the
    /// first, some 30 ns for each.
    #[must_use]
    pub fn due(&self, n: u64) -> Option<u64> {
        let n = self.index(n);
        match &self.source {
            Source::Evenly(shape) => shape.first(Total::of(n)),
            Source::Poisson { shape, seed } => {
                let mut gaps = Gaps::new(*seed);
                gaps.pass(n.checked_add(1)?);
                shape.first(gaps.sum())
            }
            Source::Trace { instants_ns, speed } => traced(instants_ns, *speed, n),
        }
    }

    /// Returns the index of operation `n` in the source.
    fn index(&self, n: u64) -> u128 {
        // Two factors of 64 bits, and one more number of them.
        u128::from(self.of).wrapping_mul(n.into()).wrapping_add(self.part.into())
    }
}

impl IntoIterator for Operations {
    type Item = u64;
    type IntoIter = DueInstants;

    /// Returns the instants at which the operations are due, in nanoseconds since the start.
    fn into_iter(self) -> DueInstants {
        let gaps = match &self.source {
            Source::Poisson { seed, .. } => Some(Gaps::new(*seed)),
            Source::Evenly(_) | Source::Trace { .. } => None,
        };
        DueInstants { operations: self, next: Some(0), gaps }
    }
}

/// The instants at which [`Operations`] are due, in order. The iterator ends with them, or with
/// the clock.
#[derive(Clone, Debug)]
pub struct DueInstants {
    operations: Operations,
    /// The number of the next operation, unless all that 64 bits count have come.
    next: Option<u64>,
    /// The gaps of a Poisson process before it.
    gaps: Option<Gaps>,
}

impl Iterator for DueInstants {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let n = self.next?;
        let due_ns = match (&self.operations.source, &mut self.gaps) {
            (Source::Poisson { shape, .. }, Some(gaps)) => {
                gaps.pass(self.operations.index(n).checked_add(1)?);
                shape.first(gaps.sum())
            }
            _ => self.operations.due(n),
        };
        self.next = due_ns.and_then(|_| n.checked_add(1));
        due_ns
    }
}

impl FusedIterator for DueInstants {}

fn traced(instants_ns: &[u64], speed: Factor, n: u128) -> Option<u64> {
    speed.shortened(*instants_ns.get(usize::try_from(n).ok()?)?)
}

/// The sum of exponentially distributed gaps of mean one.
#[derive(Clone, Debug)]
struct Gaps {
    random: Random,
    passed: u128,
    /// In `1 / 2^32`.
    sum: u128,
}

impl Gaps {
    const fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), passed: 0, sum: 0 }
    }

    /// Adds gaps until `count` of them are in the sum.
    fn pass(&mut self, count: u128) {
        while self.passed < count {
            self.sum = self.sum.saturating_add(self.random.exponential().into());
            self.passed = self.passed.saturating_add(1);
        }
    }

    const fn sum(&self) -> Total {
        Total { whole: self.sum >> 32, part: self.sum << 96 }
    }
}
