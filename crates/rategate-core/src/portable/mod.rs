//! Limits in plain words: what has to be kept so that a limit can go on elsewhere, after a restart or on
//! another clock.
//!
//! A policy writes its numbers and its state as a list of whole numbers, and reads them back. Instants are
//! written *relative to the instant of saving*, as ages and lead times, so the clock that the words are read
//! on need not be the one they were written on:
//!
//! ```text
//!   the old clock   ---g-----g--g---|saved        ages: 10, 4, 1
//!   the new clock          ---g-----g--g---|......|restored
//!                          0               elapsed
//! ```
//!
//! # Contract
//!
//! * **The same decisions.** A state that is restored is the one that was saved, moved onto the new clock:
//!   every decision from then on is the same, as long as nothing lies before the new clock's zero.
//! * **Before zero.** What lies there counts as if it were at zero: permits that are still in their window
//!   stay in it longer, and time to be caught up on is forfeited. So starts may come later than they would have,
//!   and never are there more. A clock that goes on where the old one was saved has nothing before its zero. A ramp has no
//!   later form that is never faster: if it began before zero, it is [refused](WordsError::BeforeClock).
//! * **Promises.** What has been promised and not yet started counts as taken; nobody new starts before it.
//! * **In flight.** Operations in flight have ended when the limit is restored: permits of a
//!   [`Concurrency`](crate::concurrency::Concurrency) are free, and slots of a
//!   [`CommitLog`](crate::commit_log::CommitLog) commit then, or when the last promise has started, which is late enough
//!   for any effect before.
//! * **Any words.** Words that are no limit are a [`WordsError`], with the place of the first that is wrong. None
//!   of them makes a panic, or takes more memory than a few times their own.
//! * **Tags** and words of a policy never change their meaning. New ones get a new tag.
//!
//! ```
//! use rategate_core::ledger::Ledger;
//! use rategate_core::limit::Limit;
//! use rategate_core::portable::{Since, restore};
//! use rategate_core::sliding_log::SlidingLog;
//!
//! let log = SlidingLog::new(2, 1_000)?;
//! let mut limit = Ledger::new(log, 0);
//! limit.try_acquire(700, 2)?;
//! let saved = limit.save(900);
//!
//! // 300 ns later, on a clock that shows 5000.
//! let limit = restore(&log, &saved, Since { now_ns: 5_000, elapsed_ns: 300 })?;
//! assert_eq!(limit.peek(5_000, 1)?, Some(500));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

mod saved;
mod words;

pub use self::saved::{Heir, Numbers, Saved, restore};
pub use self::words::{Moment, Reader, Since, Writer};
use crate::error::LimitError;
use crate::policy::Policy;

/// A policy that can be written in plain words.
///
/// Every policy of this crate is one. A policy of one's own takes a tag of 1000 or more, and implements the
/// four methods with [`Writer`] and [`Reader`].
pub trait Portable: Policy {
    /// Which policy it is: below 1000 those of this crate, each its own for ever.
    fn tag(&self) -> u16;

    /// Writes the numbers of the limit.
    fn write_numbers(&self, words: &mut Writer);

    /// The limit of these numbers.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are no limit of this policy.
    fn read_numbers(tag: u16, words: &mut Reader<'_>) -> Result<Self, WordsError>;

    /// Writes a state under these numbers.
    fn write_state(&self, state: &Self::State, words: &mut Writer);

    /// The state of these words, on the clock that the reader [knows](Reader::since).
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are no state under these numbers.
    fn read_state(&self, words: &mut Reader<'_>) -> Result<Self::State, WordsError>;
}

/// The tags of this crate's policies.
pub(crate) mod tag {
    pub(crate) const GCRA: u16 = 1;
    pub(crate) const SLIDING_LOG: u16 = 2;
    pub(crate) const FIXED_WINDOW: u16 = 3;
    pub(crate) const PACER: u16 = 4;
    pub(crate) const TWO_TIMELINE: u16 = 5;
    pub(crate) const BACKFILL_POOL: u16 = 6;
    pub(crate) const CONCURRENCY: u16 = 7;
    pub(crate) const COMMIT_LOG: u16 = 8;
    pub(crate) const COMPACT_LOG: u16 = 9;

    /// That words of the tag `found` are of the policy with the tag `own`.
    pub(crate) const fn expect(found: u16, own: u16) -> Result<(), super::WordsError> {
        if found == own { Ok(()) } else { Err(super::WordsError::OtherPolicy { tag: found }) }
    }
}

/// Why words are no limit. Places count from zero, in the words of the numbers or of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WordsError {
    /// They are of another policy, or of one that is not known here.
    OtherPolicy {
        /// The tag that came with them.
        tag: u16,
    },
    /// They end before the limit does.
    EndsEarly {
        /// How many there are.
        words: usize,
    },
    /// They go on behind the end of the limit.
    GoesOn {
        /// Where it ends.
        at: usize,
    },
    /// A word has a value that it cannot have there.
    Word {
        /// Which one.
        at: usize,
    },
    /// The numbers are words, but no limit.
    Limit(LimitError),
    /// A ramp began before the clock's zero. A clock that shows so much more can hold it.
    BeforeClock {
        /// How much more the clock has to show when the limit is restored.
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
            Self::GoesOn { at } => write!(f, "the limit ends at word {at}, but more words follow"),
            Self::Word { at } => {
                write!(f, "word {at} of the limit has a value that it cannot have")
            }
            Self::Limit(error) => write!(f, "the saved numbers are no limit: {error}"),
            Self::BeforeClock { short_ns } => {
                write!(
                    f,
                    "a ramp began before the clock's zero; start the clock {short_ns} ns later"
                )
            }
        }
    }
}

impl Error for WordsError {}

/// What a person calls the policy of a tag.
fn policy_of(tag: u16) -> &'static str {
    match tag {
        tag::GCRA => "gcra",
        tag::SLIDING_LOG => "sliding log",
        tag::FIXED_WINDOW => "fixed window",
        tag::PACER => "pacer",
        tag::TWO_TIMELINE => "two timelines",
        tag::BACKFILL_POOL => "backfill pool",
        tag::CONCURRENCY => "concurrency",
        tag::COMMIT_LOG => "commit log",
        tag::COMPACT_LOG => "compact log",
        _ => "one that is not known here",
    }
}

/// The numbers of a limit in words.
#[must_use]
pub fn numbers_of<P: Portable>(policy: &P) -> Numbers {
    let mut words = Writer::new(0);
    policy.write_numbers(&mut words);
    Numbers { tag: policy.tag(), words: words.into_words() }
}

/// A state as it is at `now_ns` in words, added to those that are there: what a table keeps of a key. Many states
/// may be saved for one instant, one after the other, while calls go on.
pub fn save_state<P: Portable>(policy: &P, state: &P::State, now_ns: u64, words: &mut Vec<u64>) {
    let mut writer = Writer::onto(core::mem::take(words), now_ns);
    // No promise is out.
    writer.word(0);
    policy.write_state(state, &mut writer);
    *words = writer.into_words();
}
