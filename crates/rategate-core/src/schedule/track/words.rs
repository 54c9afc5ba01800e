//! Conversion of tracks to and from portable words.

use alloc::collections::VecDeque;

use super::{Fraction, Piece, PieceKind, Track};
use crate::exact::Exact;
use crate::portable::{Moment, Reader, WordsError, Writer};
use crate::schedule::{Form, Schedule};

impl Track {
    pub(crate) fn write(&self, words: &mut Writer) {
        words.word(u64::try_from(self.pieces.len()).unwrap_or(u64::MAX));
        for piece in &self.pieces {
            piece.schedule.write(words);
            words.instant(piece.since_ns);
            words.optional(piece.left);
            piece.course.write(words);
        }
    }

    pub(crate) fn read(words: &mut Reader<'_>) -> Result<Self, WordsError> {
        let mut pieces = VecDeque::new();
        // All pieces but the last have a length.
        for _ in 1..words.number()?.get() {
            let piece = Piece::read(words)?;
            if piece.left.is_none() {
                return Err(words.malformed());
            }
            pieces.push_back(piece);
        }
        let last = Piece::read(words)?;
        if last.left.is_some() {
            return Err(words.malformed());
        }
        pieces.push_back(last);
        Self { pieces }.since_zero()
    }

    /// Moves the track onto the clock. Operations due before the clock's zero are forfeited: late
    /// ones may belong to a rate long replaced, so they must not come later instead.
    fn since_zero(mut self) -> Result<Self, WordsError> {
        let begins_ns = |piece: &Piece| match piece.course {
            PieceKind::Ramp { start_ns, .. } => start_ns,
            _ => ZERO_NS,
        };
        let short_ns = ZERO_NS.saturating_sub(self.pieces.iter().map(begins_ns).min().unwrap_or(0));
        self.forfeit_before(ZERO_NS);
        for piece in &mut self.pieces {
            piece.since_ns = piece.since_ns.saturating_sub(ZERO_NS);
            match &mut piece.course {
                PieceKind::Paced { next, .. } => *next = on_clock(*next),
                PieceKind::Ramp { start_ns, .. } => {
                    let short_ns = u64::try_from(short_ns).unwrap_or(u64::MAX);
                    let on_clock_ns = start_ns.checked_sub(ZERO_NS);
                    *start_ns = on_clock_ns.ok_or(WordsError::BeforeClock { short_ns })?;
                }
                PieceKind::AtOnce | PieceKind::Stopped { .. } => {}
            }
        }
        Ok(self)
    }
}

/// The instant of the clock's zero while a track is read. It leaves more than two lengths of a
/// 64-bit clock before zero.
const ZERO_NS: u128 = 1 << 66;

/// Returns an instant shifted by [`ZERO_NS`], so that it may lie before the clock's zero.
fn offset(moment: Moment) -> u128 {
    match moment {
        Moment::At(ns) => ZERO_NS.saturating_add(ns),
        Moment::Before(ns) => ZERO_NS.saturating_sub(ns),
    }
}

/// Returns the shifted instant on the clock, or the clock's zero if it lies before that.
fn on_clock(offset: Exact) -> Exact {
    match offset.ns.checked_sub(ZERO_NS) {
        Some(ns) => Exact { ns, ..offset },
        None => Exact::default(),
    }
}

impl Piece {
    fn read(words: &mut Reader<'_>) -> Result<Self, WordsError> {
        let schedule = Schedule::read(words)?;
        let since_ns = offset(words.instant()?);
        let left = words.optional()?;
        let course = PieceKind::read(schedule, words)?;
        Ok(Self { schedule, since_ns, course, left })
    }
}

impl PieceKind {
    fn write(&self, words: &mut Writer) {
        match *self {
            Self::AtOnce => words.word(0),
            Self::Paced { next, pace } => {
                words.word(1);
                words.pace(pace);
                words.instant(next.ns);
                words.word(next.part);
            }
            Self::Ramp { start_ns, passed, .. } => {
                words.word(2);
                words.instant(start_ns);
                words.wide(passed);
            }
            Self::Stopped { missing: Fraction { whole, numerator, denominator } } => {
                words.word(3);
                words.wide(whole);
                words.word(numerator);
                words.word(denominator);
            }
        }
    }

    fn read(schedule: Schedule, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        Ok(match (words.up_to(3)?, schedule.0) {
            (0, _) => Self::AtOnce,
            (1, _) => {
                let pace = words.pace()?;
                let ns = offset(words.instant()?);
                Self::Paced { next: Exact { ns, part: words.part(pace)? }, pace }
            }
            (2, Form::Ramp(ramp)) => {
                Self::Ramp { ramp, start_ns: offset(words.instant()?), passed: words.wide()? }
            }
            // The course is along a ramp, but the schedule has none.
            (2, Form::Constant(_)) => return Err(words.malformed()),
            _ => {
                let (whole, numerator, denominator) = (words.wide()?, words.word()?, words.word()?);
                if numerator >= denominator {
                    return Err(words.malformed());
                }
                Self::Stopped { missing: Fraction { whole, numerator, denominator } }
            }
        })
    }
}

impl Schedule {
    pub(crate) fn write(self, words: &mut Writer) {
        match self.0 {
            Form::Constant(rate) => {
                words.word(0);
                words.rate(rate);
            }
            Form::Ramp(ramp) => {
                words.word(1);
                words.rate(ramp.first_rate());
                words.rate(ramp.last_rate());
                words.word(ramp.over_ns.get());
            }
        }
    }

    pub(crate) fn read(words: &mut Reader<'_>) -> Result<Self, WordsError> {
        if words.up_to(1)? == 0 {
            return Ok(Self::constant(words.rate()?));
        }
        Ok(Self::ramp(words.rate()?, words.rate()?, words.word()?)?)
    }
}
