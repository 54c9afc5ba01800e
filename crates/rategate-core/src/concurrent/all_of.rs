//! Several limits in one lock-free cell: the lock-free form of [`all_of`](crate::all_of).
//!
//! # Layout
//!
//! ```text
//!   state    latest | 3 words | 3 words | ...      the newest start, and each limit's state
//!   numbers  past   | 3 words | 3 words | ...      the refund epoch, and each limit's numbers
//! ```
//!
//! A bucket's state is its TAT with its fraction; a fixed window's is its grid and its count. A
//! try copies all of it and confirms that the copy is whole. Then it consults the same policies
//! as the ledgers do. The decisions are therefore the ledgers' to the nanosecond, including
//! `remaining` and the permits that can be refunded later.
//!
//! # Who writes what, and why it suffices
//!
//! A grant replaces the states by which it was judged in one swap: it takes from all limits or
//! from none. The swap linearises it. A denial linearises at the second load of the word, which
//! comes after the reading of the clock.
//!
//! The clock is clamped as in [`AllOf`]: a reading older than the newest start counts as that
//! start, and the grant reports it. Windows of a grid are therefore counted correctly for any
//! disorder of the readings.
//!
//! # Contract
//!
//! That of [`all_of`](crate::all_of), for one to [`MOST_LIMITS`] token buckets and fixed windows.
//! Other policies, rates `never` and `unlimited`, and states beyond the end of the clock stay
//! with the ledgers. So do tries that find all 16 slots claimed by other threads.

use core::convert::Infallible;
use core::fmt;
use core::num::NonZeroU64;

use super::cell::{Cell, Copied, Replaced, Words};
use super::{Answer, Concurrent, Spare, Twin};
use crate::agree;
use crate::all_of::AllOf;
use crate::any_policy::AnyPolicy;
use crate::compact::{Compact, Kind, WORDS};
use crate::error::LimitError;
use crate::policy::Taken;
use crate::refund::Past;
use crate::verdict::{Opening, Refusal};

/// The maximum number of limits that can share a lock-free form.
pub const MOST_LIMITS: usize = 4;

/// A row of a cell, of which `L` limits are in use.
type Row<const L: usize> = Words<L, WORDS>;

/// Several limits that threads share without a lock.
#[derive(Debug)]
pub struct Bundle {
    /// The kind of each limit. Neither the kinds nor their number ever changes.
    kinds: [Kind; MOST_LIMITS],
    count: usize,
    cell: Cell<MOST_LIMITS, WORDS>,
}

/// The state of all limits at one instant.
#[derive(Clone, Copy, Debug)]
struct Moment<const L: usize> {
    latest_ns: u64,
    past: Past,
    limits: [Compact; L],
}

impl<const L: usize> Moment<L> {
    #[inline]
    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        agree::opening(&self.limits, now_ns, now_ns, permits)
    }

    #[inline]
    fn remaining(&self, now_ns: u64) -> u64 {
        self.limits.iter().map(|limit| limit.remaining(now_ns)).min().unwrap_or(u64::MAX)
    }

    /// Takes `permits` from all limits at `now_ns`. Returns what is left.
    #[inline]
    fn take(&mut self, now_ns: u64, permits: NonZeroU64) -> Spare {
        self.latest_ns = now_ns;
        let grant = Taken { from_ns: now_ns, start_ns: now_ns, permits };
        // An earlier instant is always true as well.
        let busy_until_ns = self.limits.iter_mut().map(|limit| limit.take(grant)).min();
        let left = self.remaining(now_ns);
        Spare::booked(left, busy_until_ns.unwrap_or(u64::MAX)).with_past(self.past)
    }

    #[inline]
    fn state(&self) -> Option<Row<L>> {
        let mut state = Words { head: self.latest_ns, parts: [[0; WORDS]; L] };
        for (limit, part) in self.limits.iter().zip(&mut state.parts) {
            *part = limit.words()?;
        }
        Some(state)
    }
}

impl Bundle {
    /// Returns a sealed bundle, with slots allocated only if it can hold `policies`.
    fn sealed<'a>(policies: impl Iterator<Item = &'a AnyPolicy>) -> Self {
        let mut kinds = [Kind::Bucket; MOST_LIMITS];
        let (mut count, mut fit) = (0_usize, true);
        for policy in policies {
            match (Kind::of(policy), kinds.get_mut(count)) {
                (Some(kind), Some(place)) => *place = kind,
                _ => fit = false,
            }
            count = count.saturating_add(1);
        }
        Self { kinds, count, cell: Cell::sealed(fit && count > 0) }
    }

    /// Returns the limits that a whole copy describes.
    #[inline]
    fn moment<const L: usize>(&self, copied: &Copied<L, WORDS>) -> Moment<L> {
        let Copied { numbers, state, .. } = copied;
        let limit = |at: usize| {
            let kind = self.kinds.get(at).copied().unwrap_or(Kind::Bucket);
            let part = |row: &Row<L>| row.parts.get(at).copied().unwrap_or_default();
            Compact::from_words(kind, part(numbers), part(state))
        };
        Moment {
            latest_ns: state.head,
            past: Past::from_bits(numbers.head),
            limits: core::array::from_fn(limit),
        }
    }

    /// Returns the limits at one instant, and the clock as it was read before that.
    #[inline]
    fn look<const L: usize>(
        &self,
        read_ns: impl Fn() -> u64,
    ) -> Option<(Copied<L, WORDS>, Moment<L>, u64)> {
        let (copied, now_ns) = self.cell.read(read_ns)?;
        let moment = self.moment(&copied);
        Some((copied, moment, now_ns.max(moment.latest_ns)))
    }

    #[inline]
    fn try_all<const L: usize>(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: NonZeroU64,
    ) -> Answer {
        let mut claim = self.cell.claim();
        loop {
            let Some((copied, mut moment, now_ns)) = self.look::<L>(read_ns) else {
                return Answer::Sealed;
            };
            let opening = match moment.opening(now_ns, permits) {
                Ok(opening) if opening.opens_ns <= now_ns => opening,
                Ok(opening) => return Answer::denied(opening.opens_ns.saturating_sub(now_ns)),
                Err(Refusal::BeyondClock { wait_ns }) => return Answer::denied(wait_ns),
                Err(_) => return Answer::Sealed,
            };
            let spare = moment.take(now_ns, permits);
            let Some(state) = moment.state() else { return Answer::Sealed };
            match claim.replace(&copied, &state) {
                Replaced::Yes => {
                    let scheduled_ns = opening.scheduled_ns.unwrap_or(now_ns);
                    return Answer::Granted { start_ns: now_ns, scheduled_ns, spare };
                }
                // The winner has had the time of another decision to move on.
                Replaced::No => {}
                Replaced::NoSlot => return Answer::Sealed,
            }
        }
    }

    fn peek_all<const L: usize>(&self, now_ns: u64, permits: NonZeroU64) -> Option<u64> {
        let (_, moment, now_ns) = self.look::<L>(|| now_ns)?;
        match moment.opening(now_ns, permits) {
            Ok(opening) => Some(opening.opens_ns.saturating_sub(now_ns)),
            Err(Refusal::BeyondClock { wait_ns }) => Some(wait_ns),
            Err(_) => None,
        }
    }

    fn left_in_all<const L: usize>(&self, now_ns: u64) -> Option<u64> {
        let (_, moment, now_ns) = self.look::<L>(|| now_ns)?;
        Some(moment.remaining(now_ns))
    }
}

/// The number of limits is a constant in each call, so a try copies only the limits in use.
impl Twin for Bundle {
    #[inline]
    fn try_acquire(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> Answer {
        let Some(permits) = NonZeroU64::new(permits) else { return Answer::Sealed };
        match self.count {
            1 => self.try_all::<1>(read_ns, permits),
            2 => self.try_all::<2>(read_ns, permits),
            3 => self.try_all::<3>(read_ns, permits),
            _ => self.try_all::<MOST_LIMITS>(read_ns, permits),
        }
    }

    fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let permits = NonZeroU64::new(permits)?;
        match self.count {
            1 => self.peek_all::<1>(now_ns, permits),
            2 => self.peek_all::<2>(now_ns, permits),
            3 => self.peek_all::<3>(now_ns, permits),
            _ => self.peek_all::<MOST_LIMITS>(now_ns, permits),
        }
    }

    fn remaining(&self, now_ns: u64) -> Option<u64> {
        match self.count {
            1 => self.left_in_all::<1>(now_ns),
            2 => self.left_in_all::<2>(now_ns),
            3 => self.left_in_all::<3>(now_ns),
            _ => self.left_in_all::<MOST_LIMITS>(now_ns),
        }
    }
}

impl Concurrent for AllOf {
    type Twin = Bundle;
    /// No seed: several ledgers are kept as they are.
    type Seed = Infallible;

    fn seed(&self, _twin: &Self::Twin) -> Option<Infallible> {
        None
    }

    fn grown(seed: &Infallible) -> Self {
        match *seed {}
    }

    fn fmt_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.policies()).finish()
    }

    fn twin(&mut self, now_ns: u64) -> Bundle {
        let twin = Bundle::sealed(self.policies());
        self.open(&twin, now_ns);
        twin
    }

    fn seal(&mut self, twin: &Bundle) {
        if let Some(last) = twin.cell.seal() {
            let Moment { latest_ns, limits, .. } = twin.moment(&last);
            self.resume(latest_ns, limits.iter().take(twin.count).map(Compact::state));
        }
    }

    fn open(&mut self, twin: &Bundle, now_ns: u64) {
        if !twin.cell.is_of_use() {
            return;
        }
        let Some(now_ns) = self.at_rest(now_ns) else { return };
        let mut numbers = Words { head: self.past().bits(), parts: [[0; WORDS]; MOST_LIMITS] };
        let mut state = Words { head: now_ns, ..numbers };
        let rows = numbers.parts.iter_mut().zip(&mut state.parts);
        for ((policy, known), (number, word)) in self.started().zip(rows) {
            let Some(limit) = Compact::new(policy, known) else { return };
            let (Some(numbers), Some(words)) = (limit.numbers(), limit.words()) else { return };
            (*number, *word) = (numbers, words);
        }
        twin.cell.open(&numbers, &state);
    }
}

impl AllOf {
    /// Puts new numbers for all the policies into force at a reading of `read_ns`, also in the
    /// lock-free form.
    ///
    /// # Errors
    ///
    /// Those of [`reconfigure`](Self::reconfigure); nothing changes then.
    pub fn change(
        &mut self,
        twin: &Bundle,
        read_ns: impl Fn() -> u64 + Copy,
        policies: &[AnyPolicy],
    ) -> Result<(), LimitError> {
        self.seal(twin);
        let now_ns = read_ns();
        let changed = self.reconfigure(now_ns, policies);
        self.open(twin, now_ns);
        changed
    }
}
