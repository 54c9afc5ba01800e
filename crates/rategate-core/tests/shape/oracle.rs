//! Shapes written out plainly, in rational numbers of any size.
//!
//! The integral of each is computed as its definition says, without units, rounding or a search.
//! A sine is computed to 256 bits, of which 50 decimal digits and more are right.

use fastrand::Rng;
use num_bigint::BigInt;
use rategate_core::rate::Rate;
use rategate_core::shape::{Factor, Shape, ShapeError};

use crate::common::fraction;

const BITS: u32 = 256;

/// A rational number, not reduced; the denominator is above zero.
#[derive(Clone, Debug)]
pub(super) struct Rational(pub(super) BigInt, pub(super) BigInt);

impl Rational {
    pub(super) fn new(numerator: impl Into<BigInt>, denominator: impl Into<BigInt>) -> Self {
        Self(numerator.into(), denominator.into())
    }

    pub(super) fn whole(number: impl Into<BigInt>) -> Self {
        Self::new(number, 1)
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        Self(&self.0 * &other.1 + &other.0 * &self.1, &self.1 * &other.1)
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        Self(&self.0 * &other.1 - &other.0 * &self.1, &self.1 * &other.1)
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        Self(&self.0 * &other.0, &self.1 * &other.1)
    }

    pub(super) fn over(&self, other: &Self) -> Self {
        Self(&self.0 * &other.1, &self.1 * &other.0)
    }

    pub(super) fn floor(&self) -> BigInt {
        // None here is negative.
        &self.0 / &self.1
    }

    pub(super) fn at_least(&self, other: &Self) -> bool {
        &self.0 * &other.1 >= &other.0 * &self.1
    }

    fn least(self, other: Self) -> Self {
        if self.at_least(&other) { other } else { self }
    }
}

/// A shape as it is built.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Constant(Rate),
    Ramp(Rate, Rate, u64),
    /// Mean, amplitude, cycle, and phase in turns.
    Sine(Rate, Rate, u64, (u64, u64)),
    Lasting(Box<Self>, u64),
    Then(Box<Self>, Box<Self>),
    Plus(Box<Self>, Box<Self>),
    Times(Box<Self>, u64),
    Rate(Box<Self>, (u64, u64)),
    Time(Box<Self>, (u64, u64)),
}

impl Tree {
    pub(super) fn shape(&self) -> Result<Shape, ShapeError> {
        let factor = |(numerator, denominator)| Factor::new(numerator, denominator);
        match self {
            Self::Constant(rate) => Shape::constant(*rate),
            Self::Ramp(from, to, over_ns) => Shape::ramp(*from, *to, *over_ns),
            Self::Sine(mean, amplitude, cycle_ns, phase) => {
                Shape::sine(*mean, *amplitude, *cycle_ns, factor(*phase)?)
            }
            Self::Lasting(tree, ns) => tree.shape()?.lasting(*ns),
            Self::Then(first, next) => first.shape()?.then(next.shape()?),
            Self::Plus(one, other) => one.shape()?.plus(other.shape()?),
            Self::Times(tree, times) => tree.shape()?.repeated(*times),
            Self::Rate(tree, by) => tree.shape()?.with_rate_times(factor(*by)?),
            Self::Time(tree, by) => tree.shape()?.with_time_times(factor(*by)?),
        }
    }

    /// Returns the length in nanoseconds, or `None` if it never ends.
    pub(super) fn length(&self) -> Option<Rational> {
        match self {
            Self::Constant(_) | Self::Sine(..) => None,
            Self::Ramp(_, _, over_ns) => Some(Rational::whole(*over_ns)),
            Self::Lasting(tree, ns) => {
                let cut = Rational::whole(*ns);
                Some(tree.length().map_or(cut.clone(), |length| length.least(cut)))
            }
            Self::Then(first, next) => Some(first.length()?.plus(&next.length()?)),
            Self::Plus(one, other) => {
                let (one, other) = (one.length()?, other.length()?);
                Some(if one.at_least(&other) { one } else { other })
            }
            Self::Times(tree, times) => Some(tree.length()?.times(&Rational::whole(*times))),
            Self::Rate(tree, _) => tree.length(),
            Self::Time(tree, (p, q)) => Some(tree.length()?.times(&Rational::new(*p, *q))),
        }
    }

    /// Returns the integral of the rate up to `t` nanoseconds.
    pub(super) fn reached(&self, t: &Rational) -> Rational {
        let t = &self.length().map_or(t.clone(), |length| length.least(t.clone()));
        match self {
            Self::Constant(rate) => per_ns(*rate).times(t),
            Self::Ramp(from, to, over_ns) => {
                // from t + (to - from) t^2 / (2 over)
                let rise = per_ns(*to).minus(&per_ns(*from));
                let bend = rise.times(t).times(t).over(&Rational::new(*over_ns, 1).times(&two()));
                per_ns(*from).times(t).plus(&bend)
            }
            Self::Sine(mean, amplitude, cycle_ns, (p, q)) => {
                let cycle = Rational::whole(*cycle_ns);
                let phase = Rational::new(*p, *q);
                let now = phase.plus(&t.over(&cycle));
                let swung = cosine(&phase).minus(&cosine(&now));
                let over_two_pi = Rational::new(BigInt::from(1) << BITS, pi() * 2);
                let most = per_ns(*amplitude).times(&cycle).times(&over_two_pi);
                per_ns(*mean).times(t).plus(&most.times(&swung))
            }
            Self::Lasting(tree, _) => tree.reached(t),
            Self::Then(first, next) => {
                let start = first.length().unwrap();
                if start.at_least(t) {
                    return first.reached(t);
                }
                first.reached(&start).plus(&next.reached(&t.minus(&start)))
            }
            Self::Plus(one, other) => one.reached(t).plus(&other.reached(t)),
            Self::Times(tree, times) => {
                let length = tree.length().unwrap();
                let over = t.over(&length).floor().min((*times).into());
                let over = Rational::whole(over);
                let rest = t.minus(&over.times(&length));
                let each = tree.reached(&length).times(&over);
                if over.at_least(&Rational::whole(*times)) {
                    each
                } else {
                    each.plus(&tree.reached(&rest))
                }
            }
            Self::Rate(tree, (p, q)) => tree.reached(t).times(&Rational::new(*p, *q)),
            Self::Time(tree, (p, q)) => tree.reached(&t.times(&Rational::new(*q, *p))),
        }
    }

    /// Returns `true` if instants on this shape are exact to the last bit.
    pub(super) fn is_made_of_lines(&self) -> bool {
        match self {
            Self::Constant(_) | Self::Ramp(..) => true,
            Self::Sine(..) => false,
            Self::Lasting(tree, _)
            | Self::Times(tree, _)
            | Self::Rate(tree, _)
            | Self::Time(tree, _) => tree.is_made_of_lines(),
            Self::Then(one, other) | Self::Plus(one, other) => {
                one.is_made_of_lines() && other.is_made_of_lines()
            }
        }
    }

    /// Returns a random shape of up to `depth` levels.
    pub(super) fn random(random: &mut Rng, depth: u32) -> Self {
        let lengths = [1, 999, 1_000_000, 17_000_001, 1_000_000_000, 7_000_000_000, 60_000_000_000];
        let length = random.choice(lengths).unwrap();
        let rates = ["never", "1/s", "3/s", "7/min", "1000/s", "999983/s", "5/7ms", "1000000000/s"];
        let mut rate = || random.choice(rates).unwrap().parse::<Rate>().unwrap();
        let (first, second) = (rate(), rate());
        if depth == 0 {
            return match random.u8(..5) {
                0 => Self::Constant(first),
                1 => {
                    let phase = (random.u64(1..=8), random.u64(1..=8));
                    let low = second.fraction().is_some() && {
                        let ((n, p), (m, q)) = (fraction(first_or(first)), fraction(second));
                        m * p <= n * q
                    };
                    let amplitude = if low { second } else { first_or(first) };
                    Self::Sine(first_or(first), amplitude, length.max(1_000_000), phase)
                }
                _ => Self::Ramp(first, second, length),
            };
        }
        let mut below = || Box::new(Self::random(random, depth - 1));
        let (one, other) = (below(), below());
        let factor = (random.u64(1..=12), random.u64(1..=12));
        let ending = |tree: Box<Self>| match tree.length() {
            Some(_) => tree,
            None => Box::new(Self::Lasting(tree, length)),
        };
        match random.u8(..7) {
            0 => Self::Lasting(one, length),
            1 | 2 => Self::Then(ending(one), other),
            3 => Self::Plus(one, other),
            4 => Self::Times(ending(one), random.choice([1, 2, 3, 1_000_000]).unwrap()),
            5 => Self::Rate(one, factor),
            _ => Self::Time(one, factor),
        }
    }
}

fn first_or(rate: Rate) -> Rate {
    if rate == Rate::NEVER { Rate::per_second(20) } else { rate }
}

fn two() -> Rational {
    Rational::whole(2)
}

fn per_ns(rate: Rate) -> Rational {
    rate.fraction().map_or(Rational::whole(0), |(permits, ns)| Rational::new(permits, ns))
}

/// Returns pi in `1 / 2^BITS`, by Machin's formula: 16 atan(1/5) - 4 atan(1/239).
pub(super) fn pi() -> BigInt {
    let guarded = BITS + 32;
    let arctan = |x: u64| {
        let square = BigInt::from(x * x);
        let mut power = (BigInt::from(1) << guarded) / x;
        let (mut sum, mut n) = (power.clone(), 3_u64);
        while power != BigInt::from(0) {
            power = -power / &square;
            sum += &power / n;
            n += 2;
        }
        sum
    };
    (arctan(5) * 16 - arctan(239) * 4) >> 32
}

/// Returns the cosine of an angle in turns, to some 250 bits, by its power series.
pub(super) fn cosine(turns: &Rational) -> Rational {
    let turn = &turns.0 % &turns.1;
    let x = (turn * pi() * 2) / &turns.1;
    let square = (&x * &x) >> BITS;
    let one = BigInt::from(1) << BITS;
    let (mut sum, mut term, mut n) = (one.clone(), one.clone(), 1_u64);
    while term != BigInt::from(0) {
        let next: BigInt = (&term * &square) >> BITS;
        term = -next / (n * (n + 1));
        sum += &term;
        n += 2;
    }
    Rational(sum, one)
}
