//! Limit states packed into a part of a word, for tables that keep millions of them.
//!
//! A packed state has no origin of its own, and a table keeps none for it. Time is kept modulo the
//! range of the bits, so a value older than half of that range would seem to lie in the future. A
//! table therefore has to [check each value](Packed::is_full) once within [`Packed::validity_ns`],
//! and evict or renew those that are as good as fresh. The clock must not go back by more than
//! that time either.
//!
//! * [`Gcra`](crate::gcra::Gcra): the TAT, in parts of a nanosecond. Rates with more than some
//!   300 000 parts to the nanosecond and bursts of over 2^55 parts do not fit.
//! * [`FixedWindow`](crate::fixed_window::FixedWindow) on the clock's grid: a window's number, and
//!   the permits used in it. Over 2^28 permits do not fit.
//! * [`SlidingLog`](crate::sliding_log::SlidingLog) on a grid: a grid point, and its permits.
//!   Permits at a second point, over 2^28 permits, and grids so fine that a minute has too many
//!   points do not fit.
//! * A fixed window of a [calendar](crate::calendar): the second at which the window ends, and the
//!   permits used in it. The first try of a key in a window does not fit, as only the calendar knows
//!   where that ends; nor do over 2^28 permits, and borders between two seconds.
//!
//! # Contract
//!
//! That of the policy, to the nanosecond: a decision on a value is the same as on its state.
//!
//! ```
//! use rategate_core::any_policy::AnyPolicy;
//! use rategate_core::gcra::Gcra;
//!
//! let numbers = AnyPolicy::from(Gcra::per_second(3).burst(2)).packed().unwrap();
//! let fresh = numbers.full_at(1_000);
//! let used = numbers.decide(fresh, 1_000, 2).unwrap().unwrap();
//! assert_eq!(numbers.remaining(used, 1_000), 0);
//! let retry_after_ns = numbers.decide(used, 1_000, 1).unwrap().unwrap_err();
//! assert_eq!(retry_after_ns.get(), 333_333_334);
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod borders;
mod bucket;
mod cells;

use core::num::NonZeroU64;

use self::borders::Borders;
use self::bucket::Bucket;
use self::cells::Cells;
use crate::any_policy::{AnyPolicy, Member};
use crate::debt::{Charged, Debt};
use crate::fixed_window::{self, Windows};

/// The number of bits of a value.
pub const VALUE_BITS: u32 = 57;

/// The shortest fading time for which packing pays.
const MIN_VALIDITY_NS: u64 = 60_000_000_000;

/// The numbers of a limit whose state is packed into a part of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed(Form);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Bucket(Bucket),
    Cells(Cells),
    Borders(Borders),
}

macro_rules! of_form {
    ($packed:expr, $form:ident => $call:expr) => {
        match $packed.0 {
            Form::Bucket($form) => $call,
            Form::Cells($form) => $call,
            Form::Borders($form) => $call,
        }
    };
}

impl Packed {
    /// Returns the numbers as plain words, which fit atomics.
    #[must_use]
    pub const fn to_fields(self) -> [u64; 5] {
        let (form, [a, b, c, d]) = match self.0 {
            Form::Bucket(bucket) => (0, bucket.to_fields()),
            Form::Cells(cells) => (1, cells.to_fields()),
            Form::Borders(borders) => (2, borders.to_fields()),
        };
        [form, a, b, c, d]
    }

    /// Returns the numbers from such words. Torn words give wrong decisions, but no panic.
    #[must_use]
    #[inline]
    pub const fn from_fields([form, a, b, c, d]: [u64; 5]) -> Self {
        Self(match form {
            0 => Form::Bucket(Bucket::from_fields([a, b, c, d])),
            1 => Form::Cells(Cells::from_fields([a, b, c, d])),
            _ => Form::Borders(Borders::from_fields([a, b, c, d])),
        })
    }

    /// Returns the value of a fresh limit.
    #[must_use]
    #[inline]
    pub const fn full_at(self, now_ns: u64) -> u64 {
        of_form!(self, form => form.full_at(now_ns))
    }

    /// Returns the time within which each value has to be checked, in nanoseconds.
    ///
    /// The clock may go back by at most this time between two of its readings. No state is
    /// further ahead of the clock than twice this time.
    #[must_use]
    pub const fn validity_ns(self) -> u64 {
        of_form!(self, form => form.validity_ns())
    }

    /// Returns `true` if a limit has been as good as fresh for some time, not only since this
    /// instant.
    ///
    /// Then no value written by a later owner of its slot will equal this one.
    #[must_use]
    #[inline]
    pub fn is_full(self, value: u64, now_ns: u64) -> bool {
        of_form!(self, form => form.is_full(value, now_ns))
    }

    /// Returns the instant at which the limit will be as good as fresh, if it is not now.
    ///
    /// [`is_full`](Self::is_full) returns `true` at most one nanosecond later; for an unused
    /// limit, by the next point of its grid.
    #[must_use]
    pub fn full_after(self, value: u64, now_ns: u64) -> u64 {
        of_form!(self, form => form.full_after(value, now_ns))
    }

    /// Returns the time until the limit is as good as fresh if no call comes meanwhile; zero if
    /// it is.
    ///
    /// `None` if that instant is beyond the end of the clock.
    #[must_use]
    #[inline]
    pub fn fresh_in_ns(self, value: u64, now_ns: u64) -> Option<u64> {
        let left_ns = of_form!(self, form => form.fresh_in_ns(value, now_ns));
        now_ns.checked_add(left_ns).map(|_| left_ns)
    }

    /// Decides about `permits`. Returns the value behind a grant, or the wait until the same try
    /// passes.
    ///
    /// Returns `None` for zero permits, for more than could ever pass, and where the value behind
    /// the grant would not fit.
    #[inline]
    #[must_use]
    pub fn decide(self, value: u64, now_ns: u64, permits: u64) -> Option<Result<u64, NonZeroU64>> {
        of_form!(self, form => form.decide(value, now_ns, permits))
    }

    /// Books permits that have been used already. Returns the value behind the charge and its
    /// outcome, or `None` where the value would not fit, or a bound on debts has to be applied.
    #[inline]
    #[must_use]
    pub fn charge(
        self,
        value: u64,
        now_ns: u64,
        permits: u64,
        debt: Debt,
    ) -> Option<(u64, Charged)> {
        of_form!(self, form => form.charge(value, now_ns, permits, debt))
    }

    /// Returns by how many permits the limit is exceeded.
    #[inline]
    #[must_use]
    pub fn debt(self, value: u64, now_ns: u64) -> u64 {
        of_form!(self, form => form.debt(value, now_ns))
    }

    /// Returns the time until the limit is not exceeded any more; zero if it is not.
    #[inline]
    #[must_use]
    pub fn debt_ends_in_ns(self, value: u64, now_ns: u64) -> u64 {
        match self.0 {
            Form::Bucket(bucket) => bucket.debt_ends_in_ns(value, now_ns),
            Form::Cells(cells) if cells.debt(value, now_ns) > 0 => cells.fresh_in_ns(value, now_ns),
            Form::Borders(borders) if borders.debt(value, now_ns) > 0 => {
                borders.fresh_in_ns(value, now_ns)
            }
            Form::Cells(_) | Form::Borders(_) => 0,
        }
    }

    /// Returns the start of a grant that left `value`, for a caller that read `now_ns`.
    ///
    /// It is that instant, or a later one if other callers had read that before.
    #[inline]
    #[must_use]
    pub const fn start_ns(self, value: u64, now_ns: u64) -> u64 {
        match self.0 {
            // A bucket's bound holds for any disorder of the readings, and a calendar's count is in the
            // newest window.
            Form::Bucket(_) | Form::Borders(_) => now_ns,
            Form::Cells(cells) => cells.start_ns(value, now_ns),
        }
    }

    /// Returns the maximum number of permits that a try could take.
    #[must_use]
    #[inline]
    pub fn remaining(self, value: u64, now_ns: u64) -> u64 {
        of_form!(self, form => form.remaining(value, now_ns))
    }

    /// Returns how many permits a fresh limit grants at once.
    #[must_use]
    #[inline]
    pub const fn capacity(self) -> u64 {
        of_form!(self, form => form.capacity())
    }
}

impl AnyPolicy {
    /// Returns the numbers by which a table packs states of this policy into a part of a word, if
    /// it can.
    #[must_use]
    pub fn packed(&self) -> Option<Packed> {
        Some(Packed(match self {
            Self::Gcra(policy) => Form::Bucket(Bucket::of(policy)?),
            Self::FixedWindow(policy) => match policy.windows() {
                Windows::Even { .. } => Form::Cells(Cells::of_window(policy)?),
                Windows::Of(_) => Form::Borders(Borders::of(policy)?),
            },
            Self::SlidingLog(policy) => Form::Cells(Cells::of_log(policy)?),
            _ => return None,
        }))
    }
}

impl Member {
    /// Returns the state packed into a part of a word, if it fits.
    #[must_use]
    pub fn pack(&self, now_ns: u64) -> Option<u64> {
        match self {
            Self::Gcra(policy, state) => Bucket::of(policy)?.pack(state, now_ns),
            Self::FixedWindow(policy, state) => {
                let count = policy.moved_to(state, now_ns).to_count()?;
                match policy.windows() {
                    Windows::Even { .. } => Cells::of_window(policy)?.pack_window(count, now_ns),
                    Windows::Of(calendar) => Borders::of(policy)?.pack(count, now_ns, &calendar),
                }
            }
            Self::SlidingLog(policy, state) => {
                Cells::of_log(policy)?.pack_log(state, now_ns, policy)
            }
            _ => None,
        }
    }

    /// Returns the limit of this policy that a packed value stands for.
    #[must_use]
    pub fn unpack(policy: AnyPolicy, value: u64, now_ns: u64) -> Option<Self> {
        Some(match policy {
            AnyPolicy::Gcra(policy) => {
                Self::Gcra(policy, Bucket::of(&policy)?.unpack(value, now_ns, &policy))
            }
            AnyPolicy::FixedWindow(policy) => {
                let count = match policy.windows() {
                    Windows::Even { .. } => Cells::of_window(&policy)?.unpack_window(value, now_ns),
                    Windows::Of(calendar) => Borders::of(&policy)?.unpack(value, now_ns, &calendar),
                };
                Self::FixedWindow(policy, fixed_window::State::of_count(count))
            }
            AnyPolicy::SlidingLog(policy) => {
                Self::SlidingLog(policy, Cells::of_log(&policy)?.unpack_log(value, now_ns))
            }
            _ => return None,
        })
    }
}
