//! Projections of a limit that accompany a decision: nothing, or the limit's status.
//!
//! They come from the very state that the decision was made on.

use rategate_core::concurrent::HasLockFree;
use rategate_core::debt::{Charged, Debt};
use rategate_core::error::ExceedsCapacity;
use rategate_core::external_state::ExternalState;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::packed::Packed;
use rategate_core::refund::RefundEpoch;

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
    fn of<P: HasLockFree>(limit: &View<'_, P>, now_ns: u64) -> Self;

    /// Tries a limiter, and computes the projection of it.
    fn of_try<P: HasLockFree, C: Clock>(
        limiter: &Limiter<P, C>,
        permits: u64,
    ) -> Result<Self::Decided, TryAcquireError>;

    /// Peeks at a limiter, and computes the projection of it.
    fn of_peek<P: HasLockFree, C: Clock>(
        limiter: &Limiter<P, C>,
        permits: u64,
    ) -> Result<Peeked<Self>, TryAcquireError>;

    /// Charges a limiter, and computes the projection of it.
    fn of_charge<P: HasLockFree, C: Clock>(
        limiter: &Limiter<P, C>,
        permits: u64,
        debt: Debt,
    ) -> Result<Self::Charged, ChargeError>;
}

/// The wait until a try would pass, in ns, and a projection of the state that it follows from.
pub(super) type Peeked<B> = (Option<u64>, B);

/// A limit behind the lock that has no limiter.
pub(super) enum View<'a, P: HasLockFree> {
    State(&'a P, &'a mut P::State),
    Ledger(&'a Ledger<P>),
}

impl<P: HasLockFree> View<'_, P> {
    pub(super) fn remaining(&self, now_ns: u64) -> u64 {
        match self {
            Self::State(policy, state) => policy.remaining(state, now_ns),
            Self::Ledger(ledger) => ledger.remaining(now_ns),
        }
    }

    pub(super) fn peek(self, now_ns: u64, permits: u64) -> Result<Option<u64>, ExceedsCapacity> {
        match self {
            Self::State(policy, state) => {
                ExternalState::new(policy, state, RefundEpoch::UNKNOWN).peek(now_ns, permits)
            }
            Self::Ledger(ledger) => ledger.peek(now_ns, permits),
        }
    }
}

impl Projection for () {
    type Decided = Decision;
    type Charged = Charged;

    #[inline]
    fn with_charged(self, charged: Charged) -> Charged {
        charged
    }

    fn of_charge<P: HasLockFree, C: Clock>(
        limiter: &Limiter<P, C>,
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

    fn of<P: HasLockFree>(_: &View<'_, P>, _: u64) -> Self {}

    fn of_try<P: HasLockFree, C: Clock>(
        limiter: &Limiter<P, C>,
        permits: u64,
    ) -> Result<Self::Decided, TryAcquireError> {
        limiter.try_acquire(permits)
    }

    fn of_peek<P: HasLockFree, C: Clock>(
        limiter: &Limiter<P, C>,
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

    fn of_charge<P: HasLockFree, C: Clock>(
        limiter: &Limiter<P, C>,
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

    fn of<P: HasLockFree>(limit: &View<'_, P>, now_ns: u64) -> Self {
        match limit {
            View::State(policy, state) => Self::of_state(*policy, state, now_ns),
            View::Ledger(ledger) => Self::of_ledger(ledger, now_ns),
        }
    }

    fn of_try<P: HasLockFree, C: Clock>(
        limiter: &Limiter<P, C>,
        permits: u64,
    ) -> Result<Self::Decided, TryAcquireError> {
        limiter.try_with_status(permits)
    }

    fn of_peek<P: HasLockFree, C: Clock>(
        limiter: &Limiter<P, C>,
        permits: u64,
    ) -> Result<Peeked<Self>, TryAcquireError> {
        Ok((limiter.peek_ns(permits)?, limiter.status()?))
    }
}
