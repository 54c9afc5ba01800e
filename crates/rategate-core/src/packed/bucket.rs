//! A token bucket packed into a part of a word.
//!
//! The value is the TAT in *parts* of a nanosecond, as in its [lock-free
//! form](crate::concurrent::gcra). At `N` permits per `P` ns (reduced) a nanosecond is `N` parts
//! and a permit is `P`, so nothing is ever rounded. Only the lowest [`VALUE_BITS`] of the TAT and
//! of the clock are kept:
//!
//! ```text
//!   value = TAT * N mod 2^57        now = now_ns * N mod 2^57
//!
//!   ahead = value - now, as a signed number:   -2^56 ... -1 | 0 ....... 2^55 ... 2^56
//!                                               full bucket | what has been used
//! ```
//!
//! A TAT is never further ahead than 2^55 parts, which is the largest burst. It is further ahead
//! than the burst only after the burst was lowered, and in debt.

use core::num::NonZeroU64;

use super::{MIN_VALIDITY_NS, VALUE_BITS};
use crate::debt::{Charged, Debt};
use crate::exact::Exact;
use crate::gcra::{Gcra, State};
use crate::policy::Policy;
use crate::rate::Kind;

/// A mask of all bits of a value.
const MASK: u64 = (1 << VALUE_BITS) - 1;
/// The maximum distance of a TAT ahead of the clock.
const MAX_AHEAD: u64 = 1 << (VALUE_BITS - 2);
/// The distance by which a clock may advance or go back between two checks of a value.
const VALIDITY: u64 = 1 << (VALUE_BITS - 3);
/// The numbers of a bucket whose state is packed into a part of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    parts_per_ns: u64,
    parts_per_permit: u64,
    burst: u64,
}

impl Bucket {
    /// Returns a policy's numbers, if its bucket fits.
    pub(crate) fn of(policy: &Gcra) -> Option<Self> {
        let Kind::Paced(pace) = policy.rate().kind() else { return None };
        let (parts_per_ns, parts_per_permit) = (pace.permits().get(), pace.period_ns().get());
        let burst = policy.burst_size().get().checked_mul(parts_per_permit)?;
        let numbers = Self { parts_per_ns, parts_per_permit, burst };
        let fits = burst <= MAX_AHEAD && numbers.validity_ns() >= MIN_VALIDITY_NS;
        fits.then_some(numbers)
    }

    pub(super) const fn to_fields(self) -> [u64; 4] {
        [self.parts_per_ns, self.parts_per_permit, self.burst, 0]
    }

    #[inline]
    pub(super) const fn from_fields([parts_per_ns, parts_per_permit, burst, _]: [u64; 4]) -> Self {
        Self { parts_per_ns, parts_per_permit, burst }
    }

    /// Returns the value of a full bucket.
    #[inline]
    pub(super) const fn full_at(self, now_ns: u64) -> u64 {
        now_ns.wrapping_mul(self.parts_per_ns) & MASK
    }

    /// Returns the time within which each value has to be checked, in nanoseconds.
    ///
    /// The clock may go back by at most this time between two of its readings.
    pub(super) const fn validity_ns(self) -> u64 {
        match VALIDITY.checked_div(self.parts_per_ns) {
            Some(ns) => ns,
            None => 0,
        }
    }

    /// Returns the parts by which a TAT is ahead of the clock, or zero.
    #[inline]
    const fn ahead(self, value: u64, now_ns: u64) -> u64 {
        let ahead = value.wrapping_sub(self.full_at(now_ns)) & MASK;
        if ahead <= MASK >> 1 { ahead } else { 0 }
    }

    /// Returns `true` if a bucket has been full for some time, not only since this instant.
    ///
    /// Then no value written by a later owner of its slot will equal this one.
    #[inline]
    pub(super) const fn is_full(self, value: u64, now_ns: u64) -> bool {
        value.wrapping_sub(self.full_at(now_ns)) & MASK > MASK >> 1
    }

    /// Returns the instant at which the bucket will be full, if it is not now.
    ///
    /// [`is_full`](Self::is_full) returns `true` at most one nanosecond later.
    pub(super) const fn full_after(self, value: u64, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.fresh_in_ns(value, now_ns))
    }

    /// Returns the time until the bucket is full.
    #[inline]
    pub(super) const fn fresh_in_ns(self, value: u64, now_ns: u64) -> u64 {
        match NonZeroU64::new(self.ahead(value, now_ns)) {
            Some(ahead) => self.ns_of(ahead).get(),
            None => 0,
        }
    }

    /// Returns the value behind a grant of `permits`, or the wait until the same try passes.
    ///
    /// Returns `None` for zero permits, and for more than could ever pass.
    #[inline]
    pub(super) const fn decide(
        self,
        value: u64,
        now_ns: u64,
        permits: u64,
    ) -> Option<Result<u64, NonZeroU64>> {
        let Some(cost) = permits.checked_mul(self.parts_per_permit) else { return None };
        if cost > self.burst || permits == 0 {
            return None;
        }
        let used = self.ahead(value, now_ns).wrapping_add(cost);
        match NonZeroU64::new(used.saturating_sub(self.burst)) {
            None => Some(Ok(self.full_at(now_ns).wrapping_add(used) & MASK)),
            Some(missing) => Some(Err(self.ns_of(missing))),
        }
    }

    /// Returns the value behind a charge, and its outcome, if the TAT is then not too far ahead.
    #[inline]
    pub(super) fn charge(
        self,
        value: u64,
        now_ns: u64,
        permits: u64,
        debt: Debt,
    ) -> Option<(u64, Charged)> {
        let cost = permits.checked_mul(self.parts_per_permit)?;
        let used = self.ahead(value, now_ns).checked_add(cost)?;
        (used <= MAX_AHEAD).then_some(())?;
        let over = used.saturating_sub(self.burst);
        (over <= debt.max_ns().saturating_mul(self.parts_per_ns)).then_some(())?;
        let value = self.full_at(now_ns).wrapping_add(used) & MASK;
        Some((value, Charged::of(permits, permits, self.permits_begun_in(over))))
    }

    /// Returns by how many permits the limit is exceeded.
    #[inline]
    pub(super) const fn debt(self, value: u64, now_ns: u64) -> u64 {
        self.permits_begun_in(self.ahead(value, now_ns).saturating_sub(self.burst))
    }

    /// Returns the time until the limit is not exceeded any more.
    pub(super) const fn debt_ends_in_ns(self, value: u64, now_ns: u64) -> u64 {
        match NonZeroU64::new(self.ahead(value, now_ns).saturating_sub(self.burst)) {
            Some(over) => self.ns_of(over).get(),
            None => 0,
        }
    }

    #[inline]
    const fn permits_begun_in(self, parts: u64) -> u64 {
        match NonZeroU64::new(self.parts_per_permit) {
            Some(parts_per_permit) if parts > 0 => parts.div_ceil(parts_per_permit.get()),
            _ => 0,
        }
    }

    /// Returns the maximum number of permits that a try could take.
    #[inline]
    pub(super) const fn remaining(self, value: u64, now_ns: u64) -> u64 {
        let free = self.burst.saturating_sub(self.ahead(value, now_ns));
        match free.checked_div(self.parts_per_permit) {
            Some(permits) => permits,
            None => 0,
        }
    }

    /// Returns how many permits a full bucket grants at once.
    #[inline]
    pub(super) const fn capacity(self) -> u64 {
        match self.burst.checked_div(self.parts_per_permit) {
            Some(permits) => permits,
            None => 0,
        }
    }

    #[inline]
    const fn ns_of(self, parts: NonZeroU64) -> NonZeroU64 {
        if self.parts_per_ns <= 1 {
            return parts;
        }
        match NonZeroU64::new(parts.get().div_ceil(self.parts_per_ns)) {
            Some(ns) => ns,
            None => NonZeroU64::MIN,
        }
    }

    /// Packs a bucket into a value.
    pub(crate) fn pack(self, state: &State, now_ns: u64) -> Option<u64> {
        let pace = state.pace_if_running()?;
        let ahead = pace.to_parts(pace.sub(state.tat(), Exact::at(now_ns.into())));
        let ahead = u64::try_from(ahead).ok().filter(|&ahead| ahead <= MAX_AHEAD)?;
        Some(self.full_at(now_ns).wrapping_add(ahead) & MASK)
    }

    /// Returns the bucket of `policy` that a value stands for.
    pub(crate) fn unpack(self, value: u64, now_ns: u64, policy: &Gcra) -> State {
        let state = policy.fresh(now_ns);
        let Kind::Paced(pace) = policy.rate().kind() else { return state };
        let ahead = pace.from_parts(self.ahead(value, now_ns).into());
        State::with_tat(pace.add(Exact::at(now_ns.into()), ahead), pace)
    }
}
