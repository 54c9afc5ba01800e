//! A writer and a reader of words, including instants.

use alloc::vec::Vec;
use core::num::NonZeroU64;
use core::time::Duration;

use super::WordsError;
use crate::exact::{Exact, Pace};
use crate::rate::{Kind, Rate};
use crate::ratio::Ratio;

/// Writes words, with instants relative to the instant of saving.
#[derive(Clone, Debug)]
pub struct Writer {
    words: Vec<u64>,
    now_ns: u64,
}

/// Reads words in order. Each is read once, and only the values read are kept.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    words: &'a [u64],
    at: usize,
    since: RestoreContext,
    settled_ns: u64,
}

/// The instant of restoring, and the time since saving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoreContext {
    /// The reading of the clock on which the limit continues.
    pub now_ns: u64,
    /// The time since the limit was saved. Less than the true time is safe, more is not.
    pub elapsed_ns: u64,
}

/// A saved instant, on the clock on which the limit continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// An instant on the clock, or beyond its end.
    At(u128),
    /// An instant this long before the clock's zero.
    Before(u128),
}

impl Moment {
    /// Returns the instant, or zero if it lies before the clock's zero.
    #[must_use]
    pub const fn or_zero(self) -> u128 {
        match self {
            Self::At(ns) => ns,
            Self::Before(_) => 0,
        }
    }

    /// Returns the instant in 64 bits, saturating at both ends of the clock.
    #[must_use]
    pub fn on_clock(self) -> u64 {
        u64::try_from(self.or_zero()).unwrap_or(u64::MAX)
    }

    /// Returns the moment `ns` later.
    #[must_use]
    pub const fn later(self, ns: u128) -> Self {
        match self {
            Self::At(at) => Self::At(at.saturating_add(ns)),
            Self::Before(before) => match before.checked_sub(ns) {
                Some(0) | None => Self::At(ns.saturating_sub(before)),
                Some(before) => Self::Before(before),
            },
        }
    }
}

impl Writer {
    /// Returns a writer for the state at `now_ns`.
    #[must_use]
    pub const fn new(now_ns: u64) -> Self {
        Self::onto(Vec::new(), now_ns)
    }

    pub(crate) const fn onto(words: Vec<u64>, now_ns: u64) -> Self {
        Self { words, now_ns }
    }

    /// Returns the instant of saving.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns all words written.
    #[must_use]
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }

    /// Writes one word.
    pub fn word(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Writes a number of 128 bits, in two words.
    pub fn wide(&mut self, number: u128) {
        let low = u64::try_from(number & u128::from(u64::MAX)).unwrap_or(u64::MAX);
        let high = u64::try_from(number >> u64::BITS).unwrap_or(u64::MAX);
        self.words.extend([low, high]);
    }

    /// Writes a number that may be absent, in one word or two.
    pub fn optional(&mut self, number: Option<u64>) {
        match number {
            None => self.word(0),
            Some(number) => self.words.extend([1, number]),
        }
    }

    /// Writes an instant, as its distance from the instant of saving.
    pub fn instant(&mut self, ns: u128) {
        let now_ns = u128::from(self.now_ns);
        self.word(u64::from(ns < now_ns));
        self.wide(ns.abs_diff(now_ns));
    }

    /// Writes permits at instants in order, each as its distance from the one before.
    ///
    /// The unit is `unit_ns`, of which all instants are multiples.
    pub(crate) fn log(
        &mut self,
        unit_ns: NonZeroU64,
        entries: impl Iterator<Item = (u64, u64)> + Clone,
    ) {
        let count = entries.clone().count();
        self.word(u64::try_from(count).unwrap_or(u64::MAX));
        let Some((first, _)) = entries.clone().next() else { return };
        self.instant(u128::from(first).saturating_mul(unit_ns.get().into()));
        let mut last = first;
        for (tick, permits) in entries {
            self.words.extend([tick.saturating_sub(last), permits]);
            last = tick;
        }
    }

    pub(crate) fn rate(&mut self, rate: Rate) {
        match rate.kind() {
            Kind::Never => self.word(0),
            Kind::Unlimited => self.word(1),
            Kind::Paced(pace) => {
                self.words.extend([2, pace.permits().get(), pace.period_ns().get()]);
            }
        }
    }

    pub(crate) fn pace(&mut self, pace: Pace) {
        self.words.extend([pace.permits().get(), pace.period_ns().get()]);
    }

    pub(crate) fn ratio(&mut self, ratio: Ratio) {
        self.words.extend([ratio.numerator().get(), ratio.denominator().get()]);
    }
}

impl<'a> Reader<'a> {
    /// Returns a reader of these words, which describe a state some time ago.
    #[must_use]
    pub const fn new(words: &'a [u64], since: RestoreContext) -> Self {
        Self { words, at: 0, since, settled_ns: since.now_ns }
    }

    /// Returns this reader for a limit whose last promise starts at `settled_ns`.
    ///
    /// That is not before the instant of restoring.
    pub(crate) const fn settled_at(self, settled_ns: u64) -> Self {
        Self { settled_ns, ..self }
    }

    /// Returns when all promises have started: not before the instant of restoring.
    #[must_use]
    pub const fn settled_ns(&self) -> u64 {
        self.settled_ns
    }

    /// Returns the instant of restoring, and the time since saving.
    #[must_use]
    pub const fn since(&self) -> RestoreContext {
        self.since
    }

    /// Reads the next word.
    ///
    /// # Errors
    ///
    /// [`WordsError::EndsEarly`].
    pub fn word(&mut self) -> Result<u64, WordsError> {
        let word = self.words.get(self.at).copied();
        let word = word.ok_or(WordsError::EndsEarly { words: self.words.len() })?;
        self.at = self.at.saturating_add(1);
        Ok(word)
    }

    /// Returns an error that the last word read is invalid.
    #[must_use]
    pub const fn malformed(&self) -> WordsError {
        WordsError::Word { at: self.at.saturating_sub(1) }
    }

    /// Reads the next word, which must not be zero.
    ///
    /// # Errors
    ///
    /// [`WordsError`].
    pub fn number(&mut self) -> Result<NonZeroU64, WordsError> {
        NonZeroU64::new(self.word()?).ok_or_else(|| self.malformed())
    }

    /// Reads the next word, which must be at most `max`.
    ///
    /// # Errors
    ///
    /// [`WordsError`].
    pub fn up_to(&mut self, max: u64) -> Result<u64, WordsError> {
        let word = self.word()?;
        if word > max { Err(self.malformed()) } else { Ok(word) }
    }

    /// Reads a number of 128 bits.
    ///
    /// # Errors
    ///
    /// [`WordsError`].
    pub fn wide(&mut self) -> Result<u128, WordsError> {
        let low = u128::from(self.word()?);
        Ok(u128::from(self.word()?) << u64::BITS | low)
    }

    /// Reads a number that may be absent.
    ///
    /// # Errors
    ///
    /// [`WordsError`].
    pub fn optional(&mut self) -> Result<Option<u64>, WordsError> {
        Ok(if self.up_to(1)? == 0 { None } else { Some(self.word()?) })
    }

    /// Reads a span of time.
    ///
    /// # Errors
    ///
    /// [`WordsError`].
    pub fn span(&mut self) -> Result<Duration, WordsError> {
        self.word().map(Duration::from_nanos)
    }

    /// Reads a span of time that may be absent.
    ///
    /// # Errors
    ///
    /// [`WordsError`].
    pub fn optional_span(&mut self) -> Result<Option<Duration>, WordsError> {
        Ok(self.optional()?.map(Duration::from_nanos))
    }

    /// Reads an instant, on the clock on which the limit continues.
    ///
    /// # Errors
    ///
    /// [`WordsError`].
    pub fn instant(&mut self) -> Result<Moment, WordsError> {
        let is_past = self.up_to(1)? == 1;
        let distance_ns = self.wide()?;
        let RestoreContext { now_ns, elapsed_ns } = self.since;
        let (now_ns, elapsed_ns) = (u128::from(now_ns), u128::from(elapsed_ns));
        Ok(if is_past {
            let age_ns = elapsed_ns.saturating_add(distance_ns);
            let before_ns = age_ns.saturating_sub(now_ns);
            if before_ns > 0 {
                Moment::Before(before_ns)
            } else {
                Moment::At(now_ns.saturating_sub(age_ns))
            }
        } else {
            match now_ns.checked_sub(elapsed_ns) {
                Some(saved_ns) => Moment::At(saved_ns.saturating_add(distance_ns)),
                None => Moment::Before(elapsed_ns.saturating_sub(now_ns)).later(distance_ns),
            }
        })
    }

    /// Reads the permits of a log that have been in it for less than `held_for_ns`, in order.
    ///
    /// Those before the clock's zero are set to zero.
    pub(crate) fn log(
        &mut self,
        unit_ns: NonZeroU64,
        held_for_ns: u64,
    ) -> Result<Vec<(u64, u64)>, WordsError> {
        let count = usize::try_from(self.word()?).map_err(|_| self.malformed())?;
        if count == 0 {
            return Ok(Vec::new());
        }
        // Checked before anything is allocated: each entry takes two words.
        let left = self.words.len().saturating_sub(self.at).saturating_sub(3);
        if count > left.wrapping_div(2) {
            return Err(WordsError::EndsEarly { words: self.words.len() });
        }
        let (mut moment, now_ns) = (self.instant()?, u128::from(self.since.now_ns));
        let mut entries = Vec::new();
        for _ in 0..count {
            let gap_ns = u128::from(self.word()?).saturating_mul(unit_ns.get().into());
            moment = moment.later(gap_ns);
            let permits = self.number()?.get();
            let is_over = match moment.later(held_for_ns.into()) {
                Moment::At(release_ns) => release_ns <= now_ns,
                Moment::Before(_) => true,
            };
            if !is_over {
                entries.push((moment.on_clock(), permits));
            }
        }
        Ok(entries)
    }

    pub(crate) fn rate(&mut self) -> Result<Rate, WordsError> {
        Ok(match self.up_to(2)? {
            0 => Rate::NEVER,
            1 => Rate::UNLIMITED,
            _ => {
                let (permits, period_ns) = (self.number()?, self.number()?);
                let rate = Rate::from_fraction(permits.get().into(), period_ns.get().into());
                rate.map_err(|_| self.malformed())?
            }
        })
    }

    pub(crate) fn pace(&mut self) -> Result<Pace, WordsError> {
        Ok(Pace::new(self.number()?, self.number()?))
    }

    /// Reads the part of a nanosecond in that pace.
    pub(crate) fn part(&mut self, pace: Pace) -> Result<u64, WordsError> {
        self.up_to(pace.permits().get().wrapping_sub(1))
    }

    /// Reads an instant with its fraction of a nanosecond. One before the clock's zero becomes
    /// zero.
    pub(crate) fn exact(&mut self, pace: Pace) -> Result<Exact, WordsError> {
        let (moment, part) = (self.instant()?, self.part(pace)?);
        Ok(match moment {
            Moment::At(ns) => Exact { ns, part },
            Moment::Before(_) => Exact::default(),
        })
    }

    pub(crate) fn ratio(&mut self) -> Result<Ratio, WordsError> {
        let (numerator, denominator) = (self.word()?, self.word()?);
        Ratio::new(numerator, denominator).map_err(|_| self.malformed())
    }

    /// Checks that all words have been read.
    ///
    /// # Errors
    ///
    /// [`WordsError::TrailingWords`].
    pub const fn end(&self) -> Result<(), WordsError> {
        if self.at < self.words.len() {
            Err(WordsError::TrailingWords { at: self.at })
        } else {
            Ok(())
        }
    }
}
