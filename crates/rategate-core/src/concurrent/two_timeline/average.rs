//! Average mode without a lock: the schedule as a counter.
//!
//! # Layout
//!
//! In average mode the two timelines are one, and the state is the number of operations that have
//! started. The word's value is that number above a `base`. Operation `k` of a configuration is
//! due `first + k * P` parts after its origin, where a nanosecond is `N` parts and a permit is
//! `P` (as in [`gcra`](crate::concurrent::gcra)).
//!
//! ```text
//!   value = base + operations started
//!   due   = a word whose value is the first not due: one clock reading, cached for all threads
//! ```
//!
//! # The cached clock
//!
//! `due` records the operations that the last reading of the clock has made due, as long as that
//! is far ahead of the operations started. A caller then needs no reading of its own: an
//! operation that was due then is due now. The caller takes its permit by one addition, which
//! never fails, whatever other threads do. Each [`REFRESH`]th operation reads the clock and moves
//! `due` along, so a reported start is never older than that many operations. With less than
//! [`MARGIN`] to go, `due` is empty. Then each caller reads the clock and swaps, and denials are
//! exact.
//!
//! This is sound in average mode alone. Where grants are spaced, each must be stamped with a
//! fresh reading, because a stale one would let the next grant start too soon
//! (docs/theory.md, section 3.4).
//!
//! # Who writes what, and why it suffices
//!
//! * A grant is an addition to the word, or a swap of it, and linearises there.
//! * The addition does not check first. What it returns shows if it was valid: not sealed, and
//!   below `due` by less than [`GAP`]. Configurations lie `GAP` apart, so the numbers that `due`
//!   names were in force, and have not been written since they were read.
//! * An invalid addition is undone. It is one that other additions have carried past `due`, which
//!   takes over [`MARGIN`] threads between a reading of `due` and the addition, or one to other
//!   numbers. Until then other callers find one permit fewer. If the word is sealed before the
//!   addition is undone, that permit is lost.
//! * `due` is written `Release` after a reading that has led to a grant, so it is never ahead of
//!   the clock. A late writer may move it back, which only costs another reading.
//!
//! # Contract
//!
//! That of the policy, to the nanosecond, except for the start that a grant by the cached clock
//! reports, which is the reading that made it due.

use super::super::LockFreeVerdict;
use super::super::sync::{AtomicU64, Ordering, Padded, back_off};
use super::super::word::{SPAN, Seen, Word, free_base};
use super::MIN_HORIZON_NS;
use crate::exact::{Exact, Pace};
use crate::policy::Policy;
use crate::two_timeline::{Mode, Plain, TwoTimeline};

/// The maximum number of operations between two readings of the clock.
pub const REFRESH: u64 = 64;

/// Half the distance that `due` must be ahead of the operations for them to be taken by addition.
///
/// It is larger than the number of threads that add at one moment.
pub const MARGIN: u64 = 1_024;

/// The distance between the values of two configurations.
const GAP: u64 = 1 << 32;
const CHANGE_ATTEMPTS: u32 = 64;
/// The operations that one configuration may start, and the parts that it may last.
const VALUES_PER_CONFIG: u64 = 1 << 60;

/// An average schedule with unbounded catching up.
#[derive(Debug)]
pub(super) struct Average {
    word: Word<6>,
    cached: Padded<Cached>,
}

#[derive(Debug)]
struct Cached {
    /// Values below this are due.
    due: AtomicU64,
    /// The reading that made them due.
    now_ns: AtomicU64,
}

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    origin_ns: u64,
    horizon_ns: u64,
    parts_per_ns: u64,
    parts_per_permit: u64,
    first: u64,
    base: u64,
}

impl Numbers {
    const fn from_fields(fields: [u64; 6]) -> Self {
        let [origin_ns, horizon_ns, parts_per_ns, parts_per_permit, first, base] = fields;
        Self { origin_ns, horizon_ns, parts_per_ns, parts_per_permit, first, base }
    }

    const fn to_fields(self) -> [u64; 6] {
        let Self { origin_ns, horizon_ns, parts_per_ns, parts_per_permit, first, base } = self;
        [origin_ns, horizon_ns, parts_per_ns, parts_per_permit, first, base]
    }

    /// Returns the clock in parts, unless it is off the scale.
    fn at(self, now_ns: u64) -> Option<u64> {
        let since_ns = now_ns.checked_sub(self.origin_ns)?;
        (since_ns <= self.horizon_ns).then_some(since_ns.wrapping_mul(self.parts_per_ns))
    }

    /// Returns the instant at which the operation at `value` is due, in parts.
    fn due_at(self, value: u64) -> Option<u64> {
        let before = value.checked_sub(self.base)?.checked_mul(self.parts_per_permit)?;
        self.first.checked_add(before)
    }

    /// Returns the first value that is not due at `now`.
    fn due_by(self, now: u64) -> u64 {
        match now.checked_sub(self.first) {
            None => self.base,
            Some(since_first) => {
                let due = since_first.checked_div(self.parts_per_permit).unwrap_or(0);
                self.base.wrapping_add(due).wrapping_add(1)
            }
        }
    }

    /// Returns the state at a value.
    fn plain(self, value: u64, pace: Pace) -> Plain {
        let since = pace.time_of(value.saturating_sub(self.base));
        let first = pace.from_parts(self.first.into());
        let next = pace.add(pace.add(Exact::at(self.origin_ns.into()), first), since);
        Plain { ideal: next, dispatch: next, gate_ns: 0, unpaid: 0 }
    }

    /// Returns a length in nanoseconds, rounded up. Dividing by one would cost as much as a clock
    /// reading.
    const fn ns_of(self, parts: u64) -> u64 {
        if self.parts_per_ns <= 1 { parts } else { parts.div_ceil(self.parts_per_ns) }
    }

    /// Returns the nanosecond of the clock that contains this part.
    ///
    /// A division would cost as much as the whole addition, so only rates whose fraction needs it
    /// pay for it.
    fn scheduled_ns(self, parts: u64) -> u64 {
        let since_ns = if self.parts_per_ns.is_power_of_two() {
            parts >> self.parts_per_ns.trailing_zeros()
        } else {
            parts.checked_div(self.parts_per_ns).unwrap_or(parts)
        };
        self.origin_ns.wrapping_add(since_ns)
    }
}

impl Average {
    #[inline]
    fn numbers(&self, seen: Seen) -> Numbers {
        Numbers::from_fields(self.word.numbers(seen))
    }

    /// Takes `permits` by a swap, at a fresh reading of the clock.
    #[inline]
    pub(super) fn try_fresh(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        loop {
            let seen = self.word.load();
            if seen.is_sealed() {
                return LockFreeVerdict::Sealed;
            }
            let now_ns = read_ns();
            let numbers = self.numbers(seen);
            match Self::evaluate(numbers, seen, now_ns, permits) {
                None => return LockFreeVerdict::Sealed,
                Some((parts, Ok(()))) => {
                    let value = seen.value().wrapping_add(permits);
                    if self.word.swap(seen, value) {
                        self.refresh(numbers, seen, value, now_ns);
                        let scheduled_ns = numbers.scheduled_ns(parts);
                        return LockFreeVerdict::Granted { start_ns: now_ns, scheduled_ns };
                    }
                }
                Some((_, Err(early))) => {
                    if self.word.is_still(seen) {
                        return LockFreeVerdict::denied(numbers.ns_of(early));
                    }
                }
            }
            back_off();
        }
    }

    /// Takes a permit that the cached clock has shown to be due, by one addition.
    #[inline]
    pub(super) fn try_cached(&self, read_ns: impl Fn() -> u64 + Copy) -> LockFreeVerdict {
        // Acquire: the numbers that it names, and a reading of the clock that is not older.
        let due = Seen::from_bits(self.cached.0.due.load(Ordering::Acquire));
        if due.is_nothing() {
            return LockFreeVerdict::Sealed;
        }
        let numbers = self.numbers(due);
        let mut cached_ns = self.cached.0.now_ns.load(Ordering::Relaxed);
        let before = self.word.add(1);
        if before.is_sealed() {
            // A late writer stored it; clear it so that no other thread comes here.
            self.cached.0.due.store(0, Ordering::Relaxed);
            return LockFreeVerdict::Sealed;
        }
        let ahead = due.value().wrapping_sub(before.value()).wrapping_sub(1);
        if ahead >= GAP {
            self.word.subtract(1);
            self.cached.0.due.store(0, Ordering::Relaxed);
            return LockFreeVerdict::Sealed;
        }
        if before.value() & (REFRESH - 1) == 0 {
            cached_ns = self.refresh_clock(read_ns, numbers, before);
        }
        // An operation that is due lies on the scale.
        let operations = before.value().wrapping_sub(numbers.base);
        let parts = numbers.first.wrapping_add(operations.wrapping_mul(numbers.parts_per_permit));
        let scheduled_ns = numbers.scheduled_ns(parts);
        let start_ns = cached_ns.max(scheduled_ns);
        LockFreeVerdict::Granted { start_ns, scheduled_ns }
    }

    /// Reads the clock for all threads, after an addition to `before`.
    ///
    /// Returns the reading. It is a separate call because only one addition in [`REFRESH`] needs
    /// it.
    #[cold]
    fn refresh_clock(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        numbers: Numbers,
        before: Seen,
    ) -> u64 {
        let now_ns = read_ns();
        self.refresh(numbers, before, before.value(), now_ns);
        now_ns
    }

    /// Publishes the operations due at `now_ns`, if they are far ahead of `value`.
    ///
    /// `value` has been taken by `seen`'s configuration.
    fn refresh(&self, numbers: Numbers, seen: Seen, value: u64, now_ns: u64) {
        let Some(now) = numbers.at(now_ns) else { return };
        // Not so far that it could belong to another configuration.
        let due = numbers.due_by(now).min(value.saturating_add(GAP >> 1));
        if due.saturating_sub(value) > 2 * MARGIN {
            self.cached.0.now_ns.store(now_ns, Ordering::Relaxed);
            self.cached.0.due.store(seen.with_value(due).bits(), Ordering::Release);
        } else if self.cached.0.due.load(Ordering::Relaxed) != 0 {
            self.cached.0.due.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the instant at which the last of `permits` operations from `seen` on is due, in
    /// parts.
    ///
    /// Also returns, as an error, the parts by which the clock is before it.
    fn evaluate(
        numbers: Numbers,
        seen: Seen,
        now_ns: u64,
        permits: u64,
    ) -> Option<(u64, Result<(), u64>)> {
        let last = seen.value().checked_add(permits.checked_sub(1)?)?;
        let parts = numbers.due_at(last)?;
        let now = numbers.at(now_ns)?;
        let early = parts.saturating_sub(now);
        Some((parts, if early == 0 { Ok(()) } else { Err(early) }))
    }

    /// Returns the value at which the previous numbers continue with `next`, if they do.
    fn same_numbers(&self, next: Exact, pace: Pace, now_ns: u64) -> Option<u64> {
        let numbers = self.numbers(self.word.load());
        let is_same = numbers.parts_per_ns == pace.permits().get()
            && numbers.parts_per_permit == pace.period_ns().get();
        let lasts = now_ns.checked_sub(numbers.origin_ns)? <= numbers.horizon_ns >> 1;
        let origin = Exact::at(numbers.origin_ns.into());
        if !is_same || !lasts || next < origin {
            return None;
        }
        let parts = u64::try_from(pace.to_parts(pace.sub(next, origin))).ok()?;
        let since_first = parts.checked_sub(numbers.first)?;
        let on_grid = since_first.checked_rem(numbers.parts_per_permit)? == 0;
        let started = since_first.checked_div(numbers.parts_per_permit)?;
        (on_grid && started < VALUES_PER_CONFIG).then(|| numbers.base.checked_add(started))?
    }
}

impl Average {
    pub(super) fn sealed() -> Self {
        let cached = Cached { due: AtomicU64::new(0), now_ns: AtomicU64::new(0) };
        Self { word: Word::sealed(), cached: Padded(cached) }
    }

    pub(super) fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        loop {
            let seen = self.word.load();
            let numbers = self.numbers(seen);
            let evaluate = Self::evaluate(numbers, seen, now_ns, permits);
            if seen.is_sealed() {
                return None;
            }
            if self.word.is_still(seen) {
                let early = evaluate?.1.err().unwrap_or(0);
                return Some(numbers.ns_of(early));
            }
        }
    }

    pub(super) fn remaining(&self, now_ns: u64) -> Option<u64> {
        loop {
            let seen = self.word.load();
            let numbers = self.numbers(seen);
            let now = numbers.at(now_ns);
            if seen.is_sealed() {
                return None;
            }
            if self.word.is_still(seen) {
                return Some(numbers.due_by(now?).saturating_sub(seen.value()));
            }
        }
    }

    pub(super) fn seal(&self, pace: Pace) -> Option<(u64, Plain)> {
        let last = self.word.seal()?;
        // Spares later tries a useless addition. A thread that adds anyway sees the seal.
        self.cached.0.due.store(0, Ordering::Relaxed);
        let numbers = self.numbers(last);
        Some((numbers.origin_ns, numbers.plain(last.value(), pace)))
    }

    /// Switches to the numbers of `new`.
    ///
    /// Only for average mode, and only while no operation is due that the old numbers have still
    /// to schedule.
    pub(super) fn change(
        &self,
        old: &TwoTimeline,
        new: &TwoTimeline,
        read_ns: impl Fn() -> u64,
    ) -> Option<u64> {
        let (pace, new_pace) = old.constant_pace().zip(new.constant_pace())?;
        for _ in 0..CHANGE_ATTEMPTS {
            let seen = self.word.load();
            if seen.is_sealed() {
                return None;
            }
            let now_ns = read_ns();
            let numbers = self.numbers(seen);
            let mut state = old.state_of(numbers.origin_ns, numbers.plain(seen.value(), pace));
            new.rebase(&mut state, old, now_ns);
            let plain = new.plain(&state).filter(|&plain| fits(new, plain, now_ns));
            let (numbers, value) = numbers_for(seen.value(), plain?.ideal, new_pace, now_ns)?;
            if self.word.replace(seen, numbers.to_fields(), value) {
                self.cached.0.due.store(0, Ordering::Relaxed);
                return Some(now_ns);
            }
        }
        None
    }

    pub(super) fn open(&self, policy: &TwoTimeline, pace: Pace, plain: Plain, now_ns: u64) -> bool {
        if !fits(policy, plain, now_ns) {
            return false;
        }
        if let Some(value) = self.same_numbers(plain.ideal, pace, now_ns) {
            self.word.reopen(value);
            return true;
        }
        let fresh = numbers_for(self.word.load().value(), plain.ideal, pace, now_ns);
        if let Some((numbers, value)) = fresh {
            self.word.open(numbers.to_fields(), value);
        }
        fresh.is_some()
    }
}

/// Returns `true` if the state is that of plain average mode, which a counter can hold.
fn fits(policy: &TwoTimeline, plain: Plain, now_ns: u64) -> bool {
    let is_average = policy.mode() == Mode::Average && policy.catch_up_ns().is_none();
    is_average && plain.ideal == plain.dispatch && plain.gate_ns <= now_ns.into()
}

/// Returns the configuration that follows one whose last value is `last`, and its first value.
///
/// `next` is its first operation.
fn numbers_for(last: u64, next: Exact, pace: Pace, now_ns: u64) -> Option<(Numbers, u64)> {
    let next_ns = u64::try_from(next.ns).ok()?;
    let origin_ns = next_ns.min(now_ns);
    let parts_per_ns = pace.permits().get();
    let first = pace.to_parts(pace.sub(next, Exact::at(origin_ns.into())));
    let first = u64::try_from(first).ok().filter(|&first| first <= VALUES_PER_CONFIG)?;
    let horizon_ns = VALUES_PER_CONFIG.checked_div(parts_per_ns)?;
    let left_ns = horizon_ns.checked_sub(now_ns.checked_sub(origin_ns)?)?;
    let base = free_base(last.saturating_add(GAP), VALUES_PER_CONFIG, SPAN);
    let parts_per_permit = pace.period_ns().get();
    let numbers = Numbers { origin_ns, horizon_ns, parts_per_ns, parts_per_permit, first, base };
    (left_ns >= MIN_HORIZON_NS).then_some((numbers, base))
}
