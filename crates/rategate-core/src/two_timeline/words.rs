//! Conversion of two timelines to and from portable words.

use super::DampingShift;
use super::{Mode, State, TwoTimeline};
use crate::portable::{Portable, Reader, WordsError, Writer, tag};
use crate::ratio::Ratio;
use crate::schedule::Schedule;
use crate::schedule::track::Track;

impl Portable for TwoTimeline {
    fn tag(&self) -> u16 {
        tag::TWO_TIMELINE
    }

    fn write_numbers(&self, words: &mut Writer) {
        self.schedule.write(words);
        let (mode, shift, ratio) = match self.mode {
            Mode::Average => (0, 0, Ratio::ONE),
            Mode::Damped { shift } => (1, shift.get().into(), Ratio::ONE),
            Mode::Strict => (2, 0, Ratio::ONE),
            Mode::Burst(ratio) => (3, 0, ratio),
            Mode::Batched { min_sleep_ns } => (4, min_sleep_ns, Ratio::ONE),
        };
        words.word(mode);
        words.word(shift);
        words.ratio(ratio);
        words.optional(self.catch_up_ns);
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::TWO_TIMELINE)?;
        let (schedule, mode) = (Schedule::read(words)?, words.up_to(4)?);
        let word = words.word()?;
        let mode = match (mode, DampingShift::of_exponent(word)) {
            (0, _) => Mode::Average,
            (1, Some(shift)) => Mode::Damped { shift },
            (1, None) => return Err(words.malformed()),
            (2, _) => Mode::Strict,
            (4, _) => Mode::Batched { min_sleep_ns: word },
            _ => return Self::read_burst(schedule, words),
        };
        let _ = words.ratio()?;
        Ok(Self::on_schedule(schedule, mode, words.optional_span()?))
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        state.ideal.write(words);
        state.dispatch.write(words);
        words.instant(state.gate_ns);
        words.wide(state.unpaid);
    }

    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let (ideal, dispatch) = (Track::read(words)?, Track::read(words)?);
        // A gate from before the clock's zero has paid a little less of its fraction.
        let gate_ns = words.instant()?.or_zero();
        Ok(State { ideal, dispatch, gate_ns, unpaid: words.wide()? })
    }
}

impl TwoTimeline {
    fn read_burst(schedule: Schedule, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        let mode = Mode::Burst(words.ratio()?);
        Ok(Self::on_schedule(schedule, mode, words.optional_span()?))
    }
}
