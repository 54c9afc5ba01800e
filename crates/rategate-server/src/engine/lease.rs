//! Leases: permits in flight under a name, until their holder releases them or their time ends.
//!
//! # Contract
//!
//! * **One holder**: while a lease lasts, its permits belong to no other caller. Taking it again
//!   under the same name renews the same lease, so a call whose answer was lost can be repeated.
//!   With another number of permits the same name is another lease.
//! * **It ends by itself**: [`Rule::held_ns`] after it was taken or last renewed, by the clock of
//!   the process that keeps the rule's counters. A holder that has died or is unreachable blocks
//!   permits no longer than that. A holder counts from when it *sent* its request, which is
//!   earlier.
//! * **Its name is all that is needed to end it**, so names are drawn from 128 bits. A reservation
//!   of the same name is another holder.
//!
//! A lease belongs to a rule by its name, with a limit of
//! [concurrency](rategate::Concurrency).

use std::future::Future as _;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rategate::Clock;
use rategate::store::{LeaseId, StoreError};

use super::answer::{Answer, Decided, ItemResult, Verdict};
use super::error::EngineError;
use super::key;
use super::live::{Live, Located};
use super::remote::{now_or_later, of_store, peeked, result_of};
use super::unique_id::UniqueId;
use super::{Engine, Inner};
use crate::rule::CounterLocation;

/// An operation on a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseVerb {
    /// Takes the permits for the lease's full time. A lease that still lasts is renewed and takes
    /// nothing more.
    Take,
    /// Extends the lease to its full time from now. A denial means that it had ended, and that
    /// its permits may be taken.
    Renew,
    /// Ends the lease. [`Verdict::Refunded`] has the number of permits: 0 if it had ended.
    Release,
}

/// A lease of a rule's permits.
#[derive(Clone, Copy, Debug)]
pub struct Lease<'a> {
    /// The name: the holder's own, or a [new](UniqueId::random) one.
    pub name: UniqueId,
    /// The name of the rule.
    pub rule: &'a str,
    /// The values of the rule's entries that have no value of their own, in their order.
    pub values: &'a [&'a [u8]],
    /// The number of permits, the same in every operation on the lease.
    pub permits: u64,
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Takes, renews or releases a lease in the rule's store or in this process. The answer has
    /// one part.
    ///
    /// Fails with [`EngineError::NotForItem`] if the rule's limit is not one of concurrency, and
    /// with [`EngineError::NoPermits`] if `permits` is 0.
    #[must_use]
    pub fn lease(&self, verb: LeaseVerb, lease: &Lease<'_>) -> Decided {
        let live = self.inner.live.load_full();
        let Some(live) = live else { return Decided::Now(Err(EngineError::NotLoaded)) };
        if !live.matcher.group(lease.rule).is_empty() {
            let rule = lease.rule.into();
            let why = "has several limits, and a lease is of one that counts permits in flight";
            return Decided::Now(Err(EngineError::NotForItem { item: 0, rule, why }));
        }
        let counter = match live.located(lease.rule, lease.values) {
            Ok(found) => found,
            Err(error) => return Decided::Now(Err(error)),
        };
        let Some(permits) = NonZeroU64::new(lease.permits) else {
            let rule = lease.rule.into();
            return Decided::Now(Err(EngineError::NoPermits { item: 0, rule }));
        };
        let (inner, id) = (Arc::clone(&self.inner), LeaseId(lease.name.0));
        now_or_later(Box::pin(async move {
            let result = leased(&inner, &live, verb, id, &counter, permits).await?;
            let watch = live.ruled.get(counter.rule).and_then(|ruled| ruled.watch.as_ref());
            // A renewal is not reported as a decision.
            if let (Some(watch), LeaseVerb::Take | LeaseVerb::Release) = (watch, verb) {
                watch.decided(inner.clock.now_ns(), &counter.key, permits.get(), &result);
            }
            Ok(Answer {
                allowed: !result.verdict.is_over(),
                results: [result].into_iter().collect(),
            })
        }))
    }
}

impl<C: Clock + Clone + 'static> Engine<C> {
    /// Returns the number of permits in flight of a rule with one counter in this process.
    #[must_use]
    pub fn in_flight(&self, rule: &str) -> Option<u64> {
        let live = self.inner.live.load();
        let ruled = live.as_ref()?.ruled_by(rule).filter(|ruled| ruled.is_in_flight())?;
        let is_here = ruled.rule.location == CounterLocation::Here;
        let remote = ruled.remote.as_ref().filter(|_| is_here)?;
        if ruled.rule.values_counted() > 0 {
            return None;
        }
        let key = key::in_store(&ruled.rule.name, b"");
        // The memory of this process replies at once.
        let mut peek = remote.peek(&key, 1);
        let reply = Pin::new(&mut peek).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok(decision)) = reply else { return None };
        Some(ruled.capacity().saturating_sub(decision.remaining()?))
    }
}

impl Answer {
    /// Returns the time for which the lease lasts unless it is renewed, in nanoseconds from the
    /// decision. Returns `None` if no lease lasts: it was denied or released, or its rule is not
    /// enforced and had no permits left.
    #[must_use]
    pub fn held_ns(&self) -> Option<u64> {
        let result = self.results.first().filter(|result| result.verdict == Verdict::Granted)?;
        let rule = result.rule.as_ref()?;
        rule.limit.counts_in_flight().then_some(rule.held_ns)
    }
}

async fn leased<C: Clock + Clone + 'static>(
    inner: &Inner<C>,
    live: &Live<C>,
    verb: LeaseVerb,
    lease: LeaseId,
    counter: &Located,
    permits: NonZeroU64,
) -> Result<ItemResult, EngineError> {
    let Located { rule, key } = counter;
    let ruled = live.ruled.get(*rule).filter(|ruled| ruled.is_in_flight());
    let Some((ruled, remote)) = ruled.and_then(|ruled| Some((ruled, ruled.remote.as_ref()?)))
    else {
        let rule = live.ruled.get(*rule).ok_or(EngineError::NotLoaded)?;
        let rule = Arc::clone(&rule.rule.name);
        let why = "has no leases: those are of rules with the algorithm \"concurrency\"";
        return Err(EngineError::NotForItem { item: 0, rule, why });
    };
    let named = key::in_store(&ruled.rule.name, key);
    let denied = |enforced| Verdict::Denied { retry_after_ns: None, enforced };
    let verdict = match verb {
        LeaseVerb::Take => match remote.hold(&named, permits.get(), lease).await {
            Ok(decision) => return Ok(result_of(inner, live, counter, &decision)),
            Err(StoreError::Exceeds(_)) => denied(ruled.is_enforced()),
            Err(error) => return Err(of_store(&error)),
        },
        LeaseVerb::Renew => match remote.renew(&named, permits, lease).await {
            Ok(0) | Err(StoreError::Exceeds(_)) => denied(true),
            Ok(_) => Verdict::Granted,
            Err(error) => return Err(of_store(&error)),
        },
        LeaseVerb::Release => match remote.release(&named, permits, lease).await {
            Ok(0) | Err(StoreError::Exceeds(_)) => Verdict::Refunded(0),
            Ok(_) => Verdict::Refunded(permits.get()),
            Err(error) => return Err(of_store(&error)),
        },
    };
    peeked(inner, live, counter, verdict).await
}
