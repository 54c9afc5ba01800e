//! Decisions by a limit that several processes share.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use rategate::Clock;
use rategate::distributed::{By, Deciding, Decision, Denial, Distributed, Grant, LeaseGuard};
use rategate::store::{Fault, LeaseId, Store};

use super::taken::{InFlight, Taken};
use super::{Ask, Gate, Outcome, Pass, Told, refused};
use crate::refusal::{Reason, Refusal};

/// A request in the store's terms.
struct Call<S: Store, C: Clock + Clone + 'static> {
    limiter: Distributed<S, C>,
    name: Box<[u8]>,
    /// The name of its permits in flight, where the limit counts those.
    lease: Option<LeaseId>,
}

impl<S: Store, C: Clock + Clone + 'static> Gate for Distributed<S, C> {
    fn pass(&self, ask: Ask, name: Vec<u8>) -> Pass {
        let limiter = self.clone();
        let lease = limiter.counts_in_flight().then(LeaseId::random);
        let call = Arc::new(Call { limiter, name: name.into(), lease });
        match (lease, ask.longest_wait) {
            (Some(lease), _) => call.decided(call.limiter.hold(&call.name, ask.cost, lease), ask),
            (None, None) => call.decided(call.limiter.try_acquire(&call.name, ask.cost), ask),
            (None, Some(longest)) => {
                let longest_ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
                Pass::Later(Box::pin(async move {
                    let waited =
                        call.limiter.acquire_within(&call.name, ask.cost, longest_ns).await;
                    call.outcome(waited, ask)
                }))
            }
        }
    }
}

impl<S: Store, C: Clock + Clone + 'static> Call<S, C> {
    /// Returns a decision, at once if the store need not reply.
    fn decided(self: &Arc<Self>, deciding: Deciding, ask: Ask) -> Pass {
        match deciding.at_once() {
            Ok(decision) => Pass::Now(self.outcome(decision, ask)),
            Err(deciding) => {
                let call = Arc::clone(self);
                Pass::Later(Box::pin(async move { call.outcome(deciding.await, ask) }))
            }
        }
    }

    fn outcome(self: &Arc<Self>, decision: Result<Decision, Fault>, ask: Ask) -> Outcome {
        match decision {
            Ok(Decision::Granted(grant)) => {
                let remaining = grant.remaining.filter(|_| ask.tells);
                let told = remaining.map(|remaining| Told::new(ask, remaining, None));
                Outcome::Passed(told, self.taken(grant, ask))
            }
            Ok(Decision::Denied(denial)) => denied(denial, ask),
            Err(Fault::Exceeds(_)) => refused(Reason::TooCostly),
            Err(Fault::Closed) => refused(Reason::Closed),
            Err(_) => refused(Reason::Undecided),
        }
    }

    fn taken(self: &Arc<Self>, grant: Grant, ask: Ask) -> Option<Taken> {
        let permits = NonZeroU64::new(ask.cost)?;
        let call = Arc::clone(self);
        match (self.lease, grant.by) {
            (Some(lease), By::Store) => {
                let guard = call.limiter.keep(&call.name, permits, lease);
                Some(Taken::InFlight(Box::new(Flight(guard))))
            }
            // Permits that this node granted without the store are not held in the store.
            (Some(_), _) => None,
            (None, _) => ask.may_return.then(|| -> Taken {
                Taken::Spent(Box::new(move || call.limiter.refund(&call.name, permits, grant)))
            }),
        }
    }
}

fn denied(denial: Denial, ask: Ask) -> Outcome {
    let retry_after = denial.retry_after_ns.map(|wait_ns| Duration::from_nanos(wait_ns.get()));
    // Without the store and without a local limit, the client has not exceeded anything.
    let is_undecided = denial.by == By::Fallback && denial.remaining.is_none();
    let reason = if is_undecided { Reason::Undecided } else { Reason::OverLimit };
    let remaining = denial.remaining.filter(|_| ask.tells);
    let most = ask.cost.saturating_sub(1);
    let told = remaining.map(|remaining| Told::new(ask, remaining.min(most), retry_after));
    Outcome::Refused(Refusal::new(reason, retry_after), told)
}

/// Permits in flight in a store, renewed until this is dropped.
struct Flight<S: Store, C: Clock + Clone + 'static>(
    #[expect(dead_code, reason = "kept for its drop")] LeaseGuard<S, C>,
);

impl<S: Store, C: Clock + Clone + 'static> InFlight for Flight<S, C> {
    /// Does nothing: permits in flight in a store leave no trace in either case.
    fn had_no_effect(&mut self) {}
}
