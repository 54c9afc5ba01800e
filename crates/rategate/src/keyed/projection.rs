//! Projections of a limit that accompany a decision: nothing, or the limit's status.
//!
//! They come from the very state that the decision was made on.

use rategate_core::debt::{Charged, Debt};
use rategate_core::ledger::Ledger;
use rategate_core::packed::Packed;

use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::{ChargeError, TryAcquireError};
use crate::limiter::Limiter;
use crate::status::Status;

/// A projection that is available wherever the limit's state is.
pub(super) trait Projection: Sized {
    /// A decision with its projection, as the caller gets it. Every way to a decision writes it
    /// once: a copy of one just written would cost as much as half a try.
    type Decided;

    /// A charge with its projection.
    type Charged;

    /// Returns a decision with this projection.
    fn with(self, decision: Decision) -> Self::Decided;

    /// Returns a charge with this projection.
    fn with_charged(self, charged: Charged) -> Self::Charged;

    /// Computes the projection of a state in a slot.
    fn of_value(numbers: Packed, value: u64, now_ns: u64) -> Self;

    /// Computes the projection of a limit behind the lock.
    fn of(limit: &Ledger, now_ns: u64) -> Self;

    /// Tries a limiter, and computes the projection of it.
    fn of_try<C: Clock>(
        limiter: &Limiter<C>,
        permits: u64,
    ) -> Result<Self::Decided, TryAcquireError>;

    /// Peeks at a limiter, and computes the projection of it.
    fn of_peek<C: Clock>(
        limiter: &Limiter<C>,
        permits: u64,
    ) -> Result<Peeked<Self>, TryAcquireError>;

    /// Charges a limiter, and computes the projection of it.
    fn of_charge<C: Clock>(
        limiter: &Limiter<C>,
        permits: u64,
        debt: Debt,
    ) -> Result<Self::Charged, ChargeError>;
}

/// The wait until a try would pass, in ns, and a projection of the state that it follows from.
pub(super) type Peeked<B> = (Option<u64>, B);

impl Projection for () {
    type Decided = Decision;
    type Charged = Charged;

    #[inline]
    fn with_charged(self, charged: Charged) -> Charged {
        charged
    }

    fn of_charge<C: Clock>(
        limiter: &Limiter<C>,
        permits: u64,
        debt: Debt,
    ) -> Result<Charged, ChargeError> {
        limiter.shared().charge(permits, debt)
    }

    #[inline]
    fn with(self, decision: Decision) -> Decision {
        decision
    }

    #[inline]
    fn of_value(_: Packed, _: u64, _: u64) -> Self {}

    fn of(_: &Ledger, _: u64) -> Self {}

    fn of_try<C: Clock>(
        limiter: &Limiter<C>,
        permits: u64,
    ) -> Result<Self::Decided, TryAcquireError> {
        limiter.try_acquire(permits)
    }

    fn of_peek<C: Clock>(
        limiter: &Limiter<C>,
        permits: u64,
    ) -> Result<Peeked<Self>, TryAcquireError> {
        Ok((limiter.peek_ns(permits)?, ()))
    }
}

impl Projection for Status {
    type Decided = (Decision, Self);
    type Charged = (Charged, Self);

    #[inline]
    fn with_charged(self, charged: Charged) -> (Charged, Self) {
        (charged, self)
    }

    fn of_charge<C: Clock>(
        limiter: &Limiter<C>,
        permits: u64,
        debt: Debt,
    ) -> Result<(Charged, Self), ChargeError> {
        limiter.charge_with_status(permits, debt)
    }

    #[inline]
    fn with(self, decision: Decision) -> (Decision, Self) {
        (decision, self)
    }

    #[inline]
    fn of_value(numbers: Packed, value: u64, now_ns: u64) -> Self {
        Self::of_value(numbers, value, now_ns)
    }

    fn of(limit: &Ledger, now_ns: u64) -> Self {
        Self::of_ledger(limit, now_ns)
    }

    fn of_try<C: Clock>(
        limiter: &Limiter<C>,
        permits: u64,
    ) -> Result<Self::Decided, TryAcquireError> {
        limiter.try_with_status(permits)
    }

    fn of_peek<C: Clock>(
        limiter: &Limiter<C>,
        permits: u64,
    ) -> Result<Peeked<Self>, TryAcquireError> {
        Ok((limiter.peek_ns(permits)?, limiter.status()?))
    }
}
