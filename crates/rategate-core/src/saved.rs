//! Conversion of a live limit to plain words, and back, under its own numbers or new ones.

use alloc::vec::Vec;

use crate::all_of::{AllOf, AllOfLedger};
use crate::any_policy::AnyPolicy;
use crate::concurrent::{HasLockFree, LimiterPolicy};
use crate::error::LimitError;
use crate::ledger::Ledger;
use crate::portable::{
    Numbers, Portable, Reader, RestoreContext, WordsError, Writer, numbers_of, tag,
};

/// A live limit in words: its numbers, and its state relative to the instant of saving.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Saved {
    /// The policy in force.
    pub numbers: Numbers,
    /// The time for which no new call may start after saving, and the state.
    pub state: Vec<u64>,
}

impl<P: Portable> Ledger<P> {
    /// Returns the limit at `now_ns`, in words.
    ///
    /// Promised permits count as taken; the owner of a promise cannot cancel it in the restored
    /// limit. Several limits may be saved for one instant, one after the other, while calls
    /// continue: decisions made after `now_ns` are in the words as well.
    #[must_use]
    pub fn save(&self, now_ns: u64) -> Saved {
        let (state, floor_ns) = self.with_promises();
        let mut words = Writer::new(now_ns);
        words.word(floor_ns.saturating_sub(now_ns));
        self.policy().write_state(&state, &mut words);
        Saved { numbers: numbers_of(self.policy()), state: words.into_words() }
    }
}

impl AllOfLedger {
    /// Returns each of the limits at `now_ns`, in words.
    #[must_use]
    pub fn save(&self, now_ns: u64) -> Vec<Saved> {
        self.ledgers().iter().map(|limit| limit.save(now_ns)).collect()
    }

    /// Restores saved limits under the numbers of `policies`, each by [`restore`].
    ///
    /// # Errors
    ///
    /// [`WordsError`] for words that are not a limit, and if the policies differ in number or
    /// kind.
    pub fn restore(
        policies: &[AnyPolicy],
        saved: &[Saved],
        since: RestoreContext,
    ) -> Result<Self, WordsError> {
        if policies.len() != saved.len() {
            return Err(LimitError::OtherPolicy.into());
        }
        let limits =
            policies.iter().zip(saved).map(|(policy, saved)| restore(policy, saved, since));
        Ok(Self::of(limits.collect::<Result<_, _>>()?, since.now_ns))
    }
}

/// A policy of limiters that can be saved and restored.
pub trait PortablePolicy: LimiterPolicy {
    /// Returns the number of single limits in it.
    fn count(&self) -> usize;

    /// Returns each limit at `now_ns`, in words.
    fn save(limit: &Self::Limit, now_ns: u64) -> Vec<Saved>;

    /// Restores saved limits under the numbers of this policy.
    ///
    /// # Errors
    ///
    /// [`WordsError`] for words that are not a limit, and if the limits differ in number or kind.
    fn restore(self, saved: &[Saved], since: RestoreContext) -> Result<Self::Limit, WordsError>;
}

impl<P: HasLockFree + Portable> PortablePolicy for P {
    fn count(&self) -> usize {
        1
    }

    fn save(limit: &Ledger<P>, now_ns: u64) -> Vec<Saved> {
        alloc::vec![limit.save(now_ns)]
    }

    fn restore(self, saved: &[Saved], since: RestoreContext) -> Result<Ledger<P>, WordsError> {
        match saved {
            [saved] => restore(&self, saved, since),
            _ => Err(LimitError::OtherPolicy.into()),
        }
    }
}

impl PortablePolicy for AllOf {
    fn count(&self) -> usize {
        self.policies().len()
    }

    fn save(limit: &AllOfLedger, now_ns: u64) -> Vec<Saved> {
        limit.save(now_ns)
    }

    fn restore(self, saved: &[Saved], since: RestoreContext) -> Result<AllOfLedger, WordsError> {
        AllOfLedger::restore(self.policies(), saved, since)
    }
}

/// Restores a saved limit, under the numbers of `policy` from now on: see [`RestoreTarget`].
///
/// # Errors
///
/// [`WordsError`] for words that are not a limit, or are one of another policy.
pub fn restore<P: Portable>(
    policy: &P,
    saved: &Saved,
    since: RestoreContext,
) -> Result<Ledger<P>, WordsError> {
    RestoreTarget::new(policy.clone(), &saved.numbers)?.limit(&saved.state, since)
}

/// A restore target: a policy that continues from states saved under numbers of the same kind.
///
/// It serves tables, where many states have the same numbers. If its own numbers differ, it
/// follows the saved ones as by a change of a live limit. That change happens at the instant of
/// restoring, or when the last promise has started, if there are any.
#[derive(Clone, Debug)]
pub struct RestoreTarget<P> {
    policy: P,
    saved: P,
    is_change: bool,
}

impl<P: Portable> RestoreTarget<P> {
    /// Returns a restore target for limits with these saved numbers.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are not numbers of a policy, or are those of another one.
    pub fn new(policy: P, saved: &Numbers) -> Result<Self, WordsError> {
        tag::expect(saved.tag, policy.tag())?;
        let is_change = numbers_of(&policy) != *saved;
        let saved = saved.policy()?;
        Ok(Self { policy, saved, is_change })
    }

    /// Returns the policy in force from now on.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// Restores the limit with the state of these words.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are not a state.
    pub fn limit(&self, state: &[u64], since: RestoreContext) -> Result<Ledger<P>, WordsError> {
        let (state, floor_ns) = self.read(state, since)?;
        Ok(Ledger::with_floor(self.policy.clone(), state, floor_ns, since.now_ns))
    }

    /// Restores a state saved by [`save_state`](crate::portable::save_state), for a limit that gives no
    /// promises.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if the words are not a state, or an earlier promise is still to start.
    pub fn state(&self, state: &[u64], since: RestoreContext) -> Result<P::State, WordsError> {
        match self.read(state, since)? {
            (state, floor_ns) if floor_ns <= since.now_ns => Ok(state),
            _ => Err(WordsError::Word { at: 0 }),
        }
    }

    /// Returns the state, and the instant before which no new call may start.
    fn read(&self, state: &[u64], since: RestoreContext) -> Result<(P::State, u64), WordsError> {
        let RestoreContext { now_ns, elapsed_ns } = since;
        let mut reader = Reader::new(state, since);
        let lead_ns = reader.word()?;
        let floor_ns = now_ns.saturating_add(lead_ns.saturating_sub(elapsed_ns));
        reader = reader.settled_at(floor_ns);
        // A policy out of words may know less than the one with the same numbers.
        let numbers = if self.is_change { &self.saved } else { &self.policy };
        let mut state = numbers.read_state(&mut reader)?;
        reader.end()?;
        if self.is_change {
            self.policy.rebase(&mut state, &self.saved, floor_ns);
        }
        Ok((state, floor_ns))
    }
}
