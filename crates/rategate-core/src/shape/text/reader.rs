//! The grammar of a load, read from left to right.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{LoadError, LoadFault, Written};
use crate::error::RateError;
use crate::rate::Rate;
use crate::shape::{MAX_DEPTH, Shape, ShapeError};
use crate::span;

/// The forms of shapes.
const SHAPES: &str =
    "\"constant:\", \"ramp:\", \"stages:\", \"sawtooth:\", \"sine:\" or a parenthesis";
/// The forms of loads: a shape, or what stands around a whole one.
const LOADS: &str = "\"constant:\", \"ramp:\", \"stages:\", \"sawtooth:\", \"sine:\", \
                     \"poisson(\" or a parenthesis";

type Parsed = (Written, Shape);

/// A text, and how much of it is read.
pub(super) struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: u32,
}

impl<'t> Reader<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn spaces(&mut self) {
        let rest = self.rest();
        self.skip(rest.len().saturating_sub(rest.trim_start_matches(' ').len()));
    }

    const fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    pub(super) fn takes(&mut self, word: &str) -> bool {
        let found = self.rest().starts_with(word);
        if found {
            self.skip(word.len());
        }
        found
    }

    /// Returns `true` if nothing but spaces has been read.
    fn is_at_the_start(&self) -> bool {
        self.text.get(..self.at).is_some_and(|read| read.trim_start_matches(' ').is_empty())
    }

    pub(super) const fn expected(&self, what: &'static str) -> LoadError {
        LoadError { at: self.at, fault: LoadFault::Expected(what) }
    }

    pub(super) fn expect(&mut self, word: &str, what: &'static str) -> Result<(), LoadError> {
        if self.takes(word) { Ok(()) } else { Err(self.expected(what)) }
    }

    /// Reads up to the next mark, and turns what is read into a value.
    fn value<T>(&mut self, of: impl FnOnce(&str) -> Result<T, LoadFault>) -> Result<T, LoadError> {
        let rest = self.rest();
        let end = rest.find([' ', ',', '>', '@', '(', ')', '+']).unwrap_or(rest.len());
        let value = of(rest.get(..end).unwrap_or(rest));
        let value = value.map_err(|fault| LoadError { at: self.at, fault })?;
        self.skip(end);
        Ok(value)
    }

    fn rate(&mut self) -> Result<Rate, LoadError> {
        self.value(|text| match text.parse() {
            // Ramps begin at zero, for which rates have a word only.
            Err(RateError::Zero) => Ok(Rate::NEVER),
            rate => rate.map_err(LoadFault::Rate),
        })
    }

    fn length(&mut self) -> Result<u64, LoadError> {
        self.value(|text| span::parse(text).map_err(LoadFault::Length))
    }

    pub(super) fn number(&mut self) -> Result<u64, LoadError> {
        let digits = |text: &str| !text.starts_with('+') && !text.is_empty();
        self.value(|text| match text.parse() {
            Ok(number) if digits(text) => Ok(number),
            _ => Err(LoadFault::Expected("a whole number below 2^64")),
        })
    }

    pub(super) fn sequence(&mut self) -> Result<Parsed, LoadError> {
        self.joined("then ", Self::sum, Shape::then, Written::Then)
    }

    fn sum(&mut self) -> Result<Parsed, LoadError> {
        self.joined("+", Self::repeated, Shape::plus, Written::Plus)
    }

    /// Reads one `part` or several with `word` between them.
    fn joined(
        &mut self,
        word: &str,
        part: fn(&mut Self) -> Result<Parsed, LoadError>,
        join: fn(Shape, Shape) -> Result<Shape, ShapeError>,
        all: fn(Vec<Written>) -> Written,
    ) -> Result<Parsed, LoadError> {
        self.spaces();
        let (first, mut shape) = part(self)?;
        let mut parts = Vec::from([first]);
        self.spaces();
        while self.takes(word) {
            self.spaces();
            let at = self.at;
            let (next, next_shape) = part(self)?;
            shape = join(shape, next_shape).map_err(fault(at))?;
            parts.push(next);
            self.spaces();
        }
        let one = if parts.len() == 1 { parts.pop() } else { None };
        Ok((one.unwrap_or_else(|| all(parts)), shape))
    }

    fn repeated(&mut self) -> Result<Parsed, LoadError> {
        let at = self.at;
        let (mut written, mut shape) = self.form()?;
        loop {
            self.spaces();
            if self.takes("x") {
                let times = self.number()?;
                shape = shape.repeated(times).map_err(fault(at))?;
                written = Written::Times(Box::new(written), times);
            } else if self.takes("@") {
                let length_ns = self.length()?;
                shape = shape.lasting(length_ns).map_err(fault(at))?;
                // Of several lengths the shortest holds; to nest them would have no bound.
                written = match written {
                    Written::Lasting(whole, own_ns) => {
                        Written::Lasting(whole, own_ns.min(length_ns))
                    }
                    written => Written::Lasting(Box::new(written), length_ns),
                };
            } else {
                return Ok((written, shape));
            }
        }
    }

    fn form(&mut self) -> Result<Parsed, LoadError> {
        let at = self.at;
        if self.takes("(") {
            if self.depth >= MAX_DEPTH {
                return Err(LoadError { at, fault: LoadFault::Shape(ShapeError::TooDeep) });
            }
            self.depth = self.depth.saturating_add(1);
            let inner = self.sequence()?;
            self.depth = self.depth.saturating_sub(1);
            self.expect(")", "a closing parenthesis")?;
            return Ok(inner);
        }
        let written = if self.takes("constant:") {
            Written::Constant(self.rate()?)
        } else if self.takes("ramp:") {
            let (from, to, over_ns) = self.ramp()?;
            Written::Ramp(from, to, over_ns)
        } else if self.takes("sawtooth:") {
            let (from, to, over_ns) = self.ramp()?;
            Written::Sawtooth(from, to, over_ns)
        } else if self.takes("stages:") {
            let (from, to, over_ns) = self.ramp()?;
            let mut stages = Vec::from([(to, over_ns)]);
            while self.takes(",") {
                stages.push(self.stage()?);
            }
            Written::Stages(from, stages)
        } else if self.takes("sine:") {
            self.sine()?
        } else {
            return Err(self.expected(if self.is_at_the_start() { LOADS } else { SHAPES }));
        };
        let shape = written.shape().map_err(fault(at))?;
        Ok((written, shape))
    }

    fn ramp(&mut self) -> Result<(Rate, Rate, u64), LoadError> {
        let from = self.rate()?;
        self.expect(">", "\">\" and the rate at the end, as in 0/s>100/s@10s")?;
        let (to, over_ns) = self.stage()?;
        Ok((from, to, over_ns))
    }

    fn stage(&mut self) -> Result<(Rate, u64), LoadError> {
        let to = self.rate()?;
        self.expect("@", "\"@\" and a length, as in 100/s@10s")?;
        Ok((to, self.length()?))
    }

    fn sine(&mut self) -> Result<Written, LoadError> {
        const PARTS: &str = "a comma; a sine has a mean, an amplitude and a cycle, as in \
                             100/s,50/s,60s";
        let mean = self.rate()?;
        self.expect(",", PARTS)?;
        let amplitude = self.rate()?;
        self.expect(",", PARTS)?;
        let cycle_ns = self.length()?;
        let phase = if self.takes(",") { Some(self.value(phase)?) } else { None };
        Ok(Written::Sine(mean, amplitude, cycle_ns, phase))
    }
}

/// Reads a phase of turns, as in `1/4`.
fn phase(text: &str) -> Result<(u64, u64), LoadFault> {
    let sides = text.split_once('/').and_then(|(p, q)| Some((p.parse().ok()?, q.parse().ok()?)));
    sides.ok_or(LoadFault::Expected("a fraction of a turn, as in 1/4"))
}

fn fault(at: usize) -> impl FnOnce(ShapeError) -> LoadError {
    move |error| LoadError { at, fault: LoadFault::Shape(error) }
}
