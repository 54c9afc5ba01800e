//! Several limits in one lock-free cell: the lock-free form of [`all_of`](crate::all_of).
//!
//! # Layout
//!
//! ```text
//!   state    latest | 3 words | 3 words | ...      the newest start, and each limit's state
//!   numbers  unused | 3 words | 3 words | ...      each limit's numbers
//! ```
//!
//! A bucket's state is its TAT with its fraction; a fixed window's is its grid and its count. A
//! try copies all of it and confirms that the copy is whole. Then it consults the same policies
//! as the ledger does. The decisions are therefore the ledger's to the nanosecond, including
//! `remaining`.
//!
//! # Who writes what, and why it suffices
//!
//! A grant replaces the states by which it was judged in one swap: it takes from all limits or
//! from none. The swap linearises it. A denial linearises at the second load of the word, which
//! comes after the reading of the clock.
//!
//! The clock is clamped as in the ledger: a reading older than the newest start counts as that
//! start, and the grant reports it. Windows of a grid are therefore counted correctly for any
//! disorder of the readings.
//!
//! # Contract
//!
//! That of [`all_of`](crate::all_of), for two to [`MAX_LIMITS`] token buckets and fixed windows.
//! Other policies, rates `never` and `unlimited`, and states beyond the end of the clock stay
//! with the ledger. So do tries that find none of the 16 slots free.

use core::num::NonZeroU64;

use super::LockFreeVerdict;
use super::cell::{Cell, Copied, Replaced, Words};
use crate::compact::{Compact, Kind, WORDS};
use crate::members::{self, Members};
use crate::policy::Taken;
use crate::verdict::{Opening, Refusal};

/// The maximum number of limits that can share a lock-free form.
pub const MAX_LIMITS: usize = 4;

/// A row of a cell, of which `L` limits are in use.
type Row<const L: usize> = Words<L, WORDS>;

/// Several limits that threads share without a lock.
#[derive(Debug)]
pub struct Several {
    /// The kind of each limit. Neither the kinds nor their number ever changes.
    kinds: [Kind; MAX_LIMITS],
    count: usize,
    cell: Cell<MAX_LIMITS, WORDS>,
}

/// The state of all limits at one instant.
#[derive(Clone, Copy, Debug)]
struct Moment<const L: usize> {
    latest_ns: u64,
    limits: [Compact; L],
}

impl<const L: usize> Moment<L> {
    #[inline]
    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        members::opening(&self.limits, now_ns, |limit, from_ns| limit.opening(from_ns, permits))
    }

    #[inline]
    fn remaining(&self, now_ns: u64) -> u64 {
        self.limits.iter().map(|limit| limit.remaining(now_ns)).min().unwrap_or(u64::MAX)
    }

    /// Takes `permits` from all limits at `now_ns`.
    #[inline]
    fn take(&mut self, now_ns: u64, permits: NonZeroU64) {
        self.latest_ns = now_ns;
        let grant = Taken { from_ns: now_ns, start_ns: now_ns, permits };
        for limit in &mut self.limits {
            limit.take(grant);
        }
    }

    #[inline]
    fn state(&self) -> Option<Row<L>> {
        let mut state = Words { head: self.latest_ns, entries: [[0; WORDS]; L] };
        for (limit, entry) in self.limits.iter().zip(&mut state.entries) {
            *entry = limit.words()?;
        }
        Some(state)
    }
}

impl Several {
    /// Returns a sealed form, if it can hold these limits.
    pub(super) fn sealed(limits: &Members) -> Option<Self> {
        let (mut kinds, mut count) = ([Kind::Bucket; MAX_LIMITS], 0_usize);
        for policy in limits.policies() {
            *kinds.get_mut(count)? = Kind::of(&policy)?;
            count = count.saturating_add(1);
        }
        (count > 1).then(|| Self { kinds, count, cell: Cell::sealed() })
    }

    /// Returns `true` if the limits are of these kinds.
    pub(super) fn is_of(&self, limits: &Members) -> bool {
        let kinds = self.kinds.iter().take(self.count).map(|&kind| Some(kind));
        kinds.eq(limits.policies().map(|policy| Kind::of(&policy)))
    }

    /// Returns the limits that a whole copy describes.
    #[inline]
    fn moment<const L: usize>(&self, copied: &Copied<L, WORDS>) -> Moment<L> {
        let Copied { numbers, state, .. } = copied;
        let limit = |at: usize| {
            let kind = self.kinds.get(at).copied().unwrap_or(Kind::Bucket);
            let entry = |row: &Row<L>| row.entries.get(at).copied().unwrap_or_default();
            Compact::from_words(kind, entry(numbers), entry(state))
        };
        Moment { latest_ns: state.head, limits: core::array::from_fn(limit) }
    }

    /// Returns the limits at one instant, and the clock as it was read before that.
    #[inline]
    fn snapshot<const L: usize>(
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
    ) -> LockFreeVerdict {
        let mut claim = self.cell.claim();
        loop {
            let Some((copied, mut moment, now_ns)) = self.snapshot::<L>(read_ns) else {
                return LockFreeVerdict::Sealed;
            };
            let opening = match moment.opening(now_ns, permits) {
                Ok(opening) if opening.opens_ns <= now_ns => opening,
                Ok(opening) => {
                    return LockFreeVerdict::denied(opening.opens_ns.saturating_sub(now_ns));
                }
                Err(Refusal::BeyondClock { wait_ns }) => return LockFreeVerdict::denied(wait_ns),
                Err(_) => return LockFreeVerdict::Sealed,
            };
            moment.take(now_ns, permits);
            let Some(state) = moment.state() else { return LockFreeVerdict::Sealed };
            match claim.replace(&copied, &state) {
                Replaced::Yes => {
                    let scheduled_ns = opening.scheduled_ns.unwrap_or(now_ns);
                    return LockFreeVerdict::Granted { start_ns: now_ns, scheduled_ns };
                }
                // The thread that won has had time for another decision.
                Replaced::No => {}
                Replaced::NoSlot => return LockFreeVerdict::Sealed,
            }
        }
    }

    fn peek_all<const L: usize>(&self, now_ns: u64, permits: NonZeroU64) -> Option<u64> {
        let (_, moment, now_ns) = self.snapshot::<L>(|| now_ns)?;
        match moment.opening(now_ns, permits) {
            Ok(opening) => Some(opening.opens_ns.saturating_sub(now_ns)),
            Err(Refusal::BeyondClock { wait_ns }) => Some(wait_ns),
            Err(_) => None,
        }
    }

    fn left_in_all<const L: usize>(&self, now_ns: u64) -> Option<u64> {
        let (_, moment, now_ns) = self.snapshot::<L>(|| now_ns)?;
        Some(moment.remaining(now_ns))
    }
}

/// The number of limits is a constant in each call, so a try copies only the limits in use.
impl Several {
    #[inline]
    pub(super) fn try_acquire(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        let Some(permits) = NonZeroU64::new(permits) else { return LockFreeVerdict::Sealed };
        match self.count {
            2 => self.try_all::<2>(read_ns, permits),
            3 => self.try_all::<3>(read_ns, permits),
            _ => self.try_all::<MAX_LIMITS>(read_ns, permits),
        }
    }

    pub(super) fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let permits = NonZeroU64::new(permits)?;
        match self.count {
            2 => self.peek_all::<2>(now_ns, permits),
            3 => self.peek_all::<3>(now_ns, permits),
            _ => self.peek_all::<MAX_LIMITS>(now_ns, permits),
        }
    }

    pub(super) fn remaining(&self, now_ns: u64) -> Option<u64> {
        match self.count {
            2 => self.left_in_all::<2>(now_ns),
            3 => self.left_in_all::<3>(now_ns),
            _ => self.left_in_all::<MAX_LIMITS>(now_ns),
        }
    }
}

/// What only the thread with the ledger's lock does: see [`Fast`](super::Fast).
impl Several {
    pub(super) fn seal(&self) -> Option<(Members, u64)> {
        let Moment { latest_ns, limits, .. } = self.moment::<MAX_LIMITS>(&self.cell.seal()?);
        Some((limits.iter().take(self.count).map(Compact::member).collect(), latest_ns))
    }

    pub(super) fn open(&self, limits: &Members, now_ns: u64) {
        if !self.is_of(limits) {
            return;
        }
        let mut numbers = Words { head: 0, entries: [[0; WORDS]; MAX_LIMITS] };
        let mut state = Words { head: now_ns, ..numbers };
        let rows = numbers.entries.iter_mut().zip(&mut state.entries);
        for (member, (number, word)) in limits.as_slice().iter().zip(rows) {
            let Some(limit) = Compact::new(member) else { return };
            let (Some(numbers), Some(words)) = (limit.numbers(), limit.words()) else { return };
            (*number, *word) = (numbers, words);
        }
        self.cell.open(&numbers, &state);
    }
}
