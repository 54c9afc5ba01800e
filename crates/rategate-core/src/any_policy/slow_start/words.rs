//! A slow start in words.

use core::num::NonZeroU64;

use super::ramp::Ramp;
use super::{SlowStart, State, Timed};
use crate::any_policy::{AnyPolicy, Member};
use crate::error::LimitError;
use crate::policy::Policy as _;
use crate::portable::{Portable, Reader, WordsError, Writer, tag};
use crate::share::Share;

/// The words are the period, the first share and those of the limit inside; and of a state its
/// ramp, if it has begun, the instant from which it is full, and the state inside. The tag is 500
/// above that of the limit inside.
///
/// The instants inside are by another clock. All instants move alike where a state is restored, so
/// they stay as far from the ramp as they were.
impl Portable for SlowStart {
    fn tag(&self) -> u16 {
        self.policy().tag().saturating_add(tag::SLOW_START)
    }

    fn write_numbers(&self, words: &mut Writer) {
        write_shape(self.period_ns, self.first, words);
        self.policy().write_numbers(words);
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        let inner = tag.checked_sub(tag::SLOW_START).ok_or(WordsError::OtherPolicy { tag })?;
        let (period_ns, first) = read_shape(words)?;
        let policy = AnyPolicy::read_numbers(inner, words).map_err(|error| match error {
            WordsError::OtherPolicy { .. } => WordsError::OtherPolicy { tag },
            error => error,
        })?;
        let policy = Timed::new(policy).map_err(|error| match error {
            LimitError::NotTimed => WordsError::OtherPolicy { tag },
            error => error.into(),
        })?;
        Ok(Self { policy, period_ns, first })
    }

    fn write_state(&self, state: &State, words: &mut Writer) {
        words.word(u64::from(state.ramp.is_some()));
        if let Some(Ramp { end_ns, period_ns, first }) = state.ramp {
            words.instant(end_ns.into());
            write_shape(period_ns, first, words);
            words.instant(state.full_ns.into());
            state.inner.write_state(words);
        }
    }

    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        if words.up_to(1)? == 0 {
            return Ok(self.fresh(words.since().now_ns));
        }
        let end_ns = words.instant()?.on_clock();
        let (period_ns, first) = read_shape(words)?;
        let full_ns = words.instant()?.on_clock();
        let inner = Member::read_state(self.policy(), words)?;
        Ok(State { inner, ramp: Some(Ramp { end_ns, period_ns, first }), full_ns })
    }
}

fn write_shape(period_ns: NonZeroU64, first: Share, words: &mut Writer) {
    words.word(period_ns.get());
    words.word(first.as_percent().into());
}

fn read_shape(words: &mut Reader<'_>) -> Result<(NonZeroU64, Share), WordsError> {
    let (period_ns, percent) = (words.number()?, words.word()?);
    let percent = u8::try_from(percent).map_err(|_| words.malformed())?;
    let first = Share::try_percent(percent).map_err(|_| words.malformed())?;
    Ok((period_ns, first))
}
