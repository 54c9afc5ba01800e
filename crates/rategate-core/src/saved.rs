//! Conversion of a live limit to plain words, and back, under its own numbers or new ones.

use alloc::vec::Vec;

use crate::all_of::AllOf;
use crate::any_policy::{AnyPolicy, Member};
use crate::error::LimitError;
use crate::ledger::Ledger;
use crate::portable::{Reader, RestoreContext, WordsError, Writer, tag};

/// A policy with its numbers, in words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// The policy's tag.
    pub tag: u16,
    /// The policy's numbers.
    pub words: Vec<u64>,
}

impl Numbers {
    /// Reads the policy.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if the words are not a policy.
    pub fn policy(&self) -> Result<AnyPolicy, WordsError> {
        let mut reader = Reader::new(&self.words, RestoreContext { now_ns: 0, elapsed_ns: 0 });
        let policy = AnyPolicy::read_numbers(self.tag, &mut reader)?;
        reader.end()?;
        Ok(policy)
    }
}

/// Returns the numbers of a limit in words.
#[must_use]
pub fn numbers_of(policy: &AnyPolicy) -> Numbers {
    let mut words = Writer::new(0);
    policy.write_numbers(&mut words);
    Numbers { tag: policy.tag(), words: words.into_words() }
}

/// Appends a key's state at `now_ns` to `words`.
///
/// Many states may be saved for one instant, one after the other, while calls continue.
pub fn save_state(limit: &Member, now_ns: u64, words: &mut Vec<u64>) {
    let mut writer = Writer::onto(core::mem::take(words), now_ns);
    // A table's key has no pending promise.
    writer.word(0);
    limit.write_state(&mut writer);
    *words = writer.into_words();
}

/// A limit in words: its numbers, and its state relative to the instant of saving.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Saved {
    /// The policy in force.
    pub numbers: Numbers,
    /// The time for which no new call may start after saving, and the state.
    pub state: Vec<u64>,
}

impl Ledger {
    /// Returns each of its limits at `now_ns`, in words.
    ///
    /// Promised permits count as taken; the owner of a promise cannot cancel it in the restored
    /// limit. Several ledgers may be saved for one instant, one after the other, while calls
    /// continue: decisions made after `now_ns` are in the words as well.
    #[must_use]
    pub fn save(&self, now_ns: u64) -> Vec<Saved> {
        let (limits, floor_ns) = self.with_promises();
        let saved = limits.as_slice().iter().map(|limit| {
            let mut words = Writer::new(now_ns);
            words.word(floor_ns.saturating_sub(now_ns));
            limit.write_state(&mut words);
            Saved { numbers: numbers_of(&limit.policy()), state: words.into_words() }
        });
        saved.collect()
    }
}

/// Restores saved limits, under these numbers from now on: see [`RestoreTarget`].
///
/// # Errors
///
/// [`WordsError`] for words that are not a limit, and if the limits differ in number or policy.
pub fn restore(
    limits: impl Into<AllOf>,
    saved: &[Saved],
    since: RestoreContext,
) -> Result<Ledger, WordsError> {
    let limits = limits.into();
    if limits.policies().len() != saved.len() {
        return Err(LimitError::OtherPolicy.into());
    }
    let mut floor_ns = since.now_ns;
    let members = limits.into_iter().zip(saved).map(|(policy, saved)| {
        let (member, own_ns) =
            RestoreTarget::new(policy, &saved.numbers)?.read(&saved.state, since)?;
        floor_ns = floor_ns.max(own_ns);
        Ok(member)
    });
    let members = members.collect::<Result<_, WordsError>>()?;
    Ok(Ledger::with_floor(members, floor_ns, since.now_ns))
}

/// A restore target: a policy that continues from states saved under numbers of the same kind.
///
/// It serves tables, where many states have the same numbers. If its own numbers differ, it
/// follows the saved ones as by a change of a live limit. That change happens at the instant of
/// restoring, or when the last promise has started, if there are any.
#[derive(Clone, Copy, Debug)]
pub struct RestoreTarget {
    policy: AnyPolicy,
    saved: AnyPolicy,
    is_change: bool,
}

impl RestoreTarget {
    /// Returns a restore target for limits with these saved numbers.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are not numbers of a policy, or are those of another one.
    pub fn new(policy: AnyPolicy, saved: &Numbers) -> Result<Self, WordsError> {
        tag::expect(saved.tag, policy.tag())?;
        let is_change = numbers_of(&policy) != *saved;
        let saved = saved.policy()?;
        Ok(Self { policy, saved, is_change })
    }

    /// Restores the limit with the state of these words.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if they are not a state.
    pub fn limit(&self, state: &[u64], since: RestoreContext) -> Result<Ledger, WordsError> {
        let (member, floor_ns) = self.read(state, since)?;
        Ok(Ledger::with_floor(member.into(), floor_ns, since.now_ns))
    }

    /// Restores a state saved by [`save_state`], for a limit that gives no
    /// promises.
    ///
    /// # Errors
    ///
    /// [`WordsError`] if the words are not a state, or an earlier promise is still to start.
    pub fn state(&self, state: &[u64], since: RestoreContext) -> Result<Member, WordsError> {
        match self.read(state, since)? {
            (member, floor_ns) if floor_ns <= since.now_ns => Ok(member),
            _ => Err(WordsError::Word { at: 0 }),
        }
    }

    /// Returns the limit, and the instant before which no new call may start.
    fn read(&self, state: &[u64], since: RestoreContext) -> Result<(Member, u64), WordsError> {
        let RestoreContext { now_ns, elapsed_ns } = since;
        let mut reader = Reader::new(state, since);
        let lead_ns = reader.word()?;
        let floor_ns = now_ns.saturating_add(lead_ns.saturating_sub(elapsed_ns));
        reader = reader.settled_at(floor_ns);
        // A policy out of words may know less than the one with the same numbers.
        let numbers = if self.is_change { self.saved } else { self.policy };
        let mut member = Member::read_state(numbers, &mut reader)?;
        reader.end()?;
        if self.is_change {
            member.change(self.policy, floor_ns);
        }
        Ok((member, floor_ns))
    }
}
