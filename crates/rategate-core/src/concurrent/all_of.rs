//! Several limits in one lock-free cell: the lock-free form of [`all_of`](crate::all_of).
//!
//! # Layout
//!
//! ```text
//!   state    latest | 3 words | 3 words | ...      the newest start, and each limit's state
//!   numbers  epoch  | 3 words | 3 words | ...      the refund epoch, and each limit's numbers
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
//! The clock is clamped as in [`AllOfLedger`]: a reading older than the newest start counts as that
//! start, and the grant reports it. Windows of a grid are therefore counted correctly for any
//! disorder of the readings.
//!
//! # Contract
//!
//! That of [`all_of`](crate::all_of), for one to [`MAX_LIMITS`] token buckets and fixed windows.
//! Other policies, rates `never` and `unlimited`, and states beyond the end of the clock stay
//! with the ledgers. So do tries that find none of the 16 slots free.

use core::convert::Infallible;
use core::fmt;
use core::num::NonZeroU64;

use super::cell::{Cell, Copied, Replaced, Words};
use super::{Concurrent, Leftover, LockFree, LockFreeVerdict};
use crate::agree;
use crate::all_of::AllOfLedger;
use crate::any_policy::AnyPolicy;
use crate::compact::{Compact, Kind, WORDS};
use crate::error::LimitError;
use crate::policy::Taken;
use crate::refund::RefundEpoch;
use crate::verdict::{Opening, Refusal};

/// The maximum number of limits that can share a lock-free form.
pub const MAX_LIMITS: usize = 4;

/// A row of a cell, of which `L` limits are in use.
type Row<const L: usize> = Words<L, WORDS>;

/// Several limits that threads share without a lock.
#[derive(Debug)]
pub struct Bundle {
    /// The kind of each limit. Neither the kinds nor their number ever changes.
    kinds: [Kind; MAX_LIMITS],
    count: usize,
    cell: Cell<MAX_LIMITS, WORDS>,
}

/// The state of all limits at one instant.
#[derive(Clone, Copy, Debug)]
struct Moment<const L: usize> {
    latest_ns: u64,
    epoch: RefundEpoch,
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
    fn take(&mut self, now_ns: u64, permits: NonZeroU64) -> Leftover {
        self.latest_ns = now_ns;
        let grant = Taken { from_ns: now_ns, start_ns: now_ns, permits };
        // An earlier instant is always true as well.
        let busy_until_ns = self.limits.iter_mut().map(|limit| limit.take(grant)).min();
        let left = self.remaining(now_ns);
        Leftover::booked(left, busy_until_ns.unwrap_or(u64::MAX)).with_epoch(self.epoch)
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

impl Bundle {
    /// Returns a sealed bundle, with slots allocated only if it can hold `policies`.
    fn sealed<'a>(policies: impl Iterator<Item = &'a AnyPolicy>) -> Self {
        let mut kinds = [Kind::Bucket; MAX_LIMITS];
        let (mut count, mut fit) = (0_usize, true);
        for policy in policies {
            match (Kind::of(policy), kinds.get_mut(count)) {
                (Some(kind), Some(slot)) => *slot = kind,
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
            let entry = |row: &Row<L>| row.entries.get(at).copied().unwrap_or_default();
            Compact::from_words(kind, entry(numbers), entry(state))
        };
        Moment {
            latest_ns: state.head,
            epoch: RefundEpoch::from_bits(numbers.head),
            limits: core::array::from_fn(limit),
        }
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
            let leftover = moment.take(now_ns, permits);
            let Some(state) = moment.state() else { return LockFreeVerdict::Sealed };
            match claim.replace(&copied, &state) {
                Replaced::Yes => {
                    let scheduled_ns = opening.scheduled_ns.unwrap_or(now_ns);
                    return LockFreeVerdict::Granted { start_ns: now_ns, scheduled_ns, leftover };
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
impl LockFree for Bundle {
    #[inline]
    fn try_acquire(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> LockFreeVerdict {
        let Some(permits) = NonZeroU64::new(permits) else { return LockFreeVerdict::Sealed };
        match self.count {
            1 => self.try_all::<1>(read_ns, permits),
            2 => self.try_all::<2>(read_ns, permits),
            3 => self.try_all::<3>(read_ns, permits),
            _ => self.try_all::<MAX_LIMITS>(read_ns, permits),
        }
    }

    fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        let permits = NonZeroU64::new(permits)?;
        match self.count {
            1 => self.peek_all::<1>(now_ns, permits),
            2 => self.peek_all::<2>(now_ns, permits),
            3 => self.peek_all::<3>(now_ns, permits),
            _ => self.peek_all::<MAX_LIMITS>(now_ns, permits),
        }
    }

    fn remaining(&self, now_ns: u64) -> Option<u64> {
        match self.count {
            1 => self.left_in_all::<1>(now_ns),
            2 => self.left_in_all::<2>(now_ns),
            3 => self.left_in_all::<3>(now_ns),
            _ => self.left_in_all::<MAX_LIMITS>(now_ns),
        }
    }
}

impl Concurrent for AllOfLedger {
    type LockFree = Bundle;
    /// No seed: several ledgers are kept as they are.
    type Seed = Infallible;

    fn seed(&self, _lock_free: &Self::LockFree) -> Option<Infallible> {
        None
    }

    fn grown(seed: &Infallible) -> Self {
        match *seed {}
    }

    fn fmt_policy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.policies()).finish()
    }

    fn lock_free(&mut self, now_ns: u64) -> Bundle {
        let lock_free = Bundle::sealed(self.policies());
        self.open(&lock_free, now_ns);
        lock_free
    }

    fn seal(&mut self, lock_free: &Bundle) {
        if let Some(last) = lock_free.cell.seal() {
            let Moment { latest_ns, limits, .. } = lock_free.moment(&last);
            self.resume(latest_ns, limits.iter().take(lock_free.count).map(Compact::state));
        }
    }

    fn open(&mut self, lock_free: &Bundle, now_ns: u64) {
        if !lock_free.cell.is_of_use() {
            return;
        }
        let Some(now_ns) = self.at_rest(now_ns) else { return };
        let mut numbers = Words { head: self.epoch().bits(), entries: [[0; WORDS]; MAX_LIMITS] };
        let mut state = Words { head: now_ns, ..numbers };
        let rows = numbers.entries.iter_mut().zip(&mut state.entries);
        for ((policy, known), (number, word)) in self.started().zip(rows) {
            let Some(limit) = Compact::new(policy, known) else { return };
            let (Some(numbers), Some(words)) = (limit.numbers(), limit.words()) else { return };
            (*number, *word) = (numbers, words);
        }
        lock_free.cell.open(&numbers, &state);
    }
}

impl AllOfLedger {
    /// Puts new numbers for all the policies into force at a reading of `read_ns`, also in the
    /// lock-free form.
    ///
    /// # Errors
    ///
    /// Those of [`reconfigure`](Self::reconfigure); nothing changes then.
    pub fn change(
        &mut self,
        lock_free: &Bundle,
        read_ns: impl Fn() -> u64 + Copy,
        policies: &[AnyPolicy],
    ) -> Result<(), LimitError> {
        self.seal(lock_free);
        let now_ns = read_ns();
        let changed = self.reconfigure(now_ns, policies);
        self.open(lock_free, now_ns);
        changed
    }
}
