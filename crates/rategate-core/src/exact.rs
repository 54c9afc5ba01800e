//! Instants between nanoseconds: whole nanoseconds and a part of one, counted in the rate's own
//! fraction, so that adding a permit's time never rounds.
//!
//! At `N` permits per `P` ns (reduced), one permit takes `P/N` ns: `P / N` whole ones and
//! `P % N` parts of `1/N` ns. An [`Exact`] holds both, as clock hands hold hours and minutes.

use core::num::NonZeroU64;

use crate::wide;

/// A finite, non-zero rate: `permits` per `period_ns`, reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub(crate) struct Pace {
    permits: NonZeroU64,
    period_ns: NonZeroU64,
}

/// An instant or a length: `ns` whole nanoseconds and `part / permits` of another, where
/// `permits` is that of the [`Pace`] in use. Invariant: `part < permits`.
///
/// `ns` has 128 bits because an instant may lie a whole burst beyond the end of a 64-bit clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub(crate) struct Exact {
    pub(crate) ns: u128,
    pub(crate) part: u64,
}

impl Exact {
    pub(crate) const fn at(ns: u128) -> Self {
        Self { ns, part: 0 }
    }

    /// Returns the first whole nanosecond at or after the instant.
    pub(crate) const fn ceil(self) -> u128 {
        if self.part > 0 { self.ns.saturating_add(1) } else { self.ns }
    }

    /// Returns `true` if it is an instant in this pace.
    pub(crate) const fn is_in(self, pace: Pace) -> bool {
        self.part < pace.permits.get()
    }

    /// Returns `true` if a clock of whole nanoseconds could show `shown_ns` at this instant
    /// rounded up, or at any later one: a call that starts then is on time, not late.
    pub(crate) const fn rounds_up_to_at_least(self, shown_ns: u128) -> bool {
        self.ceil() >= shown_ns
    }
}

impl Pace {
    pub(crate) const fn new(permits: NonZeroU64, period_ns: NonZeroU64) -> Self {
        Self { permits, period_ns }
    }

    pub(crate) const fn permits(self) -> NonZeroU64 {
        self.permits
    }

    pub(crate) const fn period_ns(self) -> NonZeroU64 {
        self.period_ns
    }

    /// Returns the exact time that `permits` take.
    pub(crate) fn time_of(self, permits: u64) -> Exact {
        // Two factors of 64 bits: the product always fits.
        self.from_parts(u128::from(self.period_ns.get()).wrapping_mul(permits.into()))
    }

    /// Converts a length from parts of `1/permits` ns into normal form.
    #[expect(clippy::wrong_self_convention, reason = "the pace says what a part is")]
    pub(crate) fn from_parts(self, parts: u128) -> Exact {
        if self.permits == NonZeroU64::MIN {
            return Exact::at(parts);
        }
        // The common case: one division by the processor, where 128 bits are a loop.
        if let Ok(parts) = u64::try_from(parts) {
            let (ns, part) = (parts / self.permits, parts % self.permits);
            return Exact { ns: ns.into(), part };
        }
        let divisor = u128::from(self.permits.get());
        let part = parts.checked_rem(divisor).and_then(|part| u64::try_from(part).ok());
        Exact { ns: parts.checked_div(divisor).unwrap_or(0), part: part.unwrap_or(0) }
    }

    /// Returns a length as parts of `1/permits` ns; saturates beyond 128 bits.
    pub(crate) fn to_parts(self, length: Exact) -> u128 {
        let permits = u128::from(self.permits.get());
        let whole = match u64::try_from(length.ns) {
            // Two factors of 64 bits.
            Ok(ns) => u128::from(ns).wrapping_mul(permits),
            Err(_) => length.ns.saturating_mul(permits),
        };
        whole.saturating_add(length.part.into())
    }

    pub(crate) fn add(self, a: Exact, b: Exact) -> Exact {
        let permits = u128::from(self.permits.get());
        let parts = u128::from(a.part).wrapping_add(b.part.into());
        let (carry, part) = match parts.checked_sub(permits) {
            Some(rest) => (1, rest),
            None => (0, parts),
        };
        let ns = a.ns.saturating_add(b.ns).saturating_add(carry);
        Exact { ns, part: u64::try_from(part).unwrap_or(0) }
    }

    /// Returns `a - b`, or zero where `b` is the later.
    pub(crate) fn sub(self, a: Exact, b: Exact) -> Exact {
        if a <= b {
            return Exact::default();
        }
        match a.part.checked_sub(b.part) {
            Some(part) => Exact { ns: a.ns.wrapping_sub(b.ns), part },
            None => Exact {
                ns: a.ns.wrapping_sub(b.ns).wrapping_sub(1),
                part: a.part.wrapping_add(self.permits.get()).wrapping_sub(b.part),
            },
        }
    }

    /// Returns the number of whole permits earned in `length`.
    pub(crate) fn permits_in(self, length: Exact) -> u128 {
        let parts = self.to_parts(length);
        match u64::try_from(parts) {
            Ok(parts) => (parts / self.period_ns).into(),
            Err(_) => parts.checked_div(self.period_ns.get().into()).unwrap_or(0),
        }
    }

    /// Returns the number of permits earned in `length`, including one that is earned in part.
    pub(crate) fn permits_begun_in(self, length: Exact) -> u128 {
        let whole = self.permits_in(length);
        let is_even = self.to_parts(length).checked_rem(self.period_ns.get().into()) == Some(0);
        if is_even { whole } else { whole.saturating_add(1) }
    }

    /// Returns the time that takes `new` as many permits (and fractions of one) as `length` takes
    /// `self`, rounded up by less than one part.
    pub(crate) fn rescale(self, length: Exact, new: Self) -> Exact {
        let parts = self.to_parts(length);
        let period_ns = u128::from(self.period_ns.get());
        let scaled = wide::mul_div_ceil(parts, new.period_ns.get(), period_ns);
        new.from_parts(scaled.unwrap_or(u128::MAX))
    }
}
