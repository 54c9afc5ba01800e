//! What is told beside a decision, from the very state that it was made on: nothing, or where the limit stands.

use rategate_core::bare::Bare;
use rategate_core::concurrent::Twinned;
use rategate_core::error::ExceedsCapacity;
use rategate_core::ledger::Ledger;
use rategate_core::limit::Limit;
use rategate_core::narrow::Narrow;
use rategate_core::refund::Past;

use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::LimiterError;
use crate::limiter::Limiter;
use crate::standing::Look;

/// Something that can be told of a limit wherever its state is.
pub(super) trait Beside: Sized {
    /// Of a state in a slot.
    fn of_value(numbers: Narrow, value: u64, now_ns: u64) -> Self;

    /// Of a limit behind the lock.
    fn of<P: Twinned>(limit: &View<'_, P>, now_ns: u64) -> Self;

    /// Of a limiter, with a try.
    fn of_try<P: Twinned, C: Clock>(
        limiter: &Limiter<Ledger<P>, C>,
        permits: u64,
    ) -> Result<(Decision, Self), LimiterError>;
}

/// A limit behind the lock that nobody has a limiter of.
pub(super) enum View<'a, P: Twinned> {
    State(&'a P, &'a mut P::State),
    Ledger(&'a Ledger<P>),
}

impl<P: Twinned> View<'_, P> {
    pub(super) fn remaining(&self, now_ns: u64) -> u64 {
        match self {
            Self::State(policy, state) => policy.remaining(state, now_ns),
            Self::Ledger(ledger) => ledger.remaining(now_ns),
        }
    }

    pub(super) fn peek(self, now_ns: u64, permits: u64) -> Result<Option<u64>, ExceedsCapacity> {
        match self {
            Self::State(policy, state) => {
                Bare::new(policy, state, Past::UNKNOWN).peek(now_ns, permits)
            }
            Self::Ledger(ledger) => ledger.peek(now_ns, permits),
        }
    }
}

impl Beside for () {
    #[inline]
    fn of_value(_: Narrow, _: u64, _: u64) -> Self {}

    fn of<P: Twinned>(_: &View<'_, P>, _: u64) -> Self {}

    fn of_try<P: Twinned, C: Clock>(
        limiter: &Limiter<Ledger<P>, C>,
        permits: u64,
    ) -> Result<(Decision, Self), LimiterError> {
        Ok((limiter.try_acquire(permits)?, ()))
    }
}

impl Beside for Look {
    #[inline]
    fn of_value(numbers: Narrow, value: u64, now_ns: u64) -> Self {
        Self::of_value(numbers, value, now_ns)
    }

    fn of<P: Twinned>(limit: &View<'_, P>, now_ns: u64) -> Self {
        match limit {
            View::State(policy, state) => Self::of_state(*policy, state, now_ns),
            View::Ledger(ledger) => Self::of_ledger(ledger, now_ns),
        }
    }

    fn of_try<P: Twinned, C: Clock>(
        limiter: &Limiter<Ledger<P>, C>,
        permits: u64,
    ) -> Result<(Decision, Self), LimiterError> {
        limiter.try_told(permits)
    }
}
