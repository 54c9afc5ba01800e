//! A warm-up in words.

use super::{RESTING, Rests, State, WarmUp};
use crate::exact::Exact;
use crate::policy::Policy as _;
use crate::portable::{Moment, Portable, Reader, WordsError, Writer, tag};
use crate::rate::Kind;

/// The words are the rate, the period, the cold factor and the largest request; and of a state
/// the instant of its base, two numbers of coldness, and the last interval.
impl Portable for WarmUp {
    fn tag(&self) -> u16 {
        tag::WARM_UP
    }

    fn write_numbers(&self, words: &mut Writer) {
        words.rate(self.rate);
        words.word(self.period_ns());
        words.ratio(self.cold_factor);
        words.word(self.max_request());
    }

    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError> {
        tag::expect(tag, tag::WARM_UP)?;
        let warm_up = Self::new(words.rate()?, words.span()?)?;
        Ok(warm_up.with_cold_factor(words.ratio()?)?.with_max_request(words.word()?)?)
    }

    /// Writes the state. At the rate never, what is due waits: its distance is written.
    fn write_state(&self, state: &State, words: &mut Writer) {
        let State { base, began, coldness, rests } = *state;
        match self.rate.kind() {
            Kind::Unlimited => {}
            Kind::Paced(_) => {
                words.instant(base.ns);
                words.word(base.part);
                words.wide(began);
                words.wide(coldness);
                words.word(state.interval_ns());
            }
            Kind::Never => {
                let since_ns = match rests {
                    Rests::Since(since_ns) => since_ns,
                    Rests::Beyond(_) => words.now_ns(),
                };
                words.instant(since_ns.into());
                words.wide(base.ns.saturating_sub(since_ns.into()));
                words.wide(coldness);
            }
        }
    }

    /// Reads the state. Rest before the clock's zero cools the limit, however short it is.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let Some(curve) = self.curve() else { return self.read_still(words) };
        let (moment, part) = (words.instant()?, words.part(curve.pace)?);
        let (began, coldness) = (words.wide()?, words.wide()?);
        if began > curve.max || coldness > began {
            return Err(words.malformed());
        }
        let rests = Rests::Beyond(words.word()?);
        let at = |ns| Exact { ns, part };
        let Moment::Before(before_ns) = moment else {
            let base = at(moment.or_zero());
            return Ok(State { base, began, coldness, rests });
        };
        let due_ns = curve.pace.add(at(0), curve.surplus(began, coldness).up).ceil();
        let rest_ns = before_ns.saturating_sub(due_ns);
        let coldness = curve.cooled(coldness, rest_ns);
        let base = Exact::at(due_ns.saturating_sub(before_ns));
        let rests = if rest_ns > 0 { RESTING } else { rests };
        Ok(State { base, began: coldness, coldness, rests })
    }
}

impl WarmUp {
    /// Reads a state at a rate at which nothing is ever due.
    fn read_still(&self, words: &mut Reader<'_>) -> Result<State, WordsError> {
        let now_ns = words.since().now_ns;
        if self.rate.kind() == Kind::Unlimited {
            return Ok(self.fresh(now_ns));
        }
        let moment = words.instant()?;
        let (ahead_ns, coldness) = (words.wide()?, words.wide()?);
        let period_ns = u128::from(self.period_ns());
        if coldness > period_ns {
            return Err(words.malformed());
        }
        let rest_ns = if let Moment::Before(before_ns) = moment { before_ns } else { 0 };
        let coldness = coldness.saturating_add(rest_ns).min(period_ns);
        let since_ns = moment.on_clock();
        let base = Exact::at(u128::from(since_ns).saturating_add(ahead_ns));
        Ok(State { base, began: coldness, coldness, rests: Rests::Since(since_ns) })
    }
}
