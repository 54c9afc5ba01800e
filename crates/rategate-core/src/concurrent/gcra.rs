//! The continuous token bucket in one atomic word: the lock-free form of [`gcra`](crate::gcra).
//!
//! # Layout
//!
//! The word's value is the TAT, counted in *parts*. At `N` permits per `P` ns (reduced) a
//! nanosecond is `N` parts and a permit is `P` parts. Both are whole, so nothing is ever rounded.
//!
//! ```text
//!   value = base + (TAT - origin) * N          now = base + (now_ns - origin) * N
//! ```
//!
//! `base` and `origin` belong to the configuration. It also contains `N`, `P`, the burst in
//! parts, and the horizon: how far from the origin the 2^60 values of a configuration reach. A
//! try with a reading beyond the horizon is decided by the ledger, which then opens the lock-free
//! form again with a new origin.
//!
//! # Who writes what, and why it suffices
//!
//! Threads swap the word from the TAT that they have judged to the TAT behind their grant. That
//! swap linearises the grant; a denial is linearised by its last load of the word. A thread that
//! stops anywhere delays no other thread.
//!
//! The ceiling needs no order of the clocks. In the order of swaps, the TAT is at least one
//! permit's time behind each grant's reading and grows by one with each grant, whatever the
//! readings of the others were. With the first and the last grant inside a window, this is the
//! proof of docs/theory.md, section 1.1.
//!
//! # Batches
//!
//! A thread may [take a batch](super::Fast::take_batch) of several permits in one step and use them
//! later, one by one. Unused permits can be credited as long as the bucket would not have been full
//! without them at any time since. Until then, taking them has moved the TAT by their time and
//! nothing else. That is so while the TAT that they left behind, less their time, lies ahead of the
//! clock. Older permits have been earned again by other callers, and are not granted a second time.
//!
//! # Contract
//!
//! That of [`gcra`](crate::gcra), to the nanosecond. The ledger decides for `never` and
//! `unlimited`, for bursts over 2^59 parts, and for rates whose parts are so small that 60 bits
//! of them do not last a second (a fraction with more than 10^9 in its numerator).

use core::num::NonZeroU64;

use super::sync::{AtomicU64, Ordering, back_off};
use super::verdict::Mark;
use super::word::{SPAN, Word, free_base};
use super::{BatchVerdict, LockFreeVerdict, PermitBatch};
use crate::debt::{Charged, Debt};
use crate::exact::{Exact, Pace};
use crate::gcra::{Gcra, State};
use crate::policy::Policy;
use crate::rate::Kind;
use crate::refund::RefundEpoch;

/// The number of values that one configuration may use.
const VALUES_PER_CONFIG: u64 = 1 << 60;
const MIN_HORIZON_NS: u64 = 1_000_000_000;

const CHANGE_ATTEMPTS: u32 = 64;

/// A token bucket that threads share without a lock.
#[derive(Debug)]
pub struct Bucket {
    word: Word<6>,
    /// The refund epoch. Written under the ledger's lock only.
    epoch: AtomicU64,
}

/// One configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    origin_ns: u64,
    horizon_ns: u64,
    parts_per_ns: u64,
    parts_per_permit: u64,
    burst: u64,
    base: u64,
}

impl Numbers {
    #[inline]
    const fn from_fields(fields: [u64; 6]) -> Self {
        let [origin_ns, horizon_ns, parts_per_ns, parts_per_permit, burst, base] = fields;
        Self { origin_ns, horizon_ns, parts_per_ns, parts_per_permit, burst, base }
    }

    const fn to_fields(self) -> [u64; 6] {
        let Self { origin_ns, horizon_ns, parts_per_ns, parts_per_permit, burst, base } = self;
        [origin_ns, horizon_ns, parts_per_ns, parts_per_permit, burst, base]
    }

    /// Returns the clock on the scale of values, unless it is off that scale.
    ///
    /// The numbers may be torn here and in what follows. The result is discarded then, so it may
    /// be anything but a panic.
    #[inline]
    fn at(self, now_ns: u64) -> Option<u64> {
        let since_ns = now_ns.checked_sub(self.origin_ns)?;
        let parts = since_ns.wrapping_mul(self.parts_per_ns);
        (since_ns <= self.horizon_ns).then_some(self.base.wrapping_add(parts))
    }

    /// Returns the value behind a grant and the parts left then, or the missing parts as an
    /// error.
    #[inline]
    fn decide(
        self,
        value: u64,
        now_ns: u64,
        permits: u64,
    ) -> Option<Result<(u64, u64), NonZeroU64>> {
        let now = self.at(now_ns)?;
        let cost = permits.checked_mul(self.parts_per_permit)?;
        if cost > self.burst {
            return None;
        }
        // Debt and cost are less than 2^62 each, unless torn.
        let tat = value.max(now).wrapping_add(cost);
        let limit = now.wrapping_add(self.burst);
        Some(match NonZeroU64::new(tat.saturating_sub(limit)) {
            None => Ok((tat, limit.wrapping_sub(tat))),
            Some(missing) => Err(missing),
        })
    }

    /// Returns the value behind a charge, and its outcome, unless the value would be off the
    /// scale or a bound on debts has to be applied.
    #[inline]
    fn charge(
        self,
        value: u64,
        now_ns: u64,
        permits: u64,
        max_debt_ns: u64,
    ) -> Option<(u64, Charged)> {
        let now = self.at(now_ns)?;
        let cost = permits.checked_mul(self.parts_per_permit)?;
        let tat = value.max(now).checked_add(cost)?;
        // The next configuration begins behind the values of this one.
        (tat.checked_sub(self.base)? < VALUES_PER_CONFIG).then_some(())?;
        let debt = tat.saturating_sub(now.wrapping_add(self.burst));
        (debt <= max_debt_ns.saturating_mul(self.parts_per_ns)).then_some(())?;
        let debt = if debt == 0 { 0 } else { debt.div_ceil(self.parts_per_permit.max(1)) };
        Some((tat, Charged::of(permits, permits, debt)))
    }

    /// Returns the time of `parts`, rounded up.
    ///
    /// It never fails, so the compiler can drop the division where only the denial is used.
    #[inline]
    fn ns_of(self, parts: NonZeroU64) -> NonZeroU64 {
        if self.parts_per_ns <= 1 {
            parts
        } else {
            let ns = parts.get().div_ceil(self.parts_per_ns);
            NonZeroU64::new(ns).unwrap_or(NonZeroU64::MIN)
        }
    }
}

impl Bucket {
    /// Loads the refund epoch, before a batch: what comes back meanwhile then counts against it.
    #[inline]
    fn epoch(&self) -> RefundEpoch {
        RefundEpoch::from_bits(self.epoch.load(Ordering::Acquire))
    }

    /// Decides a try, or returns `None` if another thread interferes.
    #[inline]
    fn try_once(&self, read_ns: impl Fn() -> u64 + Copy, permits: u64) -> Option<LockFreeVerdict> {
        let seen = self.word.load();
        let now_ns = read_ns();
        let numbers = Numbers::from_fields(self.word.numbers(seen));
        if seen.is_sealed() || permits == 0 {
            return Some(LockFreeVerdict::Sealed);
        }
        match numbers.decide(seen.value(), now_ns, permits) {
            None => Some(LockFreeVerdict::Sealed),
            Some(Ok((value, _))) => self
                .word
                .swap(seen, value)
                .then_some(LockFreeVerdict::Granted { start_ns: now_ns, scheduled_ns: now_ns }),
            Some(Err(missing)) => {
                if !self.word.is_still(seen) {
                    return None;
                }
                Some(LockFreeVerdict::Denied { retry_after_ns: Some(numbers.ns_of(missing)) })
            }
        }
    }
}

/// What any thread may do: see [`Fast`](super::Fast).
impl Bucket {
    pub(super) fn try_acquire(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        loop {
            if let Some(verdict) = self.try_once(read_ns, permits) {
                return verdict;
            }
            back_off();
        }
    }

    #[inline]
    pub(super) fn try_briefly(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
    ) -> LockFreeVerdict {
        self.try_once(read_ns, permits).unwrap_or(LockFreeVerdict::Sealed)
    }

    pub(super) fn take_batch(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        min: u64,
        max: u64,
    ) -> BatchVerdict {
        loop {
            let epoch = self.epoch();
            let seen = self.word.load();
            let start_ns = read_ns();
            let numbers = Numbers::from_fields(self.word.numbers(seen));
            if seen.is_sealed() || min == 0 {
                return BatchVerdict::Unknown;
            }
            match numbers.decide(seen.value(), start_ns, min) {
                None => return BatchVerdict::Unknown,
                Some(Ok((value, leftover))) => {
                    let parts_per_permit = numbers.parts_per_permit;
                    let more = leftover.checked_div(parts_per_permit).unwrap_or(0);
                    let more = more.min(max.saturating_sub(min));
                    let value = value.wrapping_add(more.wrapping_mul(parts_per_permit));
                    if self.word.swap(seen, value) {
                        let mark = Mark { value, base: numbers.base, epoch };
                        let permits = min.wrapping_add(more);
                        return BatchVerdict::Taken(PermitBatch { permits, start_ns, mark });
                    }
                }
                Some(Err(missing)) => {
                    if self.word.is_still(seen) {
                        return BatchVerdict::Denied { retry_after_ns: numbers.ns_of(missing) };
                    }
                }
            }
            back_off();
        }
    }

    #[inline]
    pub(super) fn charge(
        &self,
        read_ns: impl Fn() -> u64 + Copy,
        permits: u64,
        debt: Debt,
    ) -> Option<Charged> {
        loop {
            let seen = self.word.load();
            let now_ns = read_ns();
            let numbers = Numbers::from_fields(self.word.numbers(seen));
            if seen.is_sealed() {
                return None;
            }
            let (tat, charged) = numbers.charge(seen.value(), now_ns, permits, debt.max_ns())?;
            if self.word.swap(seen, tat) {
                return Some(charged);
            }
            back_off();
        }
    }

    pub(super) fn peek(&self, now_ns: u64, permits: u64) -> Option<u64> {
        loop {
            let seen = self.word.load();
            let numbers = Numbers::from_fields(self.word.numbers(seen));
            let decision = numbers.decide(seen.value(), now_ns, permits);
            if seen.is_sealed() || permits == 0 {
                return None;
            }
            if self.word.is_still(seen) {
                return decision
                    .map(|made| made.map_or_else(|missing| numbers.ns_of(missing).get(), |_| 0));
            }
        }
    }

    pub(super) fn remaining(&self, now_ns: u64) -> Option<u64> {
        loop {
            let seen = self.word.load();
            let numbers = Numbers::from_fields(self.word.numbers(seen));
            let now = numbers.at(now_ns);
            if seen.is_sealed() {
                return None;
            }
            if self.word.is_still(seen) {
                let free = numbers.burst.saturating_sub(seen.value().saturating_sub(now?));
                return free.checked_div(numbers.parts_per_permit);
            }
        }
    }
}

/// What only the thread with the ledger's lock does: see [`Fast`](super::Fast).
impl Bucket {
    pub(super) fn sealed() -> Self {
        let epoch = AtomicU64::new(RefundEpoch::UNKNOWN.bits());
        Self { word: Word::sealed(), epoch }
    }

    pub(super) fn seal(&self, policy: &Gcra) -> Option<State> {
        let last = self.word.seal()?;
        let Kind::Paced(pace) = policy.rate().kind() else { return None };
        Some(state_at(Numbers::from_fields(self.word.numbers(last)), last.value(), pace))
    }

    pub(super) fn open(&self, policy: &Gcra, state: &State, now_ns: u64) -> bool {
        let Kind::Paced(pace) = policy.rate().kind() else { return false };
        let last = self.word.load();
        let before = Numbers::from_fields(self.word.numbers(last));
        if before.are_current(policy, pace, now_ns) {
            return before.value_of(state, pace).is_some_and(|value| {
                self.word.reopen(value);
                true
            });
        }
        let Some((numbers, value)) = before.followed_by(last.value(), policy, state, now_ns) else {
            return false;
        };
        self.word.open(numbers.to_fields(), value);
        true
    }

    pub(super) fn change(
        &self,
        old: &Gcra,
        new: &Gcra,
        read_ns: impl Fn() -> u64 + Copy,
    ) -> Option<u64> {
        let Kind::Paced(pace) = old.rate().kind() else { return None };
        // A concurrent grant forces another attempt; the number of attempts is bounded.
        for _ in 0..CHANGE_ATTEMPTS {
            let seen = self.word.load();
            if seen.is_sealed() {
                return None;
            }
            let now_ns = read_ns();
            let before = Numbers::from_fields(self.word.numbers(seen));
            let mut state = state_at(before, seen.value(), pace);
            new.rebase(&mut state, old, now_ns);
            let (numbers, value) = before.followed_by(seen.value(), new, &state, now_ns)?;
            if self.word.replace(seen, numbers.to_fields(), value) {
                return Some(now_ns);
            }
        }
        None
    }

    pub(super) fn take_back(
        &self,
        policy: &Gcra,
        batch: PermitBatch,
        left: u64,
        now_ns: u64,
        epoch: RefundEpoch,
    ) -> u64 {
        let Kind::Paced(pace) = policy.rate().kind() else { return 0 };
        let seen = self.word.load();
        let numbers = Numbers::from_fields(self.word.numbers(seen));
        // After a change under the lock, a form that is still sealed has the old numbers.
        let are_in_force = numbers.are_of(policy, pace) && batch.mark.base == numbers.base;
        let Some(now) = numbers.at(now_ns).filter(|_| are_in_force) else { return 0 };
        let Some(returned) = epoch.returned_since(batch.mark.epoch) else { return 0 };
        // What came back has moved the TAT back by this much since the batch.
        let returned = returned.saturating_mul(numbers.parts_per_permit);
        let ahead = batch.mark.value.saturating_sub(now).saturating_sub(returned);
        ahead.checked_div(numbers.parts_per_permit).unwrap_or(0).min(left)
    }

    pub(super) fn note_epoch(&self, epoch: RefundEpoch) {
        self.epoch.store(epoch.bits(), Ordering::Release);
    }
}

impl Numbers {
    fn are_of(self, policy: &Gcra, pace: Pace) -> bool {
        self.parts_per_ns == pace.permits().get()
            && in_parts(policy, pace) == Some((self.burst, self.parts_per_permit))
    }

    /// Returns `true` if these are the policy's numbers and last for at least half a horizon.
    fn are_current(self, policy: &Gcra, pace: Pace, now_ns: u64) -> bool {
        let since_ns = now_ns.checked_sub(self.origin_ns);
        self.are_of(policy, pace)
            && since_ns.is_some_and(|since_ns| since_ns <= self.horizon_ns >> 1)
    }

    /// Returns a bucket's TAT on this scale.
    fn value_of(self, state: &State, pace: Pace) -> Option<u64> {
        let ahead = pace.sub(state.tat(), Exact::at(self.origin_ns.into()));
        let ahead =
            u64::try_from(pace.to_parts(ahead)).ok().filter(|&ahead| ahead <= VALUES_PER_CONFIG)?;
        self.base.checked_add(ahead)
    }

    /// Returns the numbers of a following policy and the value of its bucket.
    ///
    /// `last` is the last value of these numbers.
    fn followed_by(
        self,
        last: u64,
        policy: &Gcra,
        state: &State,
        now_ns: u64,
    ) -> Option<(Self, u64)> {
        let Kind::Paced(pace) = policy.rate().kind() else { return None };
        let (burst, parts_per_permit) = in_parts(policy, pace)?;
        // No TAT lies more than a burst ahead of both the clock and the last value.
        let latest = self.at(now_ns).unwrap_or_else(|| self.base.saturating_add(VALUES_PER_CONFIG));
        let used = latest.max(last).saturating_add(self.burst);
        let base = free_base(used, VALUES_PER_CONFIG << 1, SPAN);
        let parts_per_ns = pace.permits().get();
        let debt = pace.to_parts(pace.sub(state.tat(), Exact::at(now_ns.into())));
        // A burst lowered below what is in use stays with the ledger until the excess is earned
        // back.
        let debt = u64::try_from(debt).ok().filter(|&debt| debt <= burst)?;
        let needed = debt.checked_add(burst)?;
        let horizon_ns = VALUES_PER_CONFIG.checked_sub(needed)?.checked_div(parts_per_ns)?;
        let numbers =
            Self { origin_ns: now_ns, horizon_ns, parts_per_ns, parts_per_permit, burst, base };
        let value = numbers.value_of(state, pace)?;
        (horizon_ns >= MIN_HORIZON_NS).then_some((numbers, value))
    }
}

/// Returns the bucket that a value stands for.
fn state_at(numbers: Numbers, value: u64, pace: Pace) -> State {
    let ahead = pace.from_parts(value.saturating_sub(numbers.base).into());
    State::with_tat(pace.add(Exact::at(numbers.origin_ns.into()), ahead), pace)
}

/// Returns the burst and one permit in parts, if the burst fits in half the values.
fn in_parts(policy: &Gcra, pace: Pace) -> Option<(u64, u64)> {
    let parts_per_permit = pace.period_ns().get();
    let burst = policy.burst_size().get().checked_mul(parts_per_permit)?;
    (burst <= VALUES_PER_CONFIG >> 1).then_some((burst, parts_per_permit))
}
