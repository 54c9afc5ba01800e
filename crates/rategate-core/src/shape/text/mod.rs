//! The text form of a load.
//!
//! ```text
//! constant:100/s            for ever
//! ramp:0/s>100/s@10s        up in 10 s       sawtooth:0/s>100/s@10s   up again and again
//! stages:0/s>100/s@5s,100/s@1s,0/s@5s        ramps to each rate, as the stages of k6
//! sine:100/s,50/s,60s       mean, amplitude, cycle; `,1/4` after it is the phase in turns
//! A then B                  B after the end of A
//! A + B                     both at once
//! A @10s                    the first 10 s of A
//! A x3                      three times
//! poisson(A),seed=7         at random around A
//! ```
//!
//! `@10s` and `x3` bind most tightly, then `+`, then `then`; parentheses group.

mod reader;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use core::str::FromStr;

use super::{Factor, Operations, Shape, ShapeError};
use crate::error::{RateError, SpanError};
use crate::rate::Rate;
use crate::span;

use self::reader::Reader;

/// Operations as they are written.
///
/// ```
/// use rategate_core::shape::Load;
///
/// let load: Load = "ramp:0/s>100/s@10s then constant:100/s".parse()?;
/// assert_eq!(load.operations().due(500), Some(10_000_000_000));
/// assert_eq!(load.to_string(), "ramp:0/s>100/s@10s then constant:100/s");
/// # Ok::<(), rategate_core::shape::LoadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    written: Written,
    seed: Option<u64>,
    operations: Operations,
}

impl Load {
    /// Returns the operations.
    #[must_use]
    pub const fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Returns the operations, without their text.
    #[must_use]
    pub fn into_operations(self) -> Operations {
        self.operations
    }
}

/// The reason why a text is no load, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadError {
    /// The byte of the text at which it is found, from 0.
    pub at: usize,
    /// The fault there.
    pub fault: LoadFault,
}

/// A fault of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadFault {
    /// Something else is expected: what it is.
    Expected(&'static str),
    /// A rate is malformed.
    Rate(RateError),
    /// A length is malformed.
    Length(SpanError),
    /// The shape that begins here cannot be built.
    Shape(ShapeError),
}

/// A shape as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Written {
    Constant(Rate),
    /// From, to, and the time of a ramp or of each tooth.
    Ramp(Rate, Rate, u64),
    Sawtooth(Rate, Rate, u64),
    Stages(Rate, Vec<(Rate, u64)>),
    /// Mean, amplitude, cycle, and the phase as two numbers.
    Sine(Rate, Rate, u64, Option<(u64, u64)>),
    Then(Vec<Self>),
    Plus(Vec<Self>),
    Lasting(Box<Self>, u64),
    Times(Box<Self>, u64),
}

impl FromStr for Load {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        let mut reader = Reader::new(text);
        reader.spaces();
        let poisson = reader.takes("poisson(");
        let (written, shape) = reader.sequence()?;
        let seed = if poisson {
            reader.expect("),seed=", "\"),seed=\" and a whole number after the shape")?;
            Some(reader.number()?)
        } else {
            None
        };
        reader.spaces();
        if !reader.rest().is_empty() {
            return Err(reader
                .expected("\"then\", \"+\", \"@\" and a length, \"x\" and a number, or the end"));
        }
        let operations = match seed {
            Some(seed) => Operations::poisson(shape, seed),
            None => Operations::evenly(shape),
        };
        Ok(Self { written, seed, operations })
    }
}

impl Written {
    /// Returns the shape of a form that has no shapes within.
    fn shape(&self) -> Result<Shape, ShapeError> {
        match self {
            Self::Constant(rate) => Shape::constant(*rate),
            Self::Ramp(from, to, over_ns) => Shape::ramp(*from, *to, *over_ns),
            Self::Sawtooth(from, to, over_ns) => Shape::sawtooth(*from, *to, *over_ns),
            Self::Stages(first, stages) => Shape::stages(*first, stages.iter().copied()),
            Self::Sine(mean, amplitude, cycle_ns, phase) => {
                let phase = phase.map_or(Ok(Factor::ONE), |(p, q)| Factor::new(p, q))?;
                Shape::sine(*mean, *amplitude, *cycle_ns, phase)
            }
            Self::Then(_) | Self::Plus(_) | Self::Lasting(..) | Self::Times(..) => {
                Err(ShapeError::NoTime)
            }
        }
    }

    /// Returns how tightly it holds its parts together.
    const fn binds(&self) -> u8 {
        match self {
            Self::Then(_) => 0,
            Self::Plus(_) => 1,
            Self::Lasting(..) | Self::Times(..) => 2,
            _ => 3,
        }
    }

    /// Writes it as a part of what binds as tightly as `above`.
    fn within(&self, f: &mut fmt::Formatter<'_>, above: u8) -> fmt::Result {
        if self.binds() < above { write!(f, "({self})") } else { write!(f, "{self}") }
    }
}

/// A rate as loads have it: zero is a number.
struct Shown(Rate);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Rate::NEVER { f.write_str("0/s") } else { self.0.fmt(f) }
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ramp = |f: &mut fmt::Formatter<'_>, name, from: Rate, to: Rate, over_ns| {
            write!(f, "{name}:{}>{}@{}", Shown(from), Shown(to), span::Text(over_ns))
        };
        match self {
            Self::Constant(rate) => write!(f, "constant:{}", Shown(*rate)),
            Self::Ramp(from, to, over_ns) => ramp(f, "ramp", *from, *to, *over_ns),
            Self::Sawtooth(from, to, over_ns) => ramp(f, "sawtooth", *from, *to, *over_ns),
            Self::Stages(first, stages) => {
                write!(f, "stages:{}", Shown(*first))?;
                for (index, (to, over_ns)) in stages.iter().enumerate() {
                    let mark = if index == 0 { ">" } else { "," };
                    write!(f, "{mark}{}@{}", Shown(*to), span::Text(*over_ns))?;
                }
                Ok(())
            }
            Self::Sine(mean, amplitude, cycle_ns, phase) => {
                let cycle = span::Text(*cycle_ns);
                write!(f, "sine:{},{},{cycle}", Shown(*mean), Shown(*amplitude))?;
                phase.map_or(Ok(()), |(p, q)| write!(f, ",{p}/{q}"))
            }
            Self::Then(parts) | Self::Plus(parts) => {
                let word = if self.binds() == 0 { " then " } else { " + " };
                for (index, part) in parts.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { word })?;
                    part.within(f, self.binds().saturating_add(1))?;
                }
                Ok(())
            }
            Self::Lasting(whole, length_ns) => {
                whole.within(f, self.binds())?;
                write!(f, "@{}", span::Text(*length_ns))
            }
            Self::Times(each, times) => {
                each.within(f, self.binds())?;
                write!(f, " x{times}")
            }
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seed {
            Some(seed) => write!(f, "poisson({}),seed={seed}", self.written),
            None => self.written.fmt(f),
        }
    }
}

impl fmt::Display for LoadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected(what) => write!(f, "expected {what}"),
            Self::Rate(error) => fmt_rate_error(*error, f),
            Self::Length(error) => error.fmt(f),
            Self::Shape(error) => error.fmt(f),
        }
    }
}

/// Writes what is wrong with a rate of a shape, where zero is a number and no rate is unlimited.
fn fmt_rate_error(error: RateError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match error {
        RateError::Malformed => {
            "not a rate; write N/PERIOD as in \"5/s\" or \"1000/10s\", or \"0/s\" for none"
        }
        RateError::ZeroPeriod => {
            "a rate with a period of zero; write N/PERIOD as in \"5/s\" or \"1000/10s\""
        }
        RateError::Negative => "a rate is never negative; write \"0/s\" for none",
        error => return write!(f, "{error}"),
    })
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.fault)
    }
}

impl Error for LoadError {}
