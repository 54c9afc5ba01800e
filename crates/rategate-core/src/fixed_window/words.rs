//! A fixed window as words, to save and restore it.

use super::{Anchor, CARRIED, FixedWindow, MAX_CHARGED, State, Windows};
use crate::calendar::Calendar;
use crate::portable::{Moment, Portable, Reader, WordsError, Writer, tag};
use crate::window_debt;

impl State {
    /// Returns the count, marked if it is carried.
    const fn used_word(&self) -> u64 {
        if self.is_carried { self.used | CARRIED } else { self.used }
    }
}

impl Portable for FixedWindow {
    fn tag(&self) -> u16 {
        tag::FIXED_WINDOW
    }

    fn write_numbers(&self, words: &mut Writer) {
        words.word(self.permits());
        match self.windows {
            Windows::Even { period_ns, anchor } => {
                words.word(u64::from(anchor == Anchor::FirstCall));
                words.word(period_ns.get());
            }
            Windows::Of(calendar) => {
                words.word(2);
                calendar.write(words);
            }
        }
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::FIXED_WINDOW)?;
        let permits = words.word()?;
        let anchor = match words.up_to(2)? {
            0 => Anchor::Epoch,
            1 => Anchor::FirstCall,
            _ => return Ok(Self::of_calendar(permits, Calendar::read(words)?)?),
        };
        Ok(Self::try_new(permits, words.span()?, anchor)?)
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        let state = self.moved_to(state, words.now_ns());
        words.word(u64::from(!state.is_fresh()));
        if !state.is_fresh() {
            words.word(state.used_word());
            words.instant(state.start_ns.into());
            if self.calendar().is_some() {
                words.instant(state.end_ns.into());
            }
        }
    }

    /// Restores the window. A grid that starts at a first grant moves with its windows, and others
    /// do not.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        if words.up_to(1)? == 0 {
            return Ok(State::default());
        }
        let word = words.word()?;
        let start = words.instant()?;
        let (mut used, is_carried) = (word & MAX_CHARGED, word & CARRIED != 0);
        let end = match self.windows {
            Windows::Of(_) => words.instant()?,
            Windows::Even { period_ns, .. } => {
                let period_ns = u128::from(period_ns.get());
                let end = start.later(period_ns);
                let passed_ns = match end {
                    Moment::Before(ns) => Some(ns),
                    Moment::At(0) => Some(0),
                    Moment::At(_) => None,
                };
                // Each border up to the clock's zero has paid for a window.
                let passed_ns = passed_ns.and_then(|ns| ns.checked_div(period_ns));
                let borders = passed_ns.map_or(0, |whole| whole.saturating_add(1));
                used = match u64::try_from(borders) {
                    Ok(0) => used,
                    Ok(borders) if is_carried => window_debt::after(self.permits, used, borders),
                    _ => 0,
                };
                end.later(borders.saturating_mul(period_ns))
            }
        };
        let end_ns = end.on_clock().max(1);
        let mut state = State { start_ns: start.on_clock(), end_ns, used, is_carried };
        if !is_carried && state.is_over(words.since().now_ns) {
            state.used = 0;
        }
        let is_known = self.calendar().is_none_or(|calendar| calendar.is_known());
        if self.starts_at_grant() {
            return Ok(state);
        }
        if state.used == 0 {
            return Ok(State::default());
        }
        if is_known {
            self.align(&mut state);
        }
        Ok(state)
    }
}
