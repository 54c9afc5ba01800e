//! A live limit in plain words, and back.

use alloc::vec::Vec;

use super::{Portable, Reader, Since, WordsError, Writer, numbers_of, tag};
use crate::all_of::AllOf;
use crate::any_policy::AnyPolicy;
use crate::error::LimitError;
use crate::ledger::Ledger;

/// A policy with its numbers, in words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// Which policy.
    pub tag: u16,
    /// Its numbers.
    pub words: Vec<u64>,
}

/// A live limit in words: its numbers, and its state relative to the instant of saving.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Saved {
    /// The policy in force.
    pub numbers: Numbers,
    /// How long nobody new may start, and the state.
    pub state: Vec<u64>,
}

impl Numbers {
    /// The policy that they say.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are none, or one of another kind than `P`.
    pub fn policy<P: Portable>(&self) -> Result<P, WordsError> {
        let mut reader = Reader::new(&self.words, Since { now_ns: 0, elapsed_ns: 0 });
        let policy = P::read_numbers(self.tag, &mut reader)?;
        reader.end()?;
        Ok(policy)
    }
}

impl<P: Portable> Ledger<P> {
    /// The limit as it is at `now_ns`, in words. What is promised counts as taken; whoever holds a promise
    /// cannot cancel it in the limit that is restored.
    ///
    /// Several limits may be saved for one instant, one after the other, while calls go on: what has come after
    /// `now_ns` is in the words as well.
    #[must_use]
    pub fn save(&self, now_ns: u64) -> Saved {
        let (state, floor_ns) = self.with_promises();
        let mut words = Writer::new(now_ns);
        words.word(floor_ns.saturating_sub(now_ns));
        self.policy().write_state(&state, &mut words);
        Saved { numbers: numbers_of(self.policy()), state: words.into_words() }
    }
}

impl AllOf {
    /// Each of the limits as it is at `now_ns`, in words.
    #[must_use]
    pub fn save(&self, now_ns: u64) -> Vec<Saved> {
        self.ledgers().iter().map(|limit| limit.save(now_ns)).collect()
    }

    /// The limits that were saved, under the numbers of `policies`, each by [`restore`].
    ///
    /// # Errors
    ///
    /// [`WordsError`] for words that are no limit, and if the policies are not as many and of the same kinds.
    pub fn restore(
        policies: &[AnyPolicy],
        saved: &[Saved],
        since: Since,
    ) -> Result<Self, WordsError> {
        if policies.len() != saved.len() {
            return Err(LimitError::OtherPolicy.into());
        }
        let limits =
            policies.iter().zip(saved).map(|(policy, saved)| restore(policy, saved, since));
        Ok(Self::of(limits.collect::<Result<_, _>>()?, since.now_ns))
    }
}

/// The limit that was saved, under the numbers of `policy` from now on: see [`Heir`].
///
/// # Errors
///
/// [`WordsError`] for words that are no limit, or one of another policy.
pub fn restore<P: Portable>(
    policy: &P,
    saved: &Saved,
    since: Since,
) -> Result<Ledger<P>, WordsError> {
    Heir::new(policy.clone(), &saved.numbers)?.limit(&saved.state, since)
}

/// A policy to go on from states that were saved under numbers of the same kind: for a table, where many states
/// have the same numbers.
///
/// If its own numbers are others, it follows the saved ones as by a change of a live limit at the instant of
/// restoring, or when the last promise has started, if there are any.
#[derive(Clone, Debug)]
pub struct Heir<P> {
    policy: P,
    saved: P,
    is_change: bool,
}

impl<P: Portable> Heir<P> {
    /// The heir of a limit with these numbers.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are none, or of another policy.
    pub fn new(policy: P, saved: &Numbers) -> Result<Self, WordsError> {
        tag::expect(saved.tag, policy.tag())?;
        let is_change = numbers_of(&policy) != *saved;
        let saved = saved.policy()?;
        Ok(Self { policy, saved, is_change })
    }

    /// The policy in force from now on.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// The limit with the state of these words.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are no state.
    pub fn limit(&self, state: &[u64], since: Since) -> Result<Ledger<P>, WordsError> {
        let (state, floor_ns) = self.read(state, since)?;
        Ok(Ledger::with_floor(self.policy.clone(), state, floor_ns, since.now_ns))
    }

    /// The state of these words, for a limit that gives no promises, as one that was saved by
    /// [`save_state`](super::save_state).
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are none, or a promise of before is still to start.
    pub fn state(&self, state: &[u64], since: Since) -> Result<P::State, WordsError> {
        match self.read(state, since)? {
            (state, floor_ns) if floor_ns <= since.now_ns => Ok(state),
            _ => Err(WordsError::Word { at: 0 }),
        }
    }

    /// The state, and the instant before which nobody new may start.
    fn read(&self, state: &[u64], since: Since) -> Result<(P::State, u64), WordsError> {
        let Since { now_ns, elapsed_ns } = since;
        let mut reader = Reader::new(state, since);
        let lead_ns = reader.word()?;
        let floor_ns = now_ns.saturating_add(lead_ns.saturating_sub(elapsed_ns));
        reader = reader.settled_at(floor_ns);
        let mut state = self.saved.read_state(&mut reader)?;
        reader.end()?;
        if self.is_change {
            self.policy.rebase(&mut state, &self.saved, floor_ns);
        }
        Ok((state, floor_ns))
    }
}
