//! The exact log as a ring of atomic words: the lock-free form of
//! [`sliding_log`](crate::sliding_log).
//!
//! # Layout
//!
//! ```text
//!   slot    63 ............... 2 | 1            | 0         one for each of the N permits
//!           expiry instant       | round parity | sealed
//!
//!   head    63 ..... 19 | 18 ... 2 | 1      | 0
//!           round       | index    | which  | sealed
//! ```
//!
//! Slots are used in order, over and over; each pass over the ring is a round. A slot contains
//! the instant at which its last permit leaves the log, counted from the configuration's origin,
//! and the parity of the round in which it was taken. The head is a *hint* at the next slot to
//! use: at most [`STEP`] behind it, never ahead of it.
//!
//! # Who writes what, and why it suffices
//!
//! * A grant is one successful swap of one slot, from an expiry instant that has come to the new
//!   one, and nothing else; it linearises there. So every admission is recorded, under every
//!   schedule.
//! * Between two grants in the same slot lies the time for which it is held, so no window of that
//!   length sees more than N (docs/theory.md, section 2.2). That needs neither the head, nor the
//!   round, nor an order of the clocks; those serve the denials.
//! * A slot with the parity of the head's round has been taken already. A thread that finds one
//!   continues with the next slot, and moves the head along with every [`STEP`] slots (so does the
//!   thread that wins there). The first slot without that parity is the oldest permit in the log.
//!   If *that* is still held, all are, and the denial is right. It linearises at the load of that
//!   slot, and the clock is read after.
//! * The head is loaded again after the slot. If it has not moved, the slot's round was this one
//!   or the one before, so one bit tells them apart.
//! * Expiry instants in a slot grow from grant to grant, and start above all earlier ones when
//!   the ring is opened anew. So a slot that looks unchanged is unchanged.
//! * Opening writes each slot `Release` while the head is sealed. A thread with an old head that
//!   finds a slot open again also finds the head changed.
//! * Orderings: a slot's swap is `AcqRel`, its load `Acquire`. A thread that moves the head past
//!   a slot has therefore seen it taken, and threads that load the head see that too.
//!
//! # Contract
//!
//! That of [`sliding_log`](crate::sliding_log) for single permits. The ledger decides for several
//! at once, and for logs of more than [`MAX_SLOTS`] permits or 2^60 ns. Sealing and opening take
//! a step for each slot, so the log stays with the ledger for a while after each change.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::LockFreeVerdict;
use super::sync::{AtomicU64, Ordering};
use super::word::{SPAN, Seen, Word, free_base};
use crate::sliding_log::{SlidingLog, State};

/// The largest log that has a lock-free form. It takes 8 bytes for each permit.
pub const MAX_SLOTS: u64 = 1 << INDEX_BITS;

/// The maximum distance of the head behind the oldest slot: a cache line of slots.
pub const STEP: u64 = 8;

const INDEX_BITS: u32 = 17;
const INDEX_MASK: u64 = MAX_SLOTS - 1;
/// The number of expiry instants that one configuration may use.
const VALUES_PER_CONFIG: u64 = 1 << 60;

const SEALED: u64 = 1;
const ODD_ROUND: u64 = 2;
const RELEASE_SHIFT: u32 = 2;

/// An exact log that threads share without a lock.
pub struct Ring {
    head: Word<6>,
    slots: Box<[AtomicU64]>,
    /// The highest expiry instant ever in any slot. Read and written under the lock only.
    highest: AtomicU64,
}

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    origin_ns: u64,
    horizon_ns: u64,
    held_ns: u64,
    resolution_ns: u64,
    slots: u64,
    base: u64,
}

/// A position in the ring: a round and an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingPosition {
    round: u64,
    index: u64,
}

/// The slot to use next, as a thread has read it.
#[derive(Clone, Copy, Debug)]
struct Oldest {
    numbers: Numbers,
    position: RingPosition,
    slot: u64,
}

impl Numbers {
    const fn from_fields(fields: [u64; 6]) -> Self {
        let [origin_ns, horizon_ns, held_ns, resolution_ns, slots, base] = fields;
        Self { origin_ns, horizon_ns, held_ns, resolution_ns, slots, base }
    }

    const fn to_fields(self) -> [u64; 6] {
        let Self { origin_ns, horizon_ns, held_ns, resolution_ns, slots, base } = self;
        [origin_ns, horizon_ns, held_ns, resolution_ns, slots, base]
    }

    /// Returns the clock on the scale of expiry instants, unless it is off that scale.
    fn at(self, now_ns: u64) -> Option<u64> {
        let since_ns = now_ns.checked_sub(self.origin_ns)?;
        (since_ns <= self.horizon_ns).then_some(self.base.wrapping_add(since_ns))
    }

    /// Returns the slot of a permit that is granted at `now_ns` in this round.
    fn taken(self, now_ns: u64, round: u64) -> Option<u64> {
        let instant_ns = match self.resolution_ns {
            0 | 1 => now_ns,
            resolution_ns => now_ns.checked_next_multiple_of(resolution_ns)?,
        };
        let ahead_ns = instant_ns.checked_sub(self.origin_ns)?.wrapping_add(self.held_ns);
        let release = self.base.wrapping_add(ahead_ns);
        Some((release << RELEASE_SHIFT) | parity_of(round))
    }
}

impl RingPosition {
    const fn of(head: Seen) -> Self {
        let value = head.value();
        Self { round: value >> INDEX_BITS, index: value & INDEX_MASK }
    }

    const fn value(self) -> u64 {
        ((self.round << INDEX_BITS) | self.index) & SPAN
    }

    const fn next(self, slots: u64) -> Self {
        match self.index.wrapping_add(1) {
            index if index < slots => Self { round: self.round, index },
            _ => Self { round: self.round.wrapping_add(1), index: 0 },
        }
    }

    /// Returns `true` if the head moves to this position.
    const fn is_step(self) -> bool {
        self.index & (STEP - 1) == 0
    }
}

const fn parity_of(round: u64) -> u64 {
    if round & 1 == 0 { 0 } else { ODD_ROUND }
}

impl Oldest {
    fn is(self, other: Self) -> bool {
        self.position == other.position && self.slot == other.slot
    }
}

impl Ring {
    fn slot(&self, index: u64) -> Option<&AtomicU64> {
        self.slots.get(usize::try_from(index).ok()?)
    }

    /// Returns the slot to use next, or `None` if the ring is sealed.
    fn oldest(&self) -> Option<Oldest> {
        loop {
            let head = self.head.load();
            if head.is_sealed() {
                return None;
            }
            let numbers = Numbers::from_fields(self.head.numbers(head));
            let mut position = RingPosition::of(head);
            // Torn numbers may point past the end.
            while let Some(slot) = self.slot(position.index) {
                let slot = slot.load(Ordering::Acquire);
                if slot & SEALED != 0 {
                    return None;
                }
                if slot & ODD_ROUND != parity_of(position.round) {
                    if self.head.is_still(head) {
                        return Some(Oldest { numbers, position, slot });
                    }
                    break;
                }
                position = position.next(numbers.slots);
                if position.is_step() {
                    // Whether this thread or another one moves it, the head is further on now.
                    let _ = self.head.swap(head, position.value());
                    break;
                }
            }
        }
    }

    /// Takes the oldest slot if it is unchanged. Returns `true` if it was.
    fn take(&self, oldest: Oldest, taken: u64) -> bool {
        let Some(slot) = self.slot(oldest.position.index) else { return false };
        let swapped =
            slot.compare_exchange(oldest.slot, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if swapped {
            let next = oldest.position.next(oldest.numbers.slots);
            if next.is_step() {
                self.help(next);
            }
        }
        swapped
    }

    /// Moves the head to `position` if the head is shortly before it.
    fn help(&self, position: RingPosition) {
        let head = self.head.load();
        let from = RingPosition::of(head);
        let is_near = position.value().wrapping_sub(from.value()) <= STEP
            || (from.round.wrapping_add(1) == position.round && position.index == 0);
        if !head.is_sealed() && from != position && is_near {
            let _ = self.head.swap(head, position.value());
        }
    }

    /// Returns the number of free slots behind the oldest, which is free: slots become free in the
    /// order in which they were taken.
    fn free_behind(&self, oldest: Oldest, now: u64) -> u64 {
        let is_free =
            |ahead: u64| self.release_ahead(oldest, ahead).is_some_and(|release| release <= now);
        let (mut free, mut held) = (0, oldest.numbers.slots);
        while held.saturating_sub(free) > 1 {
            let middle = free.midpoint(held);
            if is_free(middle) { free = middle } else { held = middle }
        }
        free
    }

    /// Evaluates `at` on the slots behind the oldest, none of which can change before that one
    /// does.
    fn read_stable(&self, at: impl Fn(Oldest) -> Option<u64>) -> Option<u64> {
        loop {
            let oldest = self.oldest()?;
            let answer = at(oldest);
            if self.oldest()?.is(oldest) {
                return answer;
            }
        }
    }

    /// Returns the expiry instant of the slot `ahead` positions behind the oldest.
    fn release_ahead(&self, oldest: Oldest, ahead: u64) -> Option<u64> {
        let index = oldest.position.index.checked_add(ahead)?;
        let index = index.checked_sub(oldest.numbers.slots).unwrap_or(index);
        let slot = self.slot(index)?.load(Ordering::Acquire);
        (slot & SEALED == 0).then_some(slot >> RELEASE_SHIFT)
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slots, is_open) = (self.slots.len(), !self.head.load().is_sealed());
        f.debug_struct("Ring")
            .field("slots", &slots)
            .field("is_open", &is_open)
            .finish_non_exhaustive()
    }
}

/// What any thread may do: see [`Fast`](super::Fast).
impl Ring {
    #[inline]
    pub(super) fn try_acquire(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        loop {
            let Some(oldest) = self.oldest().filter(|_| permits == 1) else {
                return LockFreeVerdict::Sealed;
            };
            let now_ns = read_ns();
            let Oldest { numbers, position, slot } = oldest;
            let (Some(now), Some(taken)) =
                (numbers.at(now_ns), numbers.taken(now_ns, position.round))
            else {
                return LockFreeVerdict::Sealed;
            };
            let left_ns = (slot >> RELEASE_SHIFT).saturating_sub(now);
            if left_ns > 0 {
                return LockFreeVerdict::denied(left_ns);
            }
            if self.take(oldest, taken) {
                return LockFreeVerdict::Granted { start_ns: now_ns, scheduled_ns: now_ns };
            }
            // The next slot is usually free: no need to back off.
        }
    }

    pub(super) fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        self.read_stable(|oldest| {
            let now = oldest.numbers.at(now_ns)?;
            let release = match permits.checked_sub(1)? {
                0 => oldest.slot >> RELEASE_SHIFT,
                last if last < oldest.numbers.slots => self.release_ahead(oldest, last)?,
                _ => return None,
            };
            Some(release.saturating_sub(now))
        })
    }

    pub(super) fn remaining(&self, now_ns: u64) -> Option<u64> {
        self.read_stable(|oldest| {
            let now = oldest.numbers.at(now_ns)?;
            if oldest.slot >> RELEASE_SHIFT > now {
                return Some(0);
            }
            Some(self.free_behind(oldest, now).saturating_add(1))
        })
    }
}

/// What only the thread with the ledger's lock does: see [`Fast`](super::Fast).
impl Ring {
    pub(super) fn sealed(policy: &SlidingLog) -> Self {
        let slots = Some(policy.permits()).filter(|&permits| permits <= MAX_SLOTS);
        let slots = slots.map_or(0, u64::next_power_of_two);
        let slots: Vec<AtomicU64> = (0..slots).map(|_| AtomicU64::new(SEALED)).collect();
        Self { head: Word::sealed(), slots: slots.into(), highest: AtomicU64::new(0) }
    }

    /// Takes the log out, with the newest grant's reading.
    ///
    /// Permits that had left by the newest grant are not in the log. Once that grant comes back, a
    /// caller whose clock is behind would find their slots free.
    pub(super) fn seal(&self, policy: &SlidingLog) -> Option<(State, u64)> {
        let numbers = Numbers::from_fields(self.head.numbers(self.head.seal()?));
        let used = usize::try_from(numbers.slots).unwrap_or(usize::MAX);
        let mut instants_ns = Vec::with_capacity(self.slots.len());
        let mut highest = self.highest.load(Ordering::Relaxed);
        for slot in self.slots.iter().take(used) {
            // From here on no thread can take this slot.
            let release = slot.fetch_or(SEALED, Ordering::AcqRel) >> RELEASE_SHIFT;
            highest = highest.max(release);
            // A slot that was free when the ring was opened holds no permit.
            let ahead_ns = release.saturating_sub(numbers.base);
            if ahead_ns > 0 {
                let release_ns = numbers.origin_ns.saturating_add(ahead_ns);
                instants_ns.push(release_ns.saturating_sub(numbers.held_ns));
            }
        }
        self.highest.store(highest, Ordering::Relaxed);
        // Threads with clocks slightly apart may have taken slots out of order.
        instants_ns.sort_unstable();
        let log = policy.log_of(&instants_ns);
        // On a grid a grant was made less than a step before the instant at which it counts.
        let step_ns = policy.resolution_ns().saturating_sub(1);
        let newest_ns = policy.newest_ns(&log).saturating_sub(step_ns);
        Some((log, newest_ns))
    }

    pub(super) fn open(&self, policy: &SlidingLog, state: &State, now_ns: u64) -> bool {
        let held_ns = policy.held_for_ns();
        let resolution_ns = policy.resolution_ns();
        // Neither past the scale nor past the end of the clock.
        let reach_ns = VALUES_PER_CONFIG.min(u64::MAX.saturating_sub(now_ns));
        let Some(horizon_ns) = reach_ns.checked_sub(held_ns.saturating_add(resolution_ns)) else {
            return false;
        };
        let slots = policy.permits();
        if usize::try_from(slots).map_or(true, |slots| slots > self.slots.len()) {
            return false;
        }
        // Permits of a coarser grid may count as granted later than the next one. A ring has no
        // order except that of grants.
        if policy.newest_ns(state) > policy.counted_ns(now_ns) {
            return false;
        }
        // An excess left by a larger previous limit must not be dropped.
        let Some(free) = slots.checked_sub(policy.held(state, now_ns)) else { return false };
        let held = policy.releases_after(state, now_ns);
        let base = free_base(self.highest.load(Ordering::Relaxed), VALUES_PER_CONFIG << 1, SPAN);
        let numbers =
            Numbers { origin_ns: now_ns, horizon_ns, held_ns, resolution_ns, slots, base };
        let round = RingPosition::of(self.head.load()).round.wrapping_add(2);
        let free = (0..free).map(|_| base);
        let held = held.map(|release_ns| base.saturating_add(release_ns.saturating_sub(now_ns)));
        for (slot, release) in self.slots.iter().zip(free.chain(held)) {
            // As if taken in the previous round. Release: a thread that sees the slot open sees
            // the head sealed, and uses no previous numbers.
            let word = (release << RELEASE_SHIFT) | parity_of(round.wrapping_sub(1));
            slot.store(word, Ordering::Release);
        }
        self.head.open(numbers.to_fields(), RingPosition { round, index: 0 }.value());
        true
    }

    pub(super) fn is_outgrown_by(&self, policy: &SlidingLog) -> bool {
        let slots = u64::try_from(self.slots.len()).unwrap_or(u64::MAX);
        (slots.saturating_add(1)..=MAX_SLOTS).contains(&policy.permits())
    }

    pub(super) fn price(&self) -> u64 {
        u64::try_from(self.slots.len()).unwrap_or(u64::MAX) >> 2
    }
}
