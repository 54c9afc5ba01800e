//! Rules with counters in a store that many machines share, and permits in flight that expire.
//!
//! # Contract
//!
//! * **One rule** is decided by the store, or with permits leased from it, within the store's
//!   time budget. While the store is unavailable, the rule's fallback decides: [`OnUnavailable`].
//! * **Several items** that are not all in this process: those in the store are submitted at
//!   once, within one budget, and then the local ones are taken together. If one is over, the
//!   store's grants are refunded, and permits that were granted from a lease or a fallback can be
//!   granted again. The same happens if the caller stops waiting. Until then other callers may
//!   find fewer permits than there are, and never more.
//! * **Charges** are booked by the store alone. Without its reply the item is unavailable: the
//!   charge may have been booked, and is not sent again unless it has an id. A rule that charges
//!   what is over counts in the store whatever the other items say; without the store its fallback
//!   counts what fits.
//! * **Windows that count every hit** ([`CountedWindow`]) count denied permits in the store too,
//!   and refund nothing.
//! * **Reservations** are held by the store under their id, of permits in flight too:
//!   see [`reserve`](super::Engine::reserve).
//! * **Requests with an id** count once in the store: see [`once`](super::Engine::once).
//! * **Refunds** need no grant, as in this process: a store credits permits up to full, by the
//!   caller's word. While unavailable it credits nothing. Permits in flight are
//!   [released](super::LeaseVerb::Release) instead.

use std::collections::HashMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rategate::distributed::{
    Builder, DEFAULT_BUDGET, DecisionFuture, Distributed, Grant, Health, Leases, Mode,
    OnUnavailable as Unavailable,
};
use rategate::store::{
    self, Callback, ChargeReply, CreditReply, EndReply, LeaseId, MemoryStore, Pending, PlanError,
    ReservationEnd, ReservationId, ReserveReply, Rule as StoreRule, Store, StoreError,
    StoreRequest,
};
use rategate::{AnyPolicy, Clock, ManualClock};
use rategate_redis::plan::Plan;

use crate::rule::{CountedWindow, CounterLocation, Limit, OnUnavailable, Rule};

/// The maximum number of permits that are leased at a time.
const MAX_BORROWED: u64 = 10_000;

/// The reason why a store does not keep a log that carries its debts.
pub(crate) const LOGS_FORGET: &str = "a sliding log in a store forgets its debts; leave `debt` out, \
                                      or write algorithm = \"fixed-window\"";

/// A store for rules, of any kind.
pub trait Stores<C: Clock>: Send + Sync {
    /// Creates the limit of a rule in the store. At most `max_keys` keys have local state.
    ///
    /// # Errors
    ///
    /// Returns the reason for which the store cannot keep it.
    fn limit_of(&self, rule: &Rule, max_keys: usize, clock: &C) -> Result<Arc<dyn Remote>, String>;
}

/// A limit kept in a store, with the verbs of [`Distributed`].
pub trait Remote: Send + Sync {
    /// Takes permits.
    fn take(&self, key: &[u8], permits: u64) -> DecisionFuture;
    /// Decides without taking.
    fn peek(&self, key: &[u8], permits: u64) -> DecisionFuture;
    /// Clears the state of a key.
    fn reset(&self, key: &[u8]) -> Pending<u64>;
    /// Refunds the permits of a grant.
    fn refund(&self, key: &[u8], permits: NonZeroU64, grant: Grant);
    /// Credits permits without a grant, up to full. Returns how many.
    fn credit(&self, key: &[u8], permits: NonZeroU64) -> Pending<u64>;
    /// Charges permits that were used already. A lost reply leaves the outcome unknown.
    fn charge(&self, key: &[u8], permits: NonZeroU64) -> Pending<ChargeReply>;
    /// Charges permits once under an id. The same again counts once.
    fn charge_once(
        &self,
        key: &[u8],
        permits: NonZeroU64,
        id: ReservationId,
    ) -> Pending<ChargeReply>;
    /// Credits permits once under an id. The same again counts once.
    fn credit_once(
        &self,
        key: &[u8],
        permits: NonZeroU64,
        id: ReservationId,
    ) -> Pending<CreditReply>;
    /// Takes permits that count even if they are denied. None are denied in debt.
    fn take_or_charge(&self, key: &[u8], permits: u64) -> DecisionFuture;
    /// Holds an estimate under an id for a time, where as many more permits as are spared would
    /// pass. A lost reply leaves the outcome unknown; the same again is held once.
    fn reserve(
        &self,
        key: &[u8],
        permits_and_spared: (u64, u64),
        id: ReservationId,
        ttl: Duration,
    ) -> Pending<ReserveReply>;
    /// Ends what is held under an id. The same again counts once.
    fn end(&self, key: &[u8], id: ReservationId, end: ReservationEnd) -> Pending<EndReply>;
    /// Takes permits in flight, under the name of a lease.
    fn hold(&self, key: &[u8], permits: u64, lease: LeaseId) -> DecisionFuture;
    /// Renews a lease.
    fn renew(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Pending<u64>;
    /// Ends a lease.
    fn release(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Pending<u64>;
    /// Returns the health of the store.
    fn health(&self) -> Health;
}

impl fmt::Debug for dyn Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}

impl<S: Store, C: Clock + Clone + 'static> Remote for Distributed<S, C> {
    fn take(&self, key: &[u8], permits: u64) -> DecisionFuture {
        self.try_acquire(key, permits)
    }

    fn peek(&self, key: &[u8], permits: u64) -> DecisionFuture {
        Self::peek(self, key, permits)
    }

    fn reset(&self, key: &[u8]) -> Pending<u64> {
        Self::reset(self, key)
    }

    fn refund(&self, key: &[u8], permits: NonZeroU64, grant: Grant) {
        Self::refund(self, key, permits, grant);
    }

    fn credit(&self, key: &[u8], permits: NonZeroU64) -> Pending<u64> {
        Self::credit(self, key, permits)
    }

    fn charge(&self, key: &[u8], permits: NonZeroU64) -> Pending<ChargeReply> {
        Self::charge(self, key, permits)
    }

    fn charge_once(
        &self,
        key: &[u8],
        permits: NonZeroU64,
        id: ReservationId,
    ) -> Pending<ChargeReply> {
        Self::charge_once(self, key, permits, id)
    }

    fn credit_once(
        &self,
        key: &[u8],
        permits: NonZeroU64,
        id: ReservationId,
    ) -> Pending<CreditReply> {
        Self::credit_once(self, key, permits, id)
    }

    fn take_or_charge(&self, key: &[u8], permits: u64) -> DecisionFuture {
        self.try_acquire_or_charge(key, permits)
    }

    fn reserve(
        &self,
        key: &[u8],
        permits_and_spared: (u64, u64),
        id: ReservationId,
        ttl: Duration,
    ) -> Pending<ReserveReply> {
        self.reserve_sparing(key, permits_and_spared, id, ttl)
    }

    fn end(&self, key: &[u8], id: ReservationId, end: ReservationEnd) -> Pending<EndReply> {
        Self::end(self, key, id, end)
    }

    fn hold(&self, key: &[u8], permits: u64, lease: LeaseId) -> DecisionFuture {
        Self::hold(self, key, permits, lease)
    }

    fn renew(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Pending<u64> {
        Self::renew(self, key, permits, lease)
    }

    fn release(&self, key: &[u8], permits: NonZeroU64, lease: LeaseId) -> Pending<u64> {
        Self::release(self, key, permits, lease)
    }

    fn health(&self) -> Health {
        Self::health(self)
    }
}

/// A store that all rules share.
#[derive(Debug)]
pub struct Shared<S> {
    store: Arc<S>,
    nodes: NonZeroU32,
    budget: Duration,
}

impl<S> Shared<S> {
    /// Creates a store that at most `nodes` servers share. While it is unavailable, each of them
    /// enforces that fraction of the limit.
    #[must_use]
    pub const fn new(store: Arc<S>, nodes: NonZeroU32) -> Self {
        Self { store, nodes, budget: DEFAULT_BUDGET }
    }

    /// Sets the time that a call waits for the store; [`DEFAULT_BUDGET`] by default.
    ///
    /// The store's own budget should be equal.
    #[must_use]
    pub fn with_budget(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }
}

impl<S: Store> Shared<S> {
    fn builder<C: Clock + Clone + 'static>(
        &self,
        rule: &Rule,
        clock: &C,
    ) -> Result<Builder<S, C>, String> {
        let store_rule = store_rule(rule)?;
        if rule.debt.is_carried() && matches!(store_rule, StoreRule::Log(_)) {
            return Err(LOGS_FORGET.to_owned());
        }
        let mode = match rule.location {
            CounterLocation::StoreLeased { lease_ns } => {
                let ttl = Duration::from_nanos(lease_ns);
                Mode::Leased(Leases { ttl, max_permits: MAX_BORROWED, ..Leases::default() })
            }
            _ => Mode::Exact,
        };
        let on_unavailable = match (rule.on_unavailable, store_rule) {
            (OnUnavailable::Admit, _) => Unavailable::Admit,
            // Permits in flight in other processes are unknown here.
            (OnUnavailable::Deny, _) | (OnUnavailable::Local, StoreRule::InFlight(..)) => {
                Unavailable::Deny
            }
            (OnUnavailable::Local, _) => Unavailable::Local { nodes: self.nodes },
        };
        let builder = Distributed::builder(Arc::clone(&self.store)).with_clock(clock.clone());
        let builder = builder.limit("limit", store_rule).mode(mode).on_unavailable(on_unavailable);
        let builder = builder.with_debt(rule.debt);
        Ok(builder.named(&rule.name).with_budget(self.budget))
    }
}

impl<S: Store, C: Clock + Clone + 'static> Stores<C> for Shared<S> {
    fn limit_of(&self, rule: &Rule, max_keys: usize, clock: &C) -> Result<Arc<dyn Remote>, String> {
        let limiter = self
            .builder(rule, clock)?
            .with_max_keys(max_keys)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Arc::new(limiter))
    }
}

/// Checks that a store of the service can keep a rule's limit, without connecting to one.
/// Succeeds for rules without a limit, and for local ones.
///
/// # Errors
///
/// Returns the reason for which it cannot.
pub(crate) fn check_storable(rule: &Rule) -> Result<(), String> {
    if rule.location == CounterLocation::Here || rule.limit.policy().is_none() {
        return Ok(());
    }
    let shared = Shared::new(Arc::new(PlanOnlyStore), NonZeroU32::MIN);
    let builder = shared.builder(rule, &ManualClock::new())?.unattended();
    builder.build().map(drop).map_err(|error| error.to_string())
}

/// A store that only checks limits.
struct PlanOnlyStore;

impl Store for PlanOnlyStore {
    type Plan = Plan;

    fn plan(&self, rules: &[(&str, StoreRule)]) -> Result<Plan, PlanError> {
        Plan::of_rules(rules)
    }

    fn submit(&self, _: StoreRequest<Plan>, callback: Callback) {
        callback(Err(StoreError::Unavailable(store::Unavailable::Unreachable(
            "this store only checks limits".to_owned(),
        ))));
    }
}

/// The limits of an engine that are not in its tables: those in the store, and permits in flight
/// in this process.
pub(super) struct Remotes<C: Clock> {
    store: Option<Arc<dyn Stores<C>>>,
    /// The maximum number of reservations that are known for each rule of those.
    max_reservations: usize,
    /// Permits in flight in this process, by the name of their rule, while the rule exists.
    here: Mutex<HashMap<Arc<str>, Weak<MemoryStore<C>>>>,
}

impl<C: Clock + Clone + 'static> Remotes<C> {
    pub(super) fn new(store: Option<Arc<dyn Stores<C>>>, max_reservations: usize) -> Self {
        Self { store, max_reservations, here: Mutex::default() }
    }

    /// Returns the store of a rule's permits in flight. They stay held when the limit changes.
    fn here(&self, rule: &Rule, max_keys: usize, clock: &C) -> Arc<MemoryStore<C>> {
        of_name(&self.here, &rule.name, || {
            let store = MemoryStore::with_capacity(clock.clone(), max_keys);
            store.with_max_ids(self.max_reservations)
        })
    }

    /// Returns the reservations of a rule's permits in flight in this process.
    pub(super) fn reserved(&self, rule: &Rule) -> Vec<store::InFlight> {
        known(&self.here, &rule.name).map_or_else(Vec::new, |it| it.in_flight())
    }

    /// Returns the number of keys with permits in flight in this process.
    pub(super) fn keys(&self) -> usize {
        let here = lock(&self.here).values().filter_map(Weak::upgrade).collect::<Vec<_>>();
        here.iter().map(|store| store.keys()).fold(0, usize::saturating_add)
    }

    /// Returns the limit of a rule, if its counters are not in a table.
    pub(super) fn limit_of(
        &self,
        rule: &Rule,
        max_keys: usize,
        clock: &C,
    ) -> Result<Option<Arc<dyn Remote>>, String> {
        let Some(policy) = rule.limit.policy() else { return Ok(None) };
        match rule.location {
            CounterLocation::Here if matches!(policy, AnyPolicy::Concurrency(_)) => {
                let store = Shared::new(self.here(rule, max_keys, clock), NonZeroU32::MIN);
                store.limit_of(rule, max_keys, clock).map(Some)
            }
            CounterLocation::Here => Ok(None),
            CounterLocation::StoreExact | CounterLocation::StoreLeased { .. } => {
                let store = self.store.as_ref().ok_or("no store is configured")?;
                store.limit_of(rule, max_keys, clock).map(Some)
            }
        }
    }
}

impl<C: Clock> fmt::Debug for Remotes<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remotes").field("has_store", &self.store.is_some()).finish_non_exhaustive()
    }
}

/// Returns a rule's limit as a store keeps it, with the same ceiling.
fn store_rule(rule: &Rule) -> Result<StoreRule, String> {
    let policy = match rule.limit {
        Limit::Policy(policy) => policy,
        Limit::Counted(window) => return counted_store_rule(rule, window),
        _ => return Err("the limit counts nothing".to_owned()),
    };
    let none =
        || "a store keeps buckets, windows, calendars, logs and permits in flight".to_owned();
    Ok(match policy {
        AnyPolicy::Gcra(bucket) => bucket.into(),
        AnyPolicy::FixedWindow(window) => window.into(),
        AnyPolicy::SlidingLog(log) => log.into(),
        AnyPolicy::Concurrency(_)
            if matches!(rule.location, CounterLocation::StoreLeased { .. }) =>
        {
            return Err("permits in flight cannot be leased".to_owned());
        }
        AnyPolicy::Concurrency(in_flight) => {
            let held_ns = NonZeroU64::new(rule.held_ns)
                .ok_or("the lease time is 0 ns; it must be at least 1 ns")?;
            StoreRule::InFlight(in_flight, held_ns)
        }
        _ => return Err(none()),
    })
}

/// Returns the store of a rule, a new one unless the rule has one.
fn of_name<S>(
    stores: &Mutex<HashMap<Arc<str>, Weak<S>>>,
    name: &Arc<str>,
    new: impl FnOnce() -> S,
) -> Arc<S> {
    let mut stores = lock(stores);
    if stores.len() == stores.capacity() {
        stores.retain(|_, store| store.strong_count() > 0);
    }
    let store = stores.get(name).and_then(Weak::upgrade).unwrap_or_else(|| Arc::new(new()));
    stores.insert(Arc::clone(name), Arc::downgrade(&store));
    store
}

/// Returns the store of a rule, if it has one.
fn known<S>(stores: &Mutex<HashMap<Arc<str>, Weak<S>>>, name: &str) -> Option<Arc<S>> {
    lock(stores).get(name).and_then(Weak::upgrade)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the store's form of a window that counts every hit, which only the store itself can
/// count for all.
fn counted_store_rule(rule: &Rule, window: CountedWindow) -> Result<StoreRule, String> {
    let why = if matches!(rule.location, CounterLocation::StoreLeased { .. }) {
        "a counted window cannot be leased, since it counts every hit in the store; \
         write store: exact"
    } else if rule.on_unavailable == OnUnavailable::Local {
        "a counted window cannot be enforced by one server alone; \
         write on_unavailable: deny or on_unavailable: admit"
    } else {
        let counter =
            CountedWindow::long_counter(window.period_ns()).map_err(|error| error.to_string())?;
        return Ok(counter.into());
    };
    Err(format!("{why}, or algorithm: fixed-window"))
}

/// Returns the longest time until none of a limit is in use, which a store does not report.
pub(super) fn reset_after_ns(
    policy: &AnyPolicy,
    capacity: u64,
    (remaining, debt): (Option<u64>, u64),
    is_carried: bool,
    now_ns: u64,
) -> u64 {
    let Some(remaining) = remaining else { return u64::MAX };
    let used = capacity.saturating_sub(remaining).saturating_add(debt);
    // A window forgets a debt at its border unless it is carried.
    let beyond = if is_carried { used } else { used.min(capacity) };
    if used == 0 {
        return 0;
    }
    match policy {
        AnyPolicy::Gcra(bucket) => {
            bucket.rate().fraction().map_or(u64::MAX, |(permits, period_ns)| {
                let scaled = u128::from(used).saturating_mul(period_ns.into());
                u64::try_from(scaled.div_ceil(u128::from(permits.max(1)))).unwrap_or(u64::MAX)
            })
        }
        AnyPolicy::FixedWindow(window) => {
            // Of a debt that is carried, each later window pays its limit.
            let borders = beyond.div_ceil(window.permits().max(1)).max(1);
            window.border_in_ns(now_ns, borders)
        }
        AnyPolicy::SlidingLog(log) => log.held_for_ns().saturating_add(log.resolution_ns()),
        _ => u64::MAX,
    }
}
