//! A policy with a state stored elsewhere, joined for one decision. A keyed table uses it for the
//! state of a key, where a [`Ledger`](crate::ledger::Ledger) for each key would be many times as
//! large.
//!
//! It grants and denies at once, and counts operations in flight. Promises and refunds need a
//! memory of past grants: for these a ledger [continues](crate::ledger::Ledger::resumed) from the
//! state.
//!
//! ```
//! use std::time::Duration;
//!
//! use rategate_core::external_state::ExternalState;
//! use rategate_core::limit::Limit;
//! use rategate_core::policy::Policy;
//! use rategate_core::refund::RefundEpoch;
//! use rategate_core::sliding_log::SlidingLog;
//! use rategate_core::verdict::Verdict;
//!
//! let policy = SlidingLog::new(1, Duration::from_nanos(1_000));
//! let mut state = policy.fresh(0);
//! let mut limit = ExternalState::new(&policy, &mut state, RefundEpoch::NONE);
//! assert!(matches!(limit.try_acquire(0, 1)?, Verdict::Granted(_)));
//! assert_eq!(limit.peek(400, 1)?, Some(600));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use core::num::NonZeroU64;

use crate::debt::{Charge, Charged, Debt};
use crate::error::CountsInFlight;
use crate::limit::{Limit, charge_as_promises};
use crate::outcome::Outcome;
use crate::policy::{Ended, Policy, Taken};
use crate::refund::RefundEpoch;
use crate::share::Share;
use crate::verdict::{Grant, Opening, Refusal, Ticket};

/// One decision about a state that is stored elsewhere. The owner of the state clamps the clock.
#[derive(Debug)]
pub struct ExternalState<'a, P: Policy> {
    policy: &'a P,
    state: &'a mut P::State,
    epoch: RefundEpoch,
}

impl<'a, P: Policy> ExternalState<'a, P> {
    /// Creates a limit over `state`, whose refund epoch is `epoch`.
    pub const fn new(policy: &'a P, state: &'a mut P::State, epoch: RefundEpoch) -> Self {
        Self { policy, state, epoch }
    }
}

impl<P: Policy> Limit for ExternalState<'_, P> {
    fn clamp(&self, now_ns: u64) -> u64 {
        now_ns
    }

    fn opening(&self, now_ns: u64, permits: NonZeroU64) -> Result<Opening, Refusal> {
        self.policy.opening(self.state, now_ns, permits)
    }

    fn book(&mut self, now_ns: u64, start_ns: u64, permits: NonZeroU64) -> Ticket {
        let taken = Taken { from_ns: now_ns, start_ns, permits };
        let busy_until_ns = self.policy.busy_until_ns(self.state, taken);
        self.policy.take(self.state, taken);
        let ticket = Ticket::booked(start_ns, busy_until_ns, self.epoch);
        ticket.with_in_flight(self.policy.in_flight(self.state))
    }

    /// Returns `false`: grants are not known one by one.
    fn cancel(&mut self, _now_ns: u64, _ticket: Ticket) -> bool {
        false
    }

    /// Returns `false`: promises are not known one by one.
    fn start_early(&mut self, _now_ns: u64, _ticket: Ticket) -> bool {
        false
    }

    fn pass_to(&mut self, _now_ns: u64) {}

    /// Charges the state. A debt that it cannot hold is booked at its later starts.
    fn charge(&mut self, now_ns: u64, permits: u64, debt: Debt) -> Result<Charged, CountsInFlight> {
        if self.policy.counts_in_flight() {
            return Err(CountsInFlight);
        }
        let charged = self.policy.charge(self.state, Charge { now_ns, permits, debt });
        Ok(charged.unwrap_or_else(|| charge_as_promises(self, now_ns, permits, debt)))
    }

    fn debt(&self, now_ns: u64) -> u64 {
        self.policy.debt(self.state, now_ns)
    }

    fn debt_ends_in_ns(&self, now_ns: u64) -> Option<u64> {
        let end_ns = self.policy.debt_ends_ns(self.state, now_ns)?;
        Some(end_ns.saturating_sub(now_ns))
    }

    fn remaining(&self, now_ns: u64) -> u64 {
        self.policy.remaining(self.state, now_ns)
    }

    fn slack_ns(&self) -> u64 {
        self.policy.slack_ns()
    }

    /// Returns `false`: a refill changes the refund epoch, which is stored elsewhere.
    fn refill(&mut self, _now_ns: u64, _permits: u64) -> bool {
        false
    }

    fn release(&mut self, now_ns: u64, permits: u64) -> bool {
        self.policy.release(self.state, now_ns, permits)
    }

    fn max_in_flight(&self, now_ns: u64) -> Option<u64> {
        self.policy.max_in_flight(self.state, now_ns)
    }

    fn room_in_share(&self, now_ns: u64, share: Share) -> Option<u64> {
        let in_share = share.of(self.max_in_flight(now_ns)?);
        Some(in_share.saturating_sub(self.policy.in_flight(self.state)))
    }

    fn release_with_outcome(
        &mut self,
        now_ns: u64,
        grant: &Grant,
        permits: u64,
        outcome: Outcome,
    ) -> bool {
        self.policy.release_with_outcome(self.state, Ended::of(grant, permits, outcome, now_ns))
    }

    fn abort(&mut self, now_ns: u64, permits: u64) -> bool {
        self.policy.abort(self.state, now_ns, permits)
    }
}
