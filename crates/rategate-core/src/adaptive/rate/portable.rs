//! A rate that follows refusals, in words.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use super::cubic::Cubic;
use super::level::Level;
use super::{AdaptiveRate, RateBounds, State};
use crate::error::LimitError;
use crate::policy::Policy as _;
use crate::portable::{Portable, Reader, WordsError, Writer, tag};

/// The words are the ceiling, the floor and the burst; and of a state the rate that it has found, if
/// it has been used, and when that was, and what is in use.
impl Portable for AdaptiveRate {
    fn tag(&self) -> u16 {
        tag::ADAPTIVE_RATE
    }

    fn write_numbers(&self, words: &mut Writer) {
        words.word(self.bounds.ceiling);
        words.word(self.bounds.floor);
        words.word(self.burst.get());
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::ADAPTIVE_RATE)?;
        let (ceiling, floor) = (words.word()?, words.word()?);
        let burst = NonZeroU64::new(words.word()?).ok_or(LimitError::ZeroPermits)?;
        if floor == 0 || floor > ceiling {
            return Err(LimitError::RateBounds.into());
        }
        Ok(Self { bounds: RateBounds { floor, ceiling }, burst })
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        words.optional(state.idle_since_ns.map(|_| state.rate));
        words.instant(state.idle_since_ns.unwrap_or(words.now_ns()).into());
        let (at_ns, parts) = state.level.to_parts();
        words.instant(at_ns.into());
        words.wide(parts);
    }

    /// Restores the rate, as that of a limit to which it was cut when it was last used.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let found = words.optional()?;
        let since_ns = words.instant()?.on_clock();
        let at_ns = words.instant()?.on_clock();
        let level = Level::from_parts(at_ns, words.wide()?);
        let fresh = State { level, ..self.fresh(at_ns) };
        let Some(found) = found else { return Ok(fresh) };
        let rate = self.bounds.clamp(found);
        let controller = Box::new(Cubic::beginning_with(self.bounds, rate, since_ns));
        let rate = controller.rate();
        Ok(State { rate, controller, idle_since_ns: Some(since_ns), ..fresh })
    }
}
