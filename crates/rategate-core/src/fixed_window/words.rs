//! A fixed window as words, to save and restore it.

use super::{Anchor, CARRIED, FixedWindow, MAX_CHARGED, State};
use crate::portable::{Moment, Portable, Reader, WordsError, Writer, tag};
use crate::window_debt;

impl State {
    /// Returns the count, marked if it is carried.
    const fn used_word(&self) -> u64 {
        if self.is_carried { self.used | CARRIED } else { self.used }
    }

    const fn of_used_word(word: u64) -> Self {
        let (used, is_carried) = (word & MAX_CHARGED, word & CARRIED != 0);
        Self { anchor_ns: None, window_ns: 0, used, is_carried }
    }
}

impl Portable for FixedWindow {
    fn tag(&self) -> u16 {
        tag::FIXED_WINDOW
    }

    fn write_numbers(&self, words: &mut Writer) {
        words.word(self.permits());
        words.word(self.period_ns.get());
        words.word(u64::from(self.anchor == Anchor::FirstCall));
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::FIXED_WINDOW)?;
        let (permits, period) = (words.word()?, words.span()?);
        let anchor = if words.up_to(1)? == 0 { Anchor::Epoch } else { Anchor::FirstCall };
        Ok(Self::try_new(permits, period, anchor)?)
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        let state = self.moved_to(state, words.now_ns());
        words.word(state.used_word());
        words.instant(state.window_ns.into());
        if self.anchor == Anchor::FirstCall {
            words.word(u64::from(state.anchor_ns.is_some()));
            words.instant(state.anchor_ns.unwrap_or(0).into());
        }
    }

    /// Restores the window. A grid anchored at a first call moves with its windows, and the
    /// clock's own grid does not. On another clock a window may then lie across a border: its
    /// permits count in the later one.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let (mut saved, mut window) = (State::of_used_word(words.word()?), words.instant()?);
        // A debt that is carried outlives its window.
        if let (Moment::Before(ns), true) = (window, saved.is_carried) {
            // Each border that has passed by now has paid for a window.
            let period_ns = u128::from(self.period_ns.get());
            let first = window.later(ns.div_ceil(period_ns).saturating_mul(period_ns));
            let has_passed = first.on_clock() <= words.since().now_ns;
            let borders = if has_passed {
                ns.div_ceil(period_ns)
            } else {
                ns.checked_div(period_ns).unwrap_or(0)
            };
            let borders = u64::try_from(borders).unwrap_or(u64::MAX);
            saved.used = window_debt::after(self.permits, saved.used, borders);
            window = window.later(ns.div_ceil(period_ns).saturating_mul(period_ns));
        }
        let anchor_ns = match self.anchor {
            Anchor::Epoch => Some(0),
            Anchor::FirstCall => {
                let is_laid = words.up_to(1)? == 1;
                let border_ns = self.first_border(words.instant()?);
                is_laid.then_some(border_ns)
            }
        };
        let (now_ns, period_ns) = (words.since().now_ns, u128::from(self.period_ns.get()));
        let is_over = !saved.is_carried
            && match window.later(period_ns) {
                Moment::At(end_ns) => end_ns <= now_ns.into(),
                Moment::Before(_) => true,
            };
        let Some(border_ns) = anchor_ns.filter(|_| saved.used > 0 && !is_over) else {
            return Ok(State { anchor_ns, ..State::of_used_word(0) });
        };
        let window_ns = window.on_clock();
        let begun_ns = self.window_of(border_ns, window_ns);
        let window_ns = if window_ns < border_ns {
            border_ns
        } else if begun_ns == window_ns {
            window_ns
        } else {
            begun_ns.saturating_add(self.period_ns.get())
        };
        Ok(State { anchor_ns, window_ns, ..saved })
    }
}

impl FixedWindow {
    /// Returns the first border on the clock of the grid that has this border.
    fn first_border(&self, border: Moment) -> u64 {
        match border {
            Moment::At(_) => border.on_clock(),
            Moment::Before(ns) => {
                let short_ns = ns.checked_rem(self.period_ns.get().into()).unwrap_or(0);
                let period_ns = self.period_ns.get();
                u64::try_from(short_ns).map_or(0, |short_ns| match short_ns {
                    0 => 0,
                    _ => period_ns.saturating_sub(short_ns),
                })
            }
        }
    }
}
