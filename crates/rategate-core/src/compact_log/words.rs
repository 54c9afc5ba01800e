//! Conversion of a log on a grid to and from portable words, whatever its form in memory.

use super::shape::Entry;
use super::{CompactLog, MAX_PERMITS, State};
use crate::portable::{Portable, Reader, WordsError, Writer, tag};

impl Portable for CompactLog {
    fn tag(&self) -> u16 {
        tag::COMPACT_LOG
    }

    fn write_numbers(&self, words: &mut Writer) {
        words.word(self.permits.get());
        words.word(self.period_ns.get());
        words.word(self.guard_ns);
        words.word(self.resolution_ns.get());
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::COMPACT_LOG)?;
        let log = Self::try_new(words.word()?, words.span()?)?.with_guard(words.span()?)?;
        Ok(log.with_resolution(words.span()?)?)
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        let now_ns = u128::from(words.now_ns());
        let held = state.entries().filter(|entry| entry.permits > 0);
        let held = held.filter(|entry| self.release_ns(entry.tick) > now_ns);
        words.log(self.resolution_ns, held.map(|entry| (entry.tick, entry.permits)));
    }

    /// Restores the log. Grants of another clock count as made at the next point of its grid.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let entries = words.log(self.resolution_ns, self.held_for_ns())?;
        let permits = entries.iter().fold(0_u64, |sum, (_, permits)| sum.saturating_add(*permits));
        if permits > MAX_PERMITS {
            return Err(words.malformed());
        }
        let entries = entries.into_iter();
        let entries = entries.map(|(ns, permits)| Entry { tick: self.tick_of(ns), permits });
        Ok(State::of(entries, self.caps()))
    }
}
