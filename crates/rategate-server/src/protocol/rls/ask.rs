//! `RateLimitRequest`, without copies.

use smallvec::SmallVec;

use super::proto::{Malformed, Reader};
use crate::engine::{MOST_ITEMS, Override};
use crate::rule::Unit;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask<'a> {
    /// The domain of the rules.
    pub domain: &'a str,
    /// What the calls are about, each of which has to pass.
    pub descriptors: SmallVec<[Descriptor<'a>; 2]>,
    /// How many permits each descriptor takes that does not say so itself; 0 means 1.
    pub hits: u32,
}

/// One thing that a call is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// Keys and values, in order.
    pub entries: SmallVec<[(&'a [u8], &'a [u8]); 4]>,
    /// The caller's own limit.
    pub limit: Option<Override>,
    /// How many permits. 0 looks and takes nothing.
    pub hits: Option<u64>,
    /// Whether they go back.
    pub refund: bool,
}

/// Why a request is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// Its bytes are no message.
    #[error("the request is malformed: {0}")]
    Malformed(&'static str),
    /// Its text is no JSON of this message.
    #[error("the request is malformed: {0}")]
    Json(String),
    /// No domain.
    #[error("rate limit domain must not be empty")]
    NoDomain,
    /// Nothing to decide.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// More than a request may have.
    #[error("there are more than {most} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The most.
        most: usize,
    },
    /// A limit of the caller's in a unit that there is not.
    #[error("the limit of descriptor {descriptor} has no unit")]
    NoUnit {
        /// Which, from 0.
        descriptor: usize,
    },
}

impl From<Malformed> for Wrong {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Malformed(why)
    }
}

impl<'a> Ask<'a> {
    /// Reads the message.
    ///
    /// # Errors
    ///
    /// [`Wrong::Malformed`], [`Wrong::TooMany`], [`Wrong::NoUnit`].
    pub fn read(message: &'a [u8]) -> Result<Self, Wrong> {
        let mut ask = Self::default();
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => ask.domain = value.text()?,
                2 => {
                    few(ask.descriptors.len(), "descriptors")?;
                    let descriptor = Descriptor::read(value.bytes()?, ask.descriptors.len())?;
                    ask.descriptors.push(descriptor);
                }
                3 => ask.hits = value.small()?,
                _ => {}
            }
        }
        Ok(ask)
    }

    /// Whether it gives permits back.
    #[must_use]
    pub fn credits(&self) -> bool {
        self.descriptors.iter().any(|descriptor| descriptor.refund)
    }
}

impl<'a> Descriptor<'a> {
    fn read(message: &'a [u8], index: usize) -> Result<Self, Wrong> {
        let mut descriptor = Self::default();
        let mut limit = None;
        let mut fields = Reader::new(message);
        while let Some((number, value)) = fields.field()? {
            match number {
                1 => {
                    few(descriptor.entries.len(), "entries")?;
                    descriptor.entries.push(entry(value.bytes()?)?);
                }
                // What comes several times is merged.
                2 => {
                    let (permits, unit) = limit.get_or_insert((0, 0));
                    let mut fields = Reader::new(value.bytes()?);
                    while let Some((number, value)) = fields.field()? {
                        match number {
                            1 => *permits = value.small()?,
                            2 => *unit = value.small()?,
                            _ => {}
                        }
                    }
                }
                3 => {
                    let hits = descriptor.hits.get_or_insert(0);
                    let mut fields = Reader::new(value.bytes()?);
                    while let Some((number, value)) = fields.field()? {
                        if number == 1 {
                            *hits = value.integer()?;
                        }
                    }
                }
                4 => descriptor.refund = value.integer()? != 0,
                _ => {}
            }
        }
        if let Some((permits, number)) = limit {
            let unit = unit_of(number).ok_or(Wrong::NoUnit { descriptor: index })?;
            descriptor.limit = Some(Override { permits: u64::from(permits), unit });
        }
        Ok(descriptor)
    }
}

/// Whether there may be one more. An empty one takes two bytes of a message, and a hundred times that in memory.
const fn few(so_far: usize, what: &'static str) -> Result<(), Wrong> {
    if so_far < MOST_ITEMS { Ok(()) } else { Err(Wrong::TooMany { what, most: MOST_ITEMS }) }
}

/// Reads a key and its value as bytes. The format calls them text, but proxies put header fields of their clients there unchecked: an
/// error about one byte would let a client choose that no limit holds for it.
fn entry(message: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut entry: (&[u8], &[u8]) = (b"", b"");
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.field()? {
        match number {
            1 => entry.0 = value.bytes()?,
            2 => entry.1 = value.bytes()?,
            _ => {}
        }
    }
    Ok(entry)
}

/// The unit of a number of `envoy.type.v3.RateLimitUnit`, which are those of the answer's units too.
pub(super) const fn unit_of(number: u32) -> Option<Unit> {
    match number {
        1 => Some(Unit::Second),
        2 => Some(Unit::Minute),
        3 => Some(Unit::Hour),
        4 => Some(Unit::Day),
        5 => Some(Unit::Month),
        6 => Some(Unit::Year),
        7 => Some(Unit::Week),
        _ => None,
    }
}

/// A unit's number.
pub(super) const fn number_of(unit: Unit) -> u8 {
    match unit {
        Unit::Second => 1,
        Unit::Minute => 2,
        Unit::Hour => 3,
        Unit::Day => 4,
        Unit::Month => 5,
        Unit::Year => 6,
        Unit::Week => 7,
    }
}
