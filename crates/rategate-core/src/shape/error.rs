//! The reasons why a shape cannot be built.

use core::error::Error;
use core::fmt;

use super::{MAX_DEPTH, MAX_PARTS, MAX_TICKS_PER_NS};

/// The reason why a [`Shape`](super::Shape) or [`Operations`](super::Operations) cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeError {
    /// A rate is unlimited.
    Unlimited,
    /// A part, a cycle or a repetition takes no time.
    NoTime,
    /// A shape without an end is repeated, or another is to follow it.
    Unending,
    /// The amplitude of a sine is larger than its mean.
    Amplitude,
    /// A factor or a speed is zero, or over zero.
    Factor,
    /// A shape is repeated zero times.
    NoRepetition,
    /// A length, times a factor, is over 584 years.
    TooLong,
    /// The exact numbers of a part exceed 128 bits.
    TooFine,
    /// There are more than [`MAX_PARTS`] parts.
    TooManyParts,
    /// Shapes are nested more than [`MAX_DEPTH`] deep.
    TooDeep,
    /// A part of a split does not exist, or there are more parts than 64 bits count.
    Part {
        /// The part, from 0.
        part: u64,
        /// The number of parts.
        of: u64,
    },
    /// An instant of a trace is earlier than the one before it.
    Backwards {
        /// The index of the earlier instant, from 0.
        index: usize,
    },
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unlimited => "an unlimited rate has no shape; write a finite rate, as in 100/s",
            Self::NoTime => "a part of a shape takes at least 1ns",
            Self::Unending => {
                "the shape never ends, so nothing can follow or repeat it; give it a length"
            }
            Self::Amplitude => "the amplitude of a sine is at most its mean rate",
            Self::Factor => "a factor is a fraction of two whole numbers above zero",
            Self::NoRepetition => "a shape is repeated at least once",
            Self::TooLong => "the shape is longer than 584 years",
            Self::TooFine => {
                return write!(
                    f,
                    "the numbers of the shape exceed 128 bits, or {MAX_TICKS_PER_NS} parts of a \
                     nanosecond; use rounder rates, lengths and factors"
                );
            }
            Self::TooManyParts => return write!(f, "a shape has at most {MAX_PARTS} parts"),
            Self::TooDeep => return write!(f, "shapes are nested at most {MAX_DEPTH} deep"),
            Self::Part { part, of } => {
                return write!(
                    f,
                    "part {part} of {of}: parts count from 0, up to one less than their number; \
                     splits of splits make at most 2^64 parts"
                );
            }
            Self::Backwards { index } => {
                return write!(f, "instant {index} of the trace is earlier than the one before it");
            }
        })
    }
}

impl Error for ShapeError {}
