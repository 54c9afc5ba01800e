//! Lock-free twins: the policies that threads share without taking turns at a lock.
//!
//! A twin answers tries as its policy does, from a word or a ring of words that threads change by
//! compare-and-swap; of several limits, from a cell that they replace as a whole. What words cannot
//! hold, such as a promise that may be cancelled, is for the [`Ledger`]; the two never decide at the
//! same time:
//!
//! ```text
//!             open                                      sealed
//!   tries: compare-and-swap on the twin       everything: the ledger, under its owner's lock
//!                 \____ seal: whoever holds the lock ____/
//!                  \___ open: once no promise is out ___/
//! ```
//!
//! * **One owner at a time.** While a twin is open, the state is in it and the ledger's is stale.
//!   [Sealing](Concurrent::seal) takes the state out in one atomic step (the log: one per slot),
//!   after which no compare-and-swap of anybody can succeed.
//! * **A configuration is published with the word.** The word names one of two slots that hold the
//!   numbers. A slot is written only while the word names the other, and a word's value belongs to
//!   one configuration for ever: a swap that succeeds has therefore read the numbers in force.
//! * **New numbers come at one stroke** where a word can hold them: they are written beside the old
//!   ones and put into force by a swap of the word, so nobody waits for a change.
//! * **A denial writes nothing**, and it was true at one instant: the word is read again after the
//!   numbers, and if it has changed, so may the answer have.
//! * **Clocks.** Each thread brings its own reading. One that is older than another's earns nothing:
//!   bounds hold for any disorder of the readings. Whoever is denied has read the clock after the
//!   state, so a thread that was held up in between is told no more than is true; a denial can be
//!   wrong by the disorder of the clocks alone (tenths of a microsecond between the cores of one
//!   processor).
//!   Permits that come back and new numbers are the exceptions: what they leave depends on what has been earned by
//!   now, so they need a reading that is not before those of the grants so far.
//!
//! Orderings, in all twins: a swap is `AcqRel` and a load of a word `Acquire`, so whoever sees a
//! state sees the numbers it was made with; the fields of a configuration are read `Relaxed` and
//! made sure of by an `Acquire` fence and a second look at the word, as in a sequence lock.
//!
//! | twin | state | a try costs |
//! |---|---|---|
//! | [`gcra`] | one word: the TAT | a clock reading and one swap |
//! | [`two_timeline`] | one word and a cached clock (average), or two words | one addition while behind; else a clock reading and one swap or two |
//! | [`sliding_log`] | one word for each permit, and a hint at the oldest | a clock reading, one swap, and one more for each eighth |
//! | [`all_of`] | a few words for each limit, in a slot that one word names | a clock reading, one swap of the word and two of a bitmap |
//!
//! # Without 64-bit atomics
//!
//! A target that has none, such as `thumbv7m-none-eabi`, has all policies, ledgers and queues, and no twin: the types of
//! all policies' twins are [`NoTwin`], which is always sealed. So is every target under
//! `--cfg rategate_without_atomics`, by which the checks build this form.
//!
//! ```
//! use rategate_core::concurrent::{Answer, Concurrent, Twin};
//! use rategate_core::gcra::Gcra;
//! use rategate_core::ledger::Ledger;
//!
//! let mut ledger = Ledger::new(Gcra::new("1/s".parse()?, 1)?, 0);
//! let twin = ledger.twin(0);
//! assert!(matches!(twin.try_acquire(|| 5, 1), Answer::Granted { start_ns: 5, .. }));
//! assert!(matches!(twin.try_acquire(|| 5, 1), Answer::Denied { .. }));
//!
//! // What needs the ledger takes the state back first.
//! ledger.seal(&twin);
//! assert_eq!(twin.try_acquire(|| 5, 1), Answer::Sealed);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::fmt::{self, Debug};
use core::num::NonZeroU64;

use crate::ledger::Ledger;
use crate::limit::Limit;
use crate::narrow::Narrow;
use crate::policy::Policy;
use crate::provisional::Provisional;
use crate::refund::{Past, Rest};
use crate::verdict::{STARTED, Ticket};

#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub mod all_of;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub mod gcra;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub mod sliding_log;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
pub mod two_timeline;

#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
mod cell;
#[cfg(not(all(target_has_atomic = "64", not(rategate_without_atomics))))]
mod locked;
mod policies;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
mod sync;
#[cfg(all(target_has_atomic = "64", not(rategate_without_atomics)))]
mod word;

/// What a twin answers.
#[must_use = "a grant that nobody acts on is a permit lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The permits are the caller's, now.
    Granted {
        /// The reading of the clock that the grant counts from: the caller's own, an earlier one where
        /// the clock was not read, or of several limits the newest start, if that is later.
        start_ns: u64,
        /// When it should have started, as in [`Grant`](crate::verdict::Grant::scheduled_ns).
        scheduled_ns: u64,
        /// What one more try could take at that reading.
        spare: Spare,
    },
    /// Nothing was taken.
    Denied {
        /// How long until the same try passes, if nobody else comes first: exact.
        retry_after_ns: NonZeroU64,
    },
    /// The twin does not know; the ledger does.
    Sealed,
}

impl Answer {
    #[inline]
    fn denied(retry_after_ns: u64) -> Self {
        // A wait of nothing would be no denial.
        NonZeroU64::new(retry_after_ns)
            .map_or(Self::Sealed, |retry_after_ns| Self::Denied { retry_after_ns })
    }

    #[inline]
    const fn with_past(self, past: Past) -> Self {
        match self {
            Self::Granted { start_ns, scheduled_ns, spare } => {
                Self::Granted { start_ns, scheduled_ns, spare: spare.with_past(past) }
            }
            other => other,
        }
    }
}

/// Permits that are left behind a grant, not counted yet: the division would cost as much as the
/// decision, and few ask. And what had come back by then, should some of the grant come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spare {
    left: Left,
    past: Past,
}

/// How much is left, and what else the one who counted it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Parts { parts: u64, parts_per_permit: u64 },
    Permits { permits: u64, busy_until_ns: u64 },
}

impl Spare {
    /// So many whole permits.
    #[must_use]
    pub const fn of(permits: u64) -> Self {
        Self::in_parts(permits, 1)
    }

    pub(crate) const fn in_parts(parts: u64, parts_per_permit: u64) -> Self {
        Self { left: Left::Parts { parts, parts_per_permit }, past: Past::UNKNOWN }
    }

    /// So many, left behind a grant without which the limit could not have been at rest before
    /// `busy_until_ns`.
    #[must_use]
    pub const fn booked(permits: u64, busy_until_ns: u64) -> Self {
        Self { left: Left::Permits { permits, busy_until_ns }, past: Past::UNKNOWN }
    }

    /// The same, left when so much had come back.
    #[must_use]
    pub const fn with_past(self, past: Past) -> Self {
        Self { past, ..self }
    }

    /// What had come back by then.
    #[must_use]
    pub const fn past(self) -> Past {
        self.past
    }

    /// The ticket of a grant that started at `start_ns` and left this.
    #[must_use]
    pub const fn ticket(self, start_ns: u64) -> Ticket {
        let rest = match self.left {
            Left::Parts { parts, parts_per_permit } => Rest::Spare { parts, parts_per_permit },
            Left::Permits { busy_until_ns, .. } => Rest::BusyUntil(busy_until_ns),
        };
        Ticket { start_ns, serial: STARTED, rest, past: self.past }
    }

    /// Whether these are fewer than so many whole permits. Costs no division.
    #[must_use]
    pub const fn is_below(self, permits: u64) -> bool {
        match self.left {
            Left::Permits { permits: left, .. } => left < permits,
            Left::Parts { parts_per_permit: 0, .. } => 0 < permits,
            Left::Parts { parts, parts_per_permit } => {
                match permits.checked_mul(parts_per_permit) {
                    Some(needed) => parts < needed,
                    None => true,
                }
            }
        }
    }

    /// How many whole permits.
    #[must_use]
    pub const fn permits(self) -> u64 {
        match self.left {
            Left::Permits { permits, .. } => permits,
            Left::Parts { parts, parts_per_permit } => match parts.checked_div(parts_per_permit) {
                Some(permits) => permits,
                None => 0,
            },
        }
    }
}

/// A batch of permits that a thread has taken in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// How many.
    pub permits: u64,
    /// The reading of the clock that they count from.
    pub start_ns: u64,
    /// What the twin needs to know when some of them come back.
    mark: Mark,
}

/// What a twin answers to whoever asks for a batch.
#[must_use = "a batch that nobody keeps is lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// At least the least is the caller's.
    Taken(Drawn),
    /// Nothing was taken.
    Denied {
        /// How long until a try for the least passes, if nobody else comes first: exact.
        retry_after_ns: NonZeroU64,
    },
    /// The twin does not know, or has no batches. A try does.
    Unknown,
}

/// The state that a batch has left behind, and the configuration it is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    value: u64,
    base: u64,
    /// What had come back by then.
    past: Past,
}

/// The lock-free form of a policy.
pub trait Twin: Debug + Send + Sync {
    /// Whether a limit can become too large for a twin, and need another one.
    const GROWS: bool = false;

    /// Takes `permits` at once or not at all. `read_ns` reads the clock: as a rule once, again where
    /// others have been faster, not at all where the answer does not depend on it.
    fn try_acquire(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> Answer;

    /// Takes at least `least` and up to `most` permits in one step, for a thread to use one by one.
    fn draw(&self, _read_ns: impl Fn() -> u64 + Copy, _least: u64, _most: u64) -> Draw {
        Draw::Unknown
    }

    /// How long until a try would pass, zero if it would now; `None` if sealed. Takes nothing.
    fn peek(&self, now_ns: u64, permits: u64) -> Option<u64>;

    /// The most permits that a try could take; `None` if sealed.
    fn remaining(&self, now_ns: u64) -> Option<u64>;
}

/// A policy with a twin.
///
/// A policy of one's own that has none says so: `type Twin = NoTwin`.
pub trait Twinned: Policy + Send {
    /// The twin.
    type Twin: Owned<Self>;

    /// How many permits a thread should take at a time, to use them one by one.
    fn batch(&self) -> u64 {
        1
    }

    /// The numbers by which a table keeps states of this policy in a part of a word each, if it can.
    fn narrow(&self) -> Option<Narrow> {
        None
    }

    /// A state as such a part, if it fits.
    fn narrowed(&self, _state: &Self::State, _now_ns: u64) -> Option<u64> {
        None
    }

    /// The state that such a part stands for.
    fn widened(&self, _value: u64, _now_ns: u64) -> Option<Self::State> {
        None
    }
}

/// The side of a twin that the holder of the ledger's lock sees. The twins are this crate's own: what
/// they hand out can be made nowhere else.
pub trait Owned<P: Policy>: Twin + Sized {
    /// A sealed twin, with room for `policy`.
    fn new(policy: &P) -> Self;

    /// Takes the state out. `None` if the twin is sealed already.
    fn seal(&self, policy: &P) -> Option<P::State>;

    /// Puts a state in. Returns whether the twin can hold it, and is open now. Only for a sealed
    /// twin, and only by the holder of the ledger's lock.
    fn open(&self, policy: &P, state: &P::State, now_ns: u64) -> bool;

    /// Goes on with the numbers of `new` at a reading of `read_ns`, at one stroke, without a moment in which it is
    /// sealed. Returns that reading; `None` if it could not, and nothing has changed then. Only by the holder of the
    /// ledger's lock.
    ///
    /// The clock is read after the state that is replaced, so not before any grant that is in it: by an earlier
    /// reading permits would count as used longer than they have been, and shrink with the new numbers.
    fn change(&self, _old: &P, _new: &P, _read_ns: impl Fn() -> u64 + Copy) -> Option<u64> {
        None
    }

    /// Returns the newest reading of the clock that a state out of this twin tells of, where a decision by an
    /// earlier one could pass the limit.
    fn newest_ns(&self, _policy: &P, _state: &P::State) -> u64 {
        0
    }

    /// How many of the last `left` permits of a batch to put back at `now_ns`, so that the state is as
    /// if they had never been taken; `past` is what has come back by now. The others have been earned
    /// again, and are lost. Only once for each batch.
    fn take_back(&self, _policy: &P, _drawn: Drawn, _left: u64, _now_ns: u64, _past: Past) -> u64 {
        0
    }

    /// Takes note of what has come back by now, for grants from now on. Only by the holder of the
    /// ledger's lock, and after what it tells of.
    fn note_past(&self, _past: Past) {}

    /// Whether a larger twin could hold what this one has no room for.
    fn is_outgrown_by(&self, _policy: &P) -> bool {
        false
    }

    /// How many decisions under the lock should pay for the next opening.
    fn price(&self) -> u64 {
        0
    }
}

/// A live limit with a twin: what a limiter shares between threads is one of these under a lock,
/// and its twin before it.
pub trait Concurrent: Provisional {
    /// The twin.
    type Twin: Twin;

    /// What is kept of a limit to which nothing has happened, while its twin answers. Its debug form is
    /// that of the numbers in force.
    type Seed: Debug + Send;

    /// Returns all that has to be kept of a limit whose state is in `twin`, if nothing has happened
    /// to it that a fresh one would not know of. `None` keeps the limit as it is.
    fn seed(&self, twin: &Self::Twin) -> Option<Self::Seed>;

    /// Returns the limit that a seed is of. The twin is to be [sealed](Self::seal) into it.
    fn grown(seed: &Self::Seed) -> Self;

    /// Writes the debug form of the numbers in force.
    ///
    /// # Errors
    ///
    /// Those of the formatter.
    fn fmt_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// A twin of this limit, open where that can be.
    fn twin(&mut self, now_ns: u64) -> Self::Twin;

    /// Takes the state back from the twin, if it is there. From then on all is the limit's.
    fn seal(&mut self, twin: &Self::Twin);

    /// Hands the state to the twin at `now_ns`, if it can hold it. Only after a
    /// [`seal`](Self::seal) under the same lock.
    fn open(&mut self, twin: &Self::Twin, now_ns: u64);

    /// Whether the limit has become too large for its twin, and [another](Self::twin) could hold it.
    fn has_outgrown(&self, _twin: &Self::Twin) -> bool {
        false
    }

    /// How many permits a thread should [draw](Twin::draw) at a time; 1 where batches do not pay, or
    /// would break a promise.
    fn batch(&self) -> u64 {
        1
    }

    /// Takes back what is left of a batch, as far as the limit is then as if it had never been
    /// taken. Only after a [`seal`](Self::seal) under the same lock.
    fn give_back(&mut self, _twin: &Self::Twin, _now_ns: u64, _drawn: Drawn, _left: u64) {}
}

impl<P: Twinned> Ledger<P> {
    /// Puts `policy` into force, in the twin if it is open. Whoever tries meanwhile sees the old
    /// numbers or the new ones; where those fit into the twin's word, nobody waits for the change.
    pub fn change(&mut self, twin: &P::Twin, read_ns: impl Fn() -> u64 + Copy, policy: P) {
        let latest_ns = self.clamp(0);
        if let Some(now_ns) = twin.change(self.policy(), &policy, || read_ns().max(latest_ns)) {
            // The state here is stale; only the numbers count.
            self.reconfigure(now_ns, policy);
            twin.note_past(self.past());
        } else {
            self.seal(twin);
            let now_ns = self.clamp(read_ns());
            self.reconfigure(now_ns, policy);
            self.open(twin, now_ns);
        }
    }
}

/// A ledger that nothing has happened to: its numbers, and what its clock showed when it was made.
#[derive(Clone)]
pub struct Seed<P> {
    policy: P,
    made_ns: u64,
}

impl<P: Debug> Debug for Seed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy.fmt(f)
    }
}

impl<P: Twinned> Concurrent for Ledger<P> {
    type Twin = P::Twin;
    type Seed = Seed<P>;

    fn seed(&self, twin: &P::Twin) -> Option<Seed<P>> {
        let made_ns = self.as_if_made_at()?;
        // What the twin does not hold, the ledger has to.
        twin.remaining(made_ns)?;
        Some(Seed { policy: self.policy().clone(), made_ns })
    }

    fn grown(seed: &Seed<P>) -> Self {
        Self::new(seed.policy.clone(), seed.made_ns)
    }

    fn fmt_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy().fmt(f)
    }

    fn twin(&mut self, now_ns: u64) -> P::Twin {
        let twin = P::Twin::new(self.policy());
        self.open(&twin, now_ns);
        twin
    }

    fn seal(&mut self, twin: &P::Twin) {
        if let Some(state) = twin.seal(self.policy()) {
            // An earlier reading must not find what a later one has let go.
            let newest_ns = twin.newest_ns(self.policy(), &state);
            self.resume(state, newest_ns);
        }
    }

    fn open(&mut self, twin: &P::Twin, now_ns: u64) {
        if let Some(now_ns) = self.at_rest(now_ns, twin.price()) {
            twin.note_past(self.past());
            let _ = twin.open(self.policy(), self.state(), now_ns);
        }
    }

    fn has_outgrown(&self, twin: &P::Twin) -> bool {
        twin.is_outgrown_by(self.policy())
    }

    fn batch(&self) -> u64 {
        self.policy().batch()
    }

    fn give_back(&mut self, twin: &P::Twin, now_ns: u64, drawn: Drawn, left: u64) {
        let left = left.min(drawn.permits);
        let (at_ns, past) = (self.clamp(now_ns), self.past());
        let permits = twin.take_back(self.policy(), drawn, left, at_ns, past);
        self.restore(now_ns, permits);
    }
}

/// The twin of a limit that has none: always sealed.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTwin;

impl Twin for NoTwin {
    fn try_acquire(&self, _read_ns: impl Fn() -> u64 + Copy, _permits: u64) -> Answer {
        Answer::Sealed
    }

    fn peek(&self, _now_ns: u64, _permits: u64) -> Option<u64> {
        None
    }

    fn remaining(&self, _now_ns: u64) -> Option<u64> {
        None
    }
}

impl<P: Policy> Owned<P> for NoTwin {
    fn new(_policy: &P) -> Self {
        Self
    }

    fn seal(&self, _policy: &P) -> Option<P::State> {
        None
    }

    fn open(&self, _policy: &P, _state: &P::State, _now_ns: u64) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without the division, and the same.
    #[test]
    fn below_is_what_the_division_says() {
        let numbers = [0, 1, 2, 3, 6, 7, 8, 1 << 32, u64::MAX / 3, u64::MAX - 1, u64::MAX];
        for parts in numbers {
            for parts_per_permit in numbers {
                let spare = Spare::in_parts(parts, parts_per_permit);
                for permits in numbers {
                    let below = spare.permits() < permits;
                    assert_eq!(spare.is_below(permits), below, "{spare:?} {permits}");
                    let booked = Spare::booked(parts, parts_per_permit);
                    assert_eq!(booked.is_below(permits), parts < permits);
                }
            }
        }
    }
}
