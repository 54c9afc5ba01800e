//! Limits as plain words, so that a limit can continue after a restart or on another clock.
//!
//! A policy writes its numbers and its state as a list of whole numbers, and reads them back.
//! Instants are written *relative to the instant of saving*, as ages and lead times. So the clock
//! on which the words are read need not be the one on which they were written:
//!
//! ```text
//!   the old clock   ---g-----g--g---|saved        ages: 10, 4, 1
//!   the new clock          ---g-----g--g---|......|restored
//!                          0               elapsed
//! ```
//!
//! # Contract
//!
//! * **The same decisions.** A restored state is the saved one, moved onto the new clock. Every
//!   later decision is the same, as long as nothing lies before the new clock's zero.
//! * **Before zero.** An instant there counts as if it were at zero: permits that are still in
//!   their window stay in it longer, and time to be caught up on is forfeited. So starts may come
//!   later than they would have, and there are never more of them. A clock that continues from
//!   the instant of saving has nothing before its zero. A ramp has no later form that is never
//!   faster, so one that began before zero is [refused](WordsError::BeforeClock).
//! * **Promises.** Permits promised and not yet started count as taken; no new call starts before
//!   them.
//! * **Holds.** What is held counts as taken, and the hold is unknown to the restored limit.
//! * **In flight.** Operations in flight have ended when the limit is restored. Permits of a
//!   [`Concurrency`](crate::concurrency::Concurrency) are free. Slots of a
//!   [`CommitLog`](crate::commit_log::CommitLog) commit then, or when the last promise has
//!   started, which is late enough for any effect before.
//! * **Any words.** Invalid words are a [`WordsError`], with the position of the first wrong one.
//!   No words cause a panic, or take more memory than a few times their own.
//! * **Tags** and words of a policy never change their meaning. New ones get a new tag.
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::ledger::Ledger;
//! use rategate_core::portable::RestoreContext;
//! use rategate_core::saved::restore;
//! use rategate_core::sliding_log::SlidingLog;
//!
//! let log = SlidingLog::new(2, Duration::from_nanos(1_000));
//! let mut limit = Ledger::new(log, 0);
//! limit.try_acquire(700, 2)?;
//! let saved = limit.save(900);
//!
//! // 300 ns later, on a clock that shows 5000.
//! let limit = restore(log, &saved, RestoreContext { now_ns: 5_000, elapsed_ns: 300 })?;
//! assert_eq!(limit.peek(5_000, 1)?, Some(500));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::error::Error;
use core::fmt;

mod words;

pub use self::words::{Moment, Reader, RestoreContext, Writer};
use crate::error::LimitError;
use crate::policy::Policy;

/// A policy in plain words.
pub trait Portable: Policy {
    /// Returns the policy's tag, which never changes.
    fn tag(&self) -> u16;

    /// Writes the numbers of the limit.
    fn write_numbers(&self, words: &mut Writer);

    /// Reads the limit of these numbers.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are not a limit of this policy.
    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError>;

    /// Writes a state under these numbers.
    fn write_state(&self, state: &Self::State, words: &mut Writer);

    /// Reads a state, on the clock that the reader [knows](Reader::since).
    ///
    /// # Errors
    ///
    /// [`WordsError`] if the words are not a state under these numbers.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<Self::State, WordsError>;
}

/// Tags of this crate's policies.
pub(crate) mod tag {
    pub(crate) const GCRA: u16 = 1;
    pub(crate) const SLIDING_LOG: u16 = 2;
    pub(crate) const TWO_TIMELINE: u16 = 5;
    pub(crate) const BACKFILL_POOL: u16 = 6;
    pub(crate) const CONCURRENCY: u16 = 7;
    pub(crate) const COMMIT_LOG: u16 = 8;
    pub(crate) const ADAPTIVE_CONCURRENCY: u16 = 13;
    pub(crate) const ADAPTIVE_RATE: u16 = 14;
    pub(crate) const WARM_UP: u16 = 15;
    pub(crate) const FIXED_WINDOW: u16 = 16;
    /// A slow start has the tag of the policy inside, and this more.
    pub(crate) const SLOW_START: u16 = 500;
    pub(crate) const LAST_SLOW_START: u16 = 999;

    /// Checks that words with the tag `found` belong to the policy with the tag `own`.
    pub(crate) const fn expect(found: u16, own: u16) -> Result<(), super::WordsError> {
        if found == own { Ok(()) } else { Err(super::WordsError::OtherPolicy { tag: found }) }
    }
}

/// A reason for which words are not a limit.
///
/// Positions count from zero, in the words of the numbers or of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WordsError {
    /// The words belong to another policy, or to an unknown one.
    OtherPolicy {
        /// The tag that came with the words.
        tag: u16,
    },
    /// The words end before the limit does.
    EndsEarly {
        /// The number of words.
        words: usize,
    },
    /// More words follow the end of the limit.
    TrailingWords {
        /// The position at which the limit ends.
        at: usize,
    },
    /// A word has a value that is invalid at its position.
    Word {
        /// The position of the word.
        at: usize,
    },
    /// The numbers are readable, but not those of a valid limit.
    Limit(LimitError),
    /// A ramp began before the clock's zero. A clock that shows `short_ns` more can represent it.
    BeforeClock {
        /// The additional time that the clock has to show when the limit is restored.
        short_ns: u64,
    },
}

impl From<LimitError> for WordsError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}

impl fmt::Display for WordsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherPolicy { tag } => {
                write!(f, "the limit is of another policy, {}", policy_of(*tag))
            }
            Self::EndsEarly { words } => write!(f, "the limit ends early, after {words} words"),
            Self::TrailingWords { at } => {
                write!(f, "the limit ends at word {at}, but more words follow")
            }
            Self::Word { at } => {
                write!(f, "word {at} of the limit has an invalid value")
            }
            Self::Limit(error) => write!(f, "the saved numbers are not a valid limit: {error}"),
            Self::BeforeClock { short_ns } => {
                write!(
                    f,
                    "a ramp began before the clock's zero; restore on a clock that shows \
                     {short_ns} ns more"
                )
            }
        }
    }
}

impl Error for WordsError {}

/// Returns the name of a tag's policy for messages.
fn policy_of(tag: u16) -> &'static str {
    match tag {
        tag::GCRA => "gcra",
        tag::SLIDING_LOG => "sliding log",
        tag::FIXED_WINDOW => "fixed window",
        tag::TWO_TIMELINE => "two timelines",
        tag::BACKFILL_POOL => "backfill pool",
        tag::CONCURRENCY => "concurrency",
        tag::COMMIT_LOG => "commit log",
        tag::ADAPTIVE_CONCURRENCY => "concurrency that follows measurements",
        tag::ADAPTIVE_RATE => "rate that follows refusals",
        tag::WARM_UP => "warm-up",
        tag::SLOW_START..=tag::LAST_SLOW_START => "slow start of some policy",
        _ => "one that is not known here",
    }
}
